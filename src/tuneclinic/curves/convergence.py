"""Does the loss fall: flat, stalled, diverging, near zero, repeating."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuneclinic.arrays import distinct, median, percentile
from tuneclinic.curves import robust
from tuneclinic.curves import thresholds as at
from tuneclinic.curves.robust import Array
from tuneclinic.curves.rows import REINFORCEMENT, Curve, Rows
from tuneclinic.sections import Metrics
from tuneclinic.values import dataclass

CANDIDATES = 64
"""Periods tried for exact repetition; each trial compares whole arrays."""


@dataclass(frozen=True)
class Flat:
    """Whether a stretch is flat, and at which level."""

    flat: bool
    level: float
    change: float


def numbers(curve: Curve) -> dict[str, Any]:
    """First, last, lowest, noise and drop."""
    if not len(curve):
        return {}
    smoothed, _ = curve.smoothed
    lowest = int(np.argmin(smoothed))
    first, last = float(curve.values[0]), robust.tail(curve.values)
    return {
        "first": first,
        "last": last,
        "lowest": float(smoothed[lowest]),
        "lowest_step": float(curve.steps[lowest]),
        "noise": curve.noise,
        "relative_noise": curve.noise / curve.level if curve.level > 0 else None,
        "drop": (first - last) / first if first else None,
    }


def flatness(values: Array) -> Flat:
    """Whether `values` neither rise nor fall, as far as their own noise lets one tell."""
    level = float(median(values)) if len(values) else 0.0
    if len(values) < at.FLAT_POINTS or level <= 0:
        return Flat(flat=False, level=level, change=0.0)
    change, error = robust.line(values)
    noise = robust.jitter(values) / level
    ends = (robust.head(values, 0.15) - robust.tail(values, 0.15)) / level
    _, blocks = robust.block_medians(robust.thin(values), 8)
    spread = float(blocks.max() - blocks.min()) / level
    block_error = at.MEDIAN_ERROR * noise / np.sqrt(max(1, len(values) // 8))
    flat = (
        noise < at.FLAT_RATIO_NOISE
        and error / level < at.FLAT_ERROR
        and abs(change) / level + error / level < at.FLAT_CHANGE + at.FLAT_ERROR / 2
        and abs(change) / level < at.FLAT_CHANGE
        and (-change < at.FLAT_SURE * level or -change < at.FLAT_SIGMAS * error)
        and ends < at.FLAT_CHANGE + 2 * error / level
        and spread < at.FLAT_CHANGE + 4 * block_error
    )
    return Flat(flat=bool(flat), level=level, change=change / level)


def stuck(curve: Curve, metrics: Metrics, vocabulary: int | None) -> dict[str, Any]:
    """Flat over the whole run, or stalled after a first fall; and whether the level is ln V or the token marginal."""
    uniform = math.log(vocabulary) if vocabulary and vocabulary > 1 else None
    fields: dict[str, Any] = {"uniform": uniform}
    if not len(curve):
        return fields
    if uniform is not None and curve.token_loss and curve.values[0] > uniform:
        fields["start_excess"] = float(curve.values[0]) - uniform
        fields["starts_too_high"] = fields["start_excess"] > at.START_EXCESS
    if curve.kind in REINFORCEMENT or curve.kind == "diffusion":
        return fields
    whole = flatness(curve.values)
    if whole.flat and not _eval_falls(metrics):
        fields |= {"no_learning": True, "level": whole.level, **_place(whole.level, uniform, curve)}
        return fields
    return fields | _stalled(curve, uniform)


def _stalled(curve: Curve, uniform: float | None) -> dict[str, Any]:
    """A loss that fell at first and then sits at a level no language has: only told where the level is high."""
    start = int(len(curve) * (1 - at.STALL_SHARE))
    end = flatness(curve.values[start:])
    if not end.flat or not curve.token_loss:
        return {}
    place = _place(end.level, uniform, curve)
    if not place:
        return {}
    smoothed, _ = curve.smoothed
    band = max(3 * curve.noise / 2, at.FLAT_CHANGE * end.level)
    above = np.flatnonzero(np.abs(smoothed[:start] - end.level) > band)
    begin = int(above[-1]) + 1 if len(above) else 0
    return {"stalled_from": float(curve.steps[begin]), "level": end.level, **place}


def _place(level: float, uniform: float | None, curve: Curve) -> dict[str, Any]:
    if uniform is None or not curve.token_loss:
        return {}
    if -at.UNIFORM_BELOW <= level - uniform <= at.UNIFORM_ABOVE:
        return {"at_uniform": True}
    if max(at.MARGINAL_SHARE * uniform, at.HIGH_LEVEL) <= level < uniform:
        return {"at_marginal": True}
    return {}


def _eval_falls(metrics: Metrics) -> bool:
    """Whether the evaluation loss falls clearly: then the model learns whatever the noisy training loss shows."""
    evaluations = Rows.of(metrics.get("eval_loss")).values
    evaluations = evaluations[np.isfinite(evaluations)]
    if len(evaluations) < 3 or evaluations[0] <= 0:
        return False
    return bool((evaluations[0] - evaluations[-1]) / evaluations[0] > at.FLAT_CHANGE and np.all(np.diff(evaluations) < 0))


def diverged(curve: Curve, *, ends_in_nan: bool) -> float | None:
    """Step from which the loss rises and stays up; None where it does not."""
    count = len(curve)
    if count < at.DIVERGE_POINTS or curve.kind in REINFORCEMENT or curve.kind == "diffusion":
        return None
    if count < at.FLAT_POINTS:
        return _short_rise(curve) if ends_in_nan or not _young(curve) else None
    smoothed, rows = curve.smoothed
    low = int(np.argmin(smoothed))
    end = robust.tail(curve.values, 0.1)
    rise = end - float(smoothed[low])
    error = at.MEDIAN_ERROR * max(curve.noise, robust.sigma(curve.values - smoothed)) / np.sqrt(rows)
    fallen = max(float(np.max(smoothed[: low + 1]) - smoothed[low]), 0.0)
    size = abs(float(smoothed[low]))
    if rise < at.DIVERGE_RISE * size or rise < at.DIVERGE_SIGMAS * error or rise < at.DIVERGE_OF_RANGE * fallen:
        return None
    high = smoothed[count // 10 :] > smoothed[low] + 0.5 * rise
    if int(np.sum(high[:-1] & ~high[1:])) >= at.DIVERGE_RETURNS:
        return None
    below = np.flatnonzero(smoothed <= smoothed[low] + 0.35 * rise)  # empty where the rise is too large for a number
    last_low = int(below[-1]) if len(below) else int(low)
    if count - 1 - last_low < max(at.STRETCH_ROWS - 1, count // 50):
        return None
    quiet = np.flatnonzero(smoothed[: last_low + 1] <= smoothed[low] + max(0.1 * rise, 2 * error))
    onset = min(int(quiet[-1]) + 1 if len(quiet) else last_low, count - 1)
    lately = smoothed[max(0, onset - max(10, count * 3 // 20)) : onset]
    if len(lately) and end < float(percentile(lately, 75)):
        return None  # a dip that ended, not a rise
    return float(curve.steps[onset])


def _short_rise(curve: Curve) -> float | None:
    """Divergence within fewer than 20 rows: a steady rise of the whole log, each third above the one before."""
    thirds = [float(median(part)) for part in np.array_split(curve.values, 3)]
    first, middle, last = thirds
    rise = last - first
    steady = first < middle < last and float(curve.values[-1]) > first
    noisy = at.MEDIAN_ERROR * curve.noise / float(np.sqrt(len(curve) / 3))
    if not steady or first <= 0 or rise < at.DIVERGE_RISE * first or rise < at.DIVERGE_SIGMAS / 2 * noisy:
        return None
    return float(curve.steps[int(np.argmin(curve.values[: len(curve) // 2])) + 1])


def _young(curve: Curve) -> bool:
    """A short log that starts at the loss of random weights: such runs show a hump in their first steps."""
    return float(curve.values[0]) > 9.0


def near_zero(curve: Curve) -> float | None:
    """Step from which a token loss stays at about 0."""
    if len(curve) < at.NEAR_ZERO_ROWS or not curve.token_loss:
        return None
    if robust.tail(curve.values) > at.NEAR_ZERO or float(np.min(curve.values)) < 0:
        return None
    smoothed, _ = curve.smoothed
    above = np.flatnonzero(smoothed > at.NEAR_ZERO)
    begin = int(above[-1]) + 1 if len(above) else 0
    if len(curve) - begin < at.NEAR_ZERO_ROWS:
        begin = len(curve) - at.NEAR_ZERO_ROWS
    return float(curve.steps[begin])


def repeats(curve: Curve) -> int | None:
    """Period in rows at which the same losses return to the last digit; 1 where every row is the same."""
    values = curve.values
    count = len(values)
    if count < 6 or curve.kind in REINFORCEMENT or not values.any():
        return None
    if (values == values[0]).all():
        return 1
    for lag in (np.flatnonzero(values[1:] == values[0]) + 1)[:CANDIDATES]:
        if lag > count // 2:
            return None
        if np.array_equal(values[lag:], values[:-lag]) and distinct(values[:lag]) == min(lag, 3):
            return int(lag)
        if lag >= 3 and np.array_equal(values[lag:], values[:-lag]):
            return int(lag)
    return None
