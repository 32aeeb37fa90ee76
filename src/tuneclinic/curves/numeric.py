"""NaN, hidden NaN, all-masked zeros, loss scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import thresholds as at
from tuneclinic.curves.robust import Array
from tuneclinic.curves.rows import REINFORCEMENT, Rows
from tuneclinic.sections import Metrics


def read(loss: Rows, metrics: Metrics, kind: str) -> tuple[dict[str, Any], Array]:
    """Fields of `Shape` about non-finite and empty losses, and which loss rows carry a true value."""
    norms = Rows.of(metrics.get("grad_norm"))
    if not len(loss):
        return _one_alone(norms if len(norms) else Rows.of(metrics.get("eval_loss"))), np.zeros(0, dtype=bool)
    norm, present = loss.beside(norms)
    zero = loss.values == 0
    broken_norm = present & ~np.isfinite(norm)
    hidden = (zero & broken_norm) | _dropped_to_zero(loss, zero, present, kind)
    masked = _masked(loss, norm, present, kind)
    lasting = _lasting(broken_norm, present)
    bad = ~np.isfinite(loss.values) | hidden | lasting
    true = np.isfinite(loss.values) & ~hidden & ~masked
    fields: dict[str, Any] = {"masked_rows": int(masked.sum())}
    stretch = _first_stretch(masked)
    if stretch is not None:
        fields["masked_from"] = float(loss.steps[stretch])
    if kind not in REINFORCEMENT:
        dead = _final_stretch(zero)
        if dead is not None:
            fields["zero_from"] = float(loss.steps[dead])
    if bad.any():
        fields |= _nan(loss, bad, hidden | (lasting & np.isfinite(loss.values)))
        fields |= _norm_before(norm, present, int(np.argmax(bad)))
        fields |= _rate(metrics, float(loss.steps[int(np.argmax(bad))]))
    return fields, true


def _masked(loss: Rows, norm: Array, present: Array, kind: str) -> Array:
    """Rows without a label: loss 0.0 or NaN with gradient norm 0. Not where the norm is simply not logged, nor in RL."""
    empty = ((loss.values == 0) | np.isnan(loss.values)) & present & (norm == 0)
    logging_off = bool(present.any()) and bool((norm[present] == 0).all()) and not bool(empty.all())
    if kind in REINFORCEMENT or logging_off:
        return np.zeros(len(loss), dtype=bool)
    return np.asarray(empty)


def _dropped_to_zero(loss: Rows, zero: Array, present: Array, kind: str) -> Array:
    """Rows of exactly 0.0 to the end behind a loss far from 0, in a log without gradient norms: a filter wrote them for NaN.

    Memorising comes down to 0 by degrees, and masked labels read 0 from the start.
    """
    marks = np.zeros(len(loss), dtype=bool)
    start = _final_stretch(zero)
    if present.any() or kind in REINFORCEMENT or not start or not loss.values[start - 1] > at.FAR_FROM_ZERO:
        return marks
    marks[start:] = True
    return marks


def _lasting(broken: Array, present: Array) -> Array:
    """Broken gradient norms that never recover. Those that do are overflows of fp16's scale search and no fault."""
    rows = np.flatnonzero(present)
    marks = np.zeros(len(broken), dtype=bool)
    if not len(rows):
        return marks
    good = np.flatnonzero(~broken[rows])
    start = 0 if not len(good) else int(good[-1]) + 1
    if len(rows) - start >= 2 or (start == 0 and len(rows) > start):
        marks[rows[start:]] = True
    return marks


def _first_stretch(marks: Array) -> int | None:
    """Index of the first unbroken stretch of `STRETCH_ROWS` marks, or of all rows where there are fewer."""
    need = min(at.STRETCH_ROWS, len(marks))
    if not need or marks.sum() < need:
        return None
    runs = np.convolve(marks.astype(np.int64), np.ones(need, dtype=np.int64), "valid")
    found = np.flatnonzero(runs == need)
    return int(found[0]) if len(found) else None


def _final_stretch(marks: Array) -> int | None:
    """Index from which every row to the end is marked, if those are at least `STRETCH_ROWS`."""
    clear = np.flatnonzero(~marks)
    start = int(clear[-1]) + 1 if len(clear) else 0
    return start if len(marks) - start >= at.STRETCH_ROWS else None


def _nan(loss: Rows, bad: Array, hidden: Array) -> dict[str, Any]:
    index = int(np.argmax(bad))
    step = float(loss.steps[index])
    after = bad[index:]
    return {
        "nan_from": step,
        "nan_at_start": index == 0 or (index < at.START_ROWS and step <= at.START_STEPS),
        "nan_hidden": bool(hidden[index:].any()) and not bool((~np.isfinite(loss.values[index:])).any()),
        "nan_isolated": bool((~after).any()) and not bool(after[-1]),
    }


def _norm_before(norm: Array, present: Array, index: int) -> dict[str, Any]:
    """The last finite gradient norm before row `index`, and the last three over what was usual before."""
    before = norm[:index][present[:index] & np.isfinite(norm[:index])]
    if not len(before):
        return {}
    fields: dict[str, Any] = {"last_finite_grad_norm": float(before[-1])}
    usual = float(median(before[:-3])) if len(before) > 6 else float(median(before))
    if usual > 0:
        fields["grad_norm_rises"] = float(median(before[-3:])) / usual
    return fields


def _rate(metrics: Metrics, step: float) -> dict[str, Any]:
    rate = Rows.of(metrics.get("learning_rate"))
    until = rate.values[(rate.steps <= step) & np.isfinite(rate.values)] if len(rate) else np.empty(0)
    if not len(until):
        return {}
    return {"learning_rate_at_nan": float(until[-1]), "learning_rate_always_zero": bool((until <= at.DEAD_RATE).all())}


def _one_alone(held: Rows) -> dict[str, Any]:
    """A log of gradient norms or of evaluations without a training loss: NaN to the end is NaN."""
    if not len(held):
        return {}
    marks = _lasting(~np.isfinite(held.values), np.ones(len(held), dtype=bool))
    if not marks.any():
        return {}
    index = int(np.argmax(marks))
    step = float(held.steps[index])
    return {"nan_from": step, "nan_at_start": step <= at.START_STEPS and index < at.START_ROWS}


def loss_scale(metrics: Metrics) -> float | None:
    """Step at which a falling loss scale reached its floor and stayed; None else (bf16 logs print a constant 1)."""
    scale = Rows.of(metrics.get("loss_scale"))
    good = np.isfinite(scale.values)
    steps, values = scale.steps[good], scale.values[good]
    if len(values) < at.STRETCH_ROWS or values.max() <= at.SCALE_FLOOR:
        return None
    start = _final_stretch(values <= at.SCALE_FLOOR)
    return None if start is None else float(steps[start])
