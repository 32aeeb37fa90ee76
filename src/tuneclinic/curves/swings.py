"""Does the loss swing: oscillation, spikes, periods, stairs at epoch borders."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic.arrays import median, percentile
from tuneclinic.curves import robust
from tuneclinic.curves import thresholds as at
from tuneclinic.curves.robust import Array
from tuneclinic.curves.rows import REINFORCEMENT, Curve, Rows
from tuneclinic.sections import Metrics

SPIKES_KEPT = 50
"""Spike steps kept in the shape: more than a report shows."""
PEAKS = 100
"""Peaks of the autocorrelation that are looked at."""
SAME_STRENGTH = 0.95
"""Of periods about as strong as the strongest the shortest is meant: its multiples are as strong."""
LONG_BLOCKS = 128
"""Blocks in the search for long periods."""
SKIPPED_SHARE = 0.1
"""Share of rows at the start that is left out: the first fall is no swing."""


def swings(curve: Curve, *, stairs: bool) -> dict[str, Any]:
    """Oscillation, spikes and period of the loss. A loss that falls in stairs has its period from the epochs and no swings."""
    if curve.kind == "diffusion" or len(curve) < at.ALTERNATE_POINTS:
        return {}
    if curve.kind in REINFORCEMENT:
        return _reinforcement(curve)
    skipped = int(len(curve) * SKIPPED_SHARE)
    logs, steps = curve.logs[skipped:], curve.steps[skipped:]
    window = int(np.clip(len(logs) // 5, 9, 151)) | 1
    rest = logs - robust.running_median(logs, window)
    spikes = _spikes(rest, logs)
    period = None if stairs else _period(rest) or _long_period(logs)
    rough = curve.level > 1.0 and curve.token_loss and len(rest) >= at.SWING_POINTS and robust.sigma(rest) > at.ROUGH_SIZE
    slow = not stairs and _slow(rest)
    gap = float(median(np.diff(steps))) if len(steps) > 1 else 1.0
    return {
        "oscillates": bool(slow or _alternates(rest) or rough or len(spikes) >= at.SPIKE_COUNT or period is not None),
        "spikes": tuple(float(steps[index]) for index in spikes[:SPIKES_KEPT]),
        "period": None if period is None else period * gap,
    }


def _long_period(logs: Array) -> float | None:
    """A period of hundreds of rows: the same search over block medians, around a straight line."""
    size = len(logs) // LONG_BLOCKS
    if size < 2:
        return None
    centres, medians = robust.block_medians(logs, LONG_BLOCKS)
    change, _ = robust.line(medians)
    rest = medians - change * np.arange(len(medians)) / max(1, len(medians) - 1)
    found = _period(rest - median(rest))
    return None if found is None else found * float(centres[1] - centres[0])


def _slow(rest: Array) -> bool:
    """Rows that move together, up and down, by much more than their noise."""
    if len(rest) < at.SWING_POINTS:
        return False
    blocks = rest[: len(rest) // 5 * 5].reshape(-1, 5).mean(axis=1)
    noise = robust.jitter(rest)
    low, high = percentile(blocks, (5, 95))
    return bool(5 * robust.sigma(blocks) ** 2 > at.SWING_RATIO * noise**2 and high - low > at.SWING_SIZE)


def _alternates(rest: Array) -> bool:
    """Rows that jump up and down in turn."""
    if len(rest) < at.ALTERNATE_POINTS:
        return False
    bound = 4 * robust.sigma(rest)
    held = np.clip(rest, -bound, bound)
    power = float(np.dot(held, held))
    if power == 0:
        return False
    correlation = float(np.dot(held[1:], held[:-1])) / power
    limit = min(at.ALTERNATE_CORRELATION, -4 / float(np.sqrt(len(rest))))
    return correlation < limit and robust.sigma(rest) > at.ALTERNATE_SIZE


def _spikes(rest: Array, logs: Array) -> Array:
    """Indices of peaks far above the level beside them; of neighbouring rows the highest."""
    noise = max(robust.jitter(logs), robust.sigma(rest))
    tall = rest > max(at.SPIKE_SIGMAS * noise, float(np.log(at.SPIKE_RATIO)))
    found = np.flatnonzero(tall)
    if not len(found):
        return found
    groups = np.split(found, np.flatnonzero(np.diff(found) > 3) + 1)
    return np.array([group[int(np.argmax(rest[group]))] for group in groups[: 4 * SPIKES_KEPT]])


def _period(rest: Array) -> float | None:
    """Period in rows of a pattern that returns, by autocorrelation and the folded profile."""
    count = len(rest)
    if count < at.PERIOD_POINTS:
        return None
    rest = rest[-65_536:]
    count = len(rest)
    bound = 12 * robust.sigma(rest)
    held = np.clip(rest, -bound, bound) if bound else rest
    held = held - held.mean()
    size = 1 << (2 * count - 1).bit_length()
    power = np.abs(np.fft.rfft(held, size)) ** 2
    correlation = np.fft.irfft(power, size)[: count // 3]
    if correlation[0] <= 0:
        return None
    correlation = correlation / correlation[0]
    need = max(at.PERIOD_CORRELATION, 5 / float(np.sqrt(count)))
    inner = correlation[3:-1]
    peaks = np.flatnonzero((inner > need) & (inner >= correlation[2:-2]) & (inner >= correlation[4:])) + 3
    dips = np.minimum.accumulate(correlation)
    valid = []
    for lag in peaks[:PEAKS]:
        twice = correlation[2 * lag - 1 : 2 * lag + 2] if 2 * lag + 1 < len(correlation) else np.empty(0)
        if dips[lag] < need / 2 and (not len(twice) or twice.max() > need / 2) and _folded(rest, int(lag)) > at.PERIOD_SIZE:
            valid.append((float(correlation[lag]) * count / (count - lag), float(lag)))
    best = max(valid, default=(0.0, 0.0))[0]
    return next((lag for strength, lag in valid if strength >= SAME_STRENGTH * best), None)


def _folded(rest: Array, lag: int) -> float:
    """Size of the pattern that repeats every `lag` rows: range of the median profile."""
    whole = len(rest) // lag * lag
    if whole < 3 * lag:
        return 0.0
    profile = median(rest[:whole].reshape(-1, lag), axis=0)
    return float(profile.max() - profile.min())


def _reinforcement(curve: Curve) -> dict[str, Any]:
    """A policy-gradient loss is about 0 with noise; only a peak far outside says something."""
    sizes = np.abs(curve.values)
    tall = np.flatnonzero(sizes > max(at.REINFORCE_PEAK, at.REINFORCE_RATIO * float(median(sizes))))
    steps = tuple(float(curve.steps[index]) for index in tall[:SPIKES_KEPT])
    return {"oscillates": bool(len(tall)), "spikes": steps}


def stairs(curve: Curve, metrics: Metrics) -> bool:
    """Whether the loss steps down at epoch borders and not between them: it is learning the samples by heart."""
    epoch, present = Rows(curve.steps, curve.values).beside(Rows.of(metrics.get("epoch")))
    if present.sum() < 4 * at.STAIR_ROWS or not curve.token_loss:
        return False
    values, passed = robust.thin(curve.values[present]), robust.thin(epoch[present])
    borders = np.flatnonzero(np.floor(passed[1:] - 1e-9) > np.floor(passed[:-1] - 1e-9)) + 1
    borders = borders[(borders >= at.STAIR_ROWS) & (borders <= len(values) - at.STAIR_ROWS)]
    if not len(borders) or len(borders) > len(values) // (2 * at.STAIR_ROWS):
        return False
    rows = int(np.clip(np.min(np.diff(np.concatenate(([0], borders, [len(values)])))) // 4, at.STAIR_ROWS, 40))
    falls, drifts = [], []
    for border in borders[:100]:
        before, after = values[max(0, border - rows) : border], values[border : border + rows]
        earlier = values[max(0, border - 2 * rows) : max(1, border - rows)]
        scale = max(float(median(before)), 1e-12)
        falls.append((float(median(before)) - float(median(after))) / scale)
        drifts.append((float(median(earlier)) - float(median(before))) / scale)
    levels = np.array([median(part) for part in np.split(values, borders[:100])])
    if float(median(1 - levels[1:] / np.maximum(levels[:-1], 1e-12))) < at.STAIR_FALL / 2:
        return False  # the pattern of each epoch is the same: data in blocks, not learning by heart
    error = at.MEDIAN_ERROR * curve.noise / max(curve.level, 1e-12) * np.sqrt(2 / rows / len(falls))
    fall = float(median(falls))
    return bool(fall > at.STAIR_FALL and fall > 5 * error and fall > 2 * float(median(drifts)))
