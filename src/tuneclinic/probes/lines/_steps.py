"""Steps of rows that print none: the Trainer's dictionaries name an epoch only."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.sections.training import Array

ROUNDED = 0.005
"""Half the last digit of an epoch printed with two decimals, as older Trainers do."""
DECIMALS, DIGITS = 0.0005, 0.0005
"""Half the last digit of a speed: old Trainers print three decimals, new ones four digits."""


def total_of(summary: Mapping[str, float], rows: int) -> float | None:
    """Steps of a run that printed neither its plan nor a bar: run time times steps per second, where enough digits are printed to tell the step."""
    seconds, speed = summary.get("train_runtime", math.nan), summary.get("train_steps_per_second", math.nan)
    if not (math.isfinite(seconds * speed) and seconds > 0 and speed > 0):
        return None
    total = round(seconds * speed)
    error = seconds * max(DECIMALS, DIGITS * speed)
    return float(total) if error < 0.5 and total >= rows and abs(seconds * speed - total) <= error + 0.1 else None


def filled(place: Array) -> Array:
    """Steps with gaps drawn through along the rows; unchanged where fewer than two are known."""
    known = np.flatnonzero(~np.isnan(place))
    if len(known) == len(place) or len(known) < 2:
        return place
    rows = np.arange(len(place), dtype=np.float64)
    result = np.array(np.interp(rows, known, place[known]))
    first = (place[known[1]] - place[known[0]]) / (known[1] - known[0])
    result[: known[0]] = place[known[0]] - first * (known[0] - rows[: known[0]])
    last = (place[known[-1]] - place[known[-2]]) / (known[-1] - known[-2])
    result[known[-1] + 1 :] = place[known[-1]] + last * (rows[known[-1] + 1 :] - known[-1])
    return result if result[0] >= 0 else np.maximum(result, 0)


def derived(epoch: Array, bars: Array, total: float | None, epochs: float | None, *, finished: bool) -> Array | None:
    """Steps of rows without any; None where nothing tells.

    Args:
        epoch: The rows' epochs, NaN where not printed.
        bars: The step of the progress bar beside each row, NaN where there is none.
        total: Optimisation steps of the whole run.
        epochs: Epochs of the whole run.
        finished: Whether the run reached its end.
    """
    rows = np.arange(1, len(epoch) + 1, dtype=np.float64)
    by_epoch = _by_epoch(epoch, rows, total, epochs)
    if by_epoch is not None:
        return by_epoch
    by_bar = _by_bar(bars, rows)
    if by_bar is not None:
        return by_bar
    if finished and total and total >= len(rows) > 1:
        every = total // len(rows)
        if total // every == len(rows):
            return rows * every
    return None


def _by_epoch(epoch: Array, rows: Array, total: float | None, epochs: float | None) -> Array | None:
    if (
        not total
        or not epochs
        or not math.isfinite(epochs)
        or epochs < 0
        or len(rows) < 2
        or np.isnan(epoch).any()
        or epoch.max() <= epoch.min()
    ):
        return None
    per_epoch = total / epochs
    parts = [_of_epochs(part * per_epoch, per_epoch) for part in _stretches(epoch, epoch)]
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _stretches(values: Array, position: Array) -> list[Array]:
    """`values` cut where `position` goes back, as it does after a resume."""
    return list(np.split(values, np.flatnonzero(np.diff(position) < 0) + 1))


def _of_epochs(printed: Array, per_epoch: float) -> Array | None:
    """Whole steps for steps known as closely as an epoch is printed."""
    steps = np.asarray(np.round(printed))
    if len(printed) < 2:
        return steps
    every = max(1.0, float(np.round((printed[-1] - printed[0]) / (len(printed) - 1))))
    offset = float(np.round((printed[0] - every) / every)) * every
    regular = np.arange(1, len(printed) + 1) * every + max(offset, 0.0)
    if np.abs(regular - printed).max() <= ROUNDED * per_epoch + 1:
        return np.asarray(regular)
    return steps if (np.diff(steps) > 0).all() else None


def _by_bar(bars: Array, rows: Array) -> Array | None:
    known = np.flatnonzero(~np.isnan(bars))
    back = known[1:][np.diff(bars[known]) < 0]
    parts = [_of_bar(part, np.arange(1, len(part) + 1, dtype=np.float64)) for part in np.split(bars, back)] if len(rows) else []
    found = [part for part in parts if part is not None]
    return np.concatenate(found) if found and len(found) == len(parts) else None


def _of_bar(bars: Array, rows: Array) -> Array | None:
    """The steps of rows between two resumes, where the bar beside them moves on by the same number each row."""
    known = ~np.isnan(bars)
    if known.sum() < 2:
        return None
    at, steps = rows[known], bars[known]
    every = float(median(np.diff(steps) / np.diff(at)))
    if every < 1 or every != round(every):
        return None
    offset = float(median(steps - at * every))
    guess = at * every + offset
    if np.mean(np.abs(guess - steps) < 0.5) < 0.8 or offset + every < 0:
        return None
    return np.asarray(rows * every + offset)
