"""Gradient norm, learning rate, throughput, resume, end of the log."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import robust
from tuneclinic.curves import thresholds as at
from tuneclinic.curves.robust import Array
from tuneclinic.curves.rows import REINFORCEMENT, Curve, Rows
from tuneclinic.sections import Metrics

SECONDS = ("step_seconds", "step_time", "step_time_sec", "train_step_time", "iteration_seconds")
"""Series of seconds a step."""
SPEEDS = ("tokens_per_second", "tokens_per_sec", "tps", "samples_per_second", "train_samples_per_second", "steps_per_second")
"""Series of work a second."""
RESUMES_TRIED = 20
"""Resumes looked at: more than any log of a run that still makes sense."""
EPOCH_BACK = 0.01
"""Fall of the epoch counter that is no rounding: trainers print two decimals at the least."""
IN_KIND = frozenset({"grpo", "ppo", "rloo", "rl"})
"""Kinds whose steps take as long as their completions are: no statement about speed."""


def gradient_norm(metrics: Metrics) -> dict[str, Any]:
    """One norm for ever, or a norm that creeps up."""
    values = _finite(metrics, "grad_norm")[1]
    values = values[values > 0]
    fields: dict[str, Any] = {}
    if len(values) >= 10 and float(values.max() - values.min()) <= 1e-6 * float(values.max()):
        return {"constant_grad_norm": float(values[0])}
    if len(values) >= at.CREEP_POINTS:
        fifth = len(values) // 5
        # The rows of the first tenth are left out: gradients start several times above their median.
        early, late = float(median(values[fifth // 2 : fifth + fifth // 2])), float(median(values[-fifth:]))
        if early > 0 and late / early >= at.CREEP_RATIO and robust.order(values[fifth // 2 :]) >= at.CREEP_ORDER:
            fields["grad_norm_creeps"] = late / early
    return fields


def dead_rate(metrics: Metrics) -> float | None:
    """Step from which the learning rate is 0 although the run goes on."""
    steps, values = _finite(metrics, "learning_rate")
    if len(values) < 4:
        return None
    alive = np.flatnonzero(values > at.DEAD_RATE)
    if not len(alive):
        return float(steps[0]) if len(values) >= at.DEAD_ROWS else None
    if float(values.max()) < 100 * at.DEAD_RATE:
        alive = np.flatnonzero(values > 0)
    start = int(alive[-1]) + 1
    left = len(values) - start
    return float(steps[start]) if left >= max(at.DEAD_ROWS, at.DEAD_SHARE * len(values)) else None


def throughput(metrics: Metrics, kind: str) -> dict[str, Any]:
    """Steps that take longer and longer, or suddenly longer."""
    steps, seconds = _seconds(metrics)
    if len(seconds) < at.SLOW_POINTS or kind in IN_KIND:
        return {}
    skip = max(1, len(seconds) // 20)  # compilation and warm-up make the first steps slow
    steps, seconds = steps[skip:], seconds[skip:]
    sudden = _drop(steps, seconds)
    if sudden is not None:
        return {"throughput_dropped_from": sudden[0], "throughput_decays": sudden[1]}
    centres, medians = robust.block_medians(robust.thin(seconds), 8)
    if len(centres) < 4 or medians[0] <= 0:
        return {}
    factor = float(medians[-1] / medians[0])
    if factor >= at.SLOW_DECAY and robust.order(seconds) >= at.CREEP_ORDER:
        return {"throughput_decays": factor}
    return {}


def _drop(steps: Array, seconds: Array) -> tuple[float, float] | None:
    """The place where the median before and after differ most, if the change is sudden, large and stays."""
    smoothed = robust.running_median(seconds, 5)
    count = len(smoothed)
    side = max(5, count // 5)
    if count < 2 * side:
        return None
    tail = float(median(smoothed[-side:]))
    slow = smoothed > np.sqrt(tail * max(float(median(smoothed[:side])), 1e-12))
    fast = np.flatnonzero(~slow)
    if not len(fast):
        return None
    start = int(fast[-1]) + 1
    if count - start < max(5, count // 10) or start < 5:
        return None
    before, after = float(median(seconds[:start])), float(median(seconds[start:]))
    edge_before = float(median(seconds[max(0, start - side) : start]))
    edge_after = float(median(seconds[start : start + side]))
    if before <= 0 or after / before < at.SLOW_DROP or edge_after / max(edge_before, 1e-12) < 0.8 * after / before:
        return None
    return float(steps[start]), after / before


def _seconds(metrics: Metrics) -> tuple[Array, Array]:
    for names, invert in ((SECONDS, False), (SPEEDS, True)):
        for name in names:
            steps, values = _finite(metrics, name)
            good = values > 0
            if good.sum() >= at.SLOW_POINTS:
                return steps[good], 1 / values[good] if invert else values[good]
    return np.empty(0), np.empty(0)


def resume(curve: Curve, loss: Rows, metrics: Metrics) -> dict[str, Any]:
    """A resume and the change of the loss there: the first resume with a change, else the first resume.

    A resume is named by the reader, or shows as a step or an epoch that goes back, or as a rate that is warmed up anew.
    """
    found = _resumes(loss, metrics)
    if not found:
        return {}
    fields: dict[str, Any] = {"resumed_at": found[0][1]}
    if curve.kind in REINFORCEMENT or len(curve) < 2 * at.TAIL_POINTS:
        return fields
    for index, step in found[:RESUMES_TRIED]:
        jump = _jump(loss.values, index, curve.noise)
        if jump is not None:
            return {"resumed_at": step, "resume_jump": jump}
    return fields


def _jump(values: Array, index: int, noise: float) -> float | None:
    """Relative change of the loss at row `index`, if it is more than noise and more than the trend before it explains."""
    before, after = values[max(0, index - at.RESUME_ROWS) : index], values[index : index + at.RESUME_ROWS]
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if len(before) < at.TAIL_POINTS or len(after) < at.TAIL_POINTS:
        return None
    level = float(median(before))
    change = float(median(after[: max(at.TAIL_POINTS, len(after) // 2)])) - level
    local = max(noise, robust.sigma(before), robust.jitter(after))
    error = at.MEDIAN_ERROR * local * float(np.sqrt(1 / len(before) + 2 / len(after)))
    half = len(before) // 2
    drift = abs(float(median(before[half:])) - float(median(before[: max(1, half)])))
    big = abs(change) > max(at.RESUME_JUMP * level, at.RESUME_SIGMAS * error, at.RESUME_DRIFTS * (drift - 2 * error))
    return change / level if level > 0 and big else None


def _resumes(loss: Rows, metrics: Metrics) -> list[tuple[int, float]]:
    """Row index and step of each resume."""
    if metrics.resumed_at and len(loss):
        ordered = loss.steps if bool((np.diff(loss.steps) >= 0).all()) else np.maximum.accumulate(loss.steps)
        return [(int(np.searchsorted(ordered, step)), float(step)) for step in metrics.resumed_at[:RESUMES_TRIED]]
    back = np.flatnonzero(np.diff(loss.steps) < 0) + 1
    if len(back):
        return [(int(index), float(loss.steps[index])) for index in back[:RESUMES_TRIED]]
    epoch_steps, epochs = _finite(metrics, "epoch")
    again = np.flatnonzero(np.diff(epochs) < -EPOCH_BACK) + 1
    if len(again):
        return [
            (int(np.searchsorted(loss.steps, epoch_steps[index])), float(epoch_steps[index])) for index in again[:RESUMES_TRIED]
        ]
    steps, rates = _finite(metrics, "learning_rate")
    if len(rates) < at.FLAT_POINTS:
        return []
    fell = np.flatnonzero((rates[1:] < at.RATE_RESTART * rates[:-1]) & (rates[:-1] > at.DEAD_RATE)) + 1
    warmed = [i for i in fell[:RESUMES_TRIED] if 5 <= i < len(rates) - 5 and float(rates[i : i + 50].max()) > 2 * rates[i]]
    return [(int(np.searchsorted(loss.steps, steps[index])), float(steps[index])) for index in warmed]


def unfinished(metrics: Metrics, loss: Rows) -> bool:
    """Whether the log ends before the planned last step."""
    if metrics.finished is not None:
        return not metrics.finished
    if not metrics.total_steps or not len(loss) or metrics.rows_are_steps:
        return False
    return float(loss.steps[-1]) < at.FINISHED_SHARE * metrics.total_steps


def _finite(metrics: Metrics, name: str) -> tuple[Array, Array]:
    rows = Rows.of(metrics.get(name))
    good = np.isfinite(rows.values) & np.isfinite(rows.steps)
    return rows.steps[good], rows.values[good]
