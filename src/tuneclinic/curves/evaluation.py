"""What the evaluation loss says beside the training loss, and what preference and RL series say."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import robust
from tuneclinic.curves import thresholds as at
from tuneclinic.curves.robust import Array
from tuneclinic.curves.rows import PREFERENCE, REINFORCEMENT, Curve, Rows
from tuneclinic.sections import Metrics


def evaluation(curve: Curve, metrics: Metrics) -> dict[str, Any]:
    """Overfitting and erratic evaluation."""
    rows = Rows.of(metrics.get("eval_loss"))
    fields: dict[str, Any] = _summary(metrics)
    if not len(rows):
        return fields
    good = np.isfinite(rows.values)
    steps, values = rows.steps[good], rows.values[good]
    if bool((~good).any()) and len(curve):
        fields["eval_erratic"] = True
    if len(values) >= 3 and len(set(values.tolist())) == 1:
        fields["eval_constant"] = True
    if len(values) >= 3 and curve.kind not in REINFORCEMENT:
        fields |= _overfits(steps, values, curve)
    if len(values) >= at.ERRATIC_POINTS and erratic(values) and curve.kind != "diffusion":
        fields["eval_erratic"] = True
        fields.pop("overfits_from", None)
        fields.pop("eval_rise", None)
    return fields


def _summary(metrics: Metrics) -> dict[str, Any]:
    value = metrics.summary.get("eval_loss")
    if value is None or not np.isfinite(value) or not 0 <= value <= at.NEAR_ZERO_EVAL:
        return {}
    return {"near_zero_eval": float(value)}


def eval_noise(values: Array) -> float:
    """Jitter of the evaluations from second differences, so that neither a fall nor a turn counts; 0 for fewer than four."""
    if len(values) < 4:
        return 0.0
    return at.MAD_TO_SIGMA * float(median(np.abs(np.diff(values, 2)))) / float(np.sqrt(6))


def _overfits(steps: Array, values: Array, curve: Curve) -> dict[str, Any]:
    low = int(np.argmin(values))
    after = values[low + 1 :]
    if not len(after) or values[low] <= 0:
        return {}
    end = float(median(values[-3:])) if len(after) >= 5 else float(values[-1])
    rise = (end - float(values[low])) / float(values[low])
    noise = eval_noise(values) / float(values[low])
    need = max(at.OVERFIT_RISE if len(values) >= 5 else at.OVERFIT_RISE_SHORT, at.OVERFIT_SIGMAS * noise)
    if rise < need or float(median(after) - values[low]) < 0.3 * rise * float(values[low]):
        return {}
    if len(after) == 1 and rise < 3 * need:
        return {}
    if not _train_falls(curve, float(steps[low]), len(values)):
        return {}
    return {"overfits_from": float(steps[low]), "eval_rise": rise}


def _train_falls(curve: Curve, step: float, evaluations: int) -> bool:
    """Whether training falls from the evaluation's turn to the end: compared over one evaluation interval each."""
    span = max(at.TAIL_POINTS, len(curve) // max(2, evaluations))
    turn = int(np.searchsorted(curve.steps, step, side="right"))
    before = curve.values[max(0, turn - span) : max(turn, min(span, len(curve)))]
    after = curve.values[-span:]
    if len(before) < 2 or turn >= len(curve):
        return False
    level = float(median(before))
    error = at.MEDIAN_ERROR * curve.noise * float(np.sqrt(1 / len(before) + 1 / len(after)))
    fall = level - float(median(after))
    return fall > at.OVERFIT_TRAIN_FALL * level and fall > 2 * error


def erratic(values: Array) -> bool:
    """Whether evaluations jump up and down by far more than a fixed set can: training noise does not reach it."""
    level = float(median(np.abs(values)))
    if level <= 0:
        return False
    steps = np.diff(values)
    turns = float(np.mean(np.sign(steps[1:]) != np.sign(steps[:-1])))
    spread = float(np.std(np.diff(values, 2))) / float(np.sqrt(6))
    return turns >= at.ERRATIC_TURNS and (eval_noise(values) + spread) / 2 / level > at.ERRATIC_SIZE


def preference(metrics: Metrics, kind: str) -> dict[str, Any]:
    """Margin, rewards and KL of preference and RL runs."""
    fields: dict[str, Any] = {}
    margins = _finite(metrics, "rewards/margins")
    chosen, rejected = _finite(metrics, "rewards/chosen"), _finite(metrics, "rewards/rejected")
    if not len(margins) and len(chosen) and len(chosen) == len(rejected):
        margins = chosen - rejected
    if kind in PREFERENCE and len(margins) >= 10:
        fields["margin"] = robust.tail(margins, 0.1)
        error = at.MEDIAN_ERROR * robust.jitter(margins) / float(np.sqrt(max(3, len(margins) // 10)))
        fields["margin_flat"] = (
            abs(fields["margin"]) < max(at.MARGIN_FLAT, 2 * error) and abs(fields["margin"]) < 3 * at.MARGIN_FLAT
        )
    if len(chosen) >= 10 and len(chosen) == len(rejected):
        fields["chosen_falls"] = _falls_together(chosen, rejected)
    accuracies = _finite(metrics, "rewards/accuracies")
    unseen, epochs = _finite(metrics, "eval_rewards/accuracies"), _finite(metrics, "epoch")
    once = len(epochs) > 0 and float(epochs.max()) <= 1  # every pair was new when it was ranked
    holds = once or (len(unseen) > 0 and unseen[-1] >= at.ACCURACY_HOLDS)
    if len(accuracies) >= 10 and robust.tail(accuracies, 0.2) >= at.ACCURACY_SATURATED and not holds:
        fields["accuracy_saturated"] = True
    moved = max((abs(robust.tail(values, 0.2)) for values in (chosen, rejected) if len(values) >= 5), default=0.0)
    if kind == "kto" and moved > 3 * at.MARGIN_FLAT:
        fields["no_learning"] = False  # KTO's loss stands at 0.5 for as long as its reference point moves along with the rewards
    return fields | _kl(metrics)


def _falls_together(chosen: Array, rejected: Array) -> bool:
    """Whether chosen and rejected rewards both end far below where they began, the chosen one by more than the margin gained."""
    chosen_fall = robust.head(chosen, 0.1) - robust.tail(chosen, 0.1)
    rejected_fall = robust.head(rejected, 0.1) - robust.tail(rejected, 0.1)
    gained = rejected_fall - chosen_fall
    return chosen_fall > max(at.CHOSEN_FALL, gained) and rejected_fall > 0


def _kl(metrics: Metrics) -> dict[str, Any]:
    rows = next(
        (Rows.of(series) for name in ("kl", "objective/kl", "actor/ppo_kl") if (series := metrics.get(name))), Rows.of(None)
    )
    good = np.isfinite(rows.values)
    steps, values = rows.steps[good], rows.values[good]
    if len(values) < 10:
        return {}
    smoothed, _ = robust.smooth(values)
    early = max(float(median(np.abs(values[: max(5, len(values) // 5)]))), 1e-6)
    high = smoothed > max(at.KL_HIGH, at.KL_BLOW_UP * early)
    low = np.flatnonzero(~high)
    start = int(low[-1]) + 1 if len(low) else 0
    return {"kl_blows_up_from": float(steps[start])} if len(values) - start >= at.STRETCH_ROWS else {}


def _finite(metrics: Metrics, name: str) -> Array:
    values = Rows.of(metrics.get(name)).values
    return values[np.isfinite(values)]
