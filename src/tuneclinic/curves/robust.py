"""Robust statistics on plain arrays: jitter, running medians, lines through block medians.

All functions take float64 arrays without NaN and work in whole-array operations.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import thresholds as at

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def thin(values: Array) -> Array:
    """Every k-th value, so that at most `SAMPLE` are left: a median of 65,536 is exact to half a percent of the noise."""
    return values[:: max(1, len(values) // at.SAMPLE)]


def sigma(values: Array) -> float:
    """Robust standard deviation: 1.4826 times the median absolute deviation; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    values = thin(values)
    return float(at.MAD_TO_SIGMA * median(np.abs(values - median(values))))


def jitter(values: Array) -> float:
    """Robust standard deviation of the noise from row to row, from differences, so that a trend does not count.

    Falls back to the mean absolute difference where more than half of the differences are equal (rounded logs).
    """
    if len(values) < 3:
        return 0.0
    every = max(1, len(values) // at.SAMPLE)
    steps = values[1::every] - values[:-1:every]
    found = sigma(steps)
    if found == 0.0:
        found = at.MEDIAN_ERROR * float(np.mean(np.abs(steps - median(steps))))
    return found / float(np.sqrt(2))


def tail(values: Array, share: float = at.TAIL_SHARE) -> float:
    """Median of the last `share` of the values, at least three."""
    return float(median(values[-max(at.TAIL_POINTS, int(len(values) * share)) :]))


def head(values: Array, share: float = at.TAIL_SHARE) -> float:
    """Median of the first `share` of the values, at least three."""
    return float(median(values[: max(at.TAIL_POINTS, int(len(values) * share))]))


def block_medians(values: Array, blocks: int) -> tuple[Array, Array]:
    """Centres (as row indices) and medians of about `blocks` equal blocks, one row a block at the least."""
    count = len(values)
    size = max(1, count // max(1, blocks))
    whole = count // size * size
    table = values[:whole].reshape(-1, size)
    return np.arange(len(table)) * size + (size - 1) / 2, median(table, axis=1)


def running_median(values: Array, window: int) -> Array:
    """Median over a centred window, the ends mirrored; of long series by block medians, drawn through linearly."""
    count = len(values)
    if count > at.EXACT_POINTS:
        every = max(1, count // (at.BLOCK_SAMPLE * at.BLOCKS))
        centres, medians = block_medians(values[::every], at.BLOCKS)
        centres = centres * every
        narrow = max(1, int(window * len(medians) / count)) | 1
        if narrow > 1:
            medians = running_median(medians, narrow)
        return np.interp(np.arange(count), centres, medians)
    half = min(window // 2, max(0, (count - 1) // 2))
    if half == 0:
        return values.astype(np.float64)
    padded = np.pad(values, half, mode="reflect")
    return np.asarray(median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=-1))


def smooth(values: Array) -> tuple[Array, float]:
    """The smoothed curve, and how many independent rows stand behind each of its points."""
    count = len(values)
    window = int(np.clip(count // 20, 5, 41)) | 1
    rows = window if count <= at.EXACT_POINTS else min(window, at.BLOCK_SAMPLE)
    return running_median(values, window), float(min(rows, count))


def line(values: Array) -> tuple[float, float]:
    """Change over the whole length of a Theil-Sen line through block medians, and its standard error.

    Sen 1968. The error is that of a least-squares slope for independent noise, times sqrt(pi/2) for the medians.
    """
    count = len(values)
    thinned = thin(values)
    centres, medians = block_medians(thinned, at.TREND_BLOCKS)
    centres = centres * ((count - 1) / max(1, len(thinned) - 1))
    if len(medians) < 3:
        return float(values[-1] - values[0]) if count else 0.0, float("inf")
    first, second = np.triu_indices(len(medians), 1)
    slope = float(median((medians[second] - medians[first]) / (centres[second] - centres[first])))
    noise = jitter(values)
    error = at.MEDIAN_ERROR * noise * float(np.sqrt(12 / count))
    return slope * (count - 1), error


def order(values: Array, blocks: int = 8) -> float:
    """Spearman's rank correlation of block medians with time: 1 for a steady rise, -1 for a steady fall."""
    _, medians = block_medians(thin(values), blocks)
    if len(medians) < 4:
        return 0.0
    ranks = np.argsort(np.argsort(medians)).astype(np.float64)
    return float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])
