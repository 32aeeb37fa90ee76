"""The loss picture: what the template draws, as numbers in the picture's own coordinates."""

from __future__ import annotations

import math

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import measured_loss
from tuneclinic.diagnosis import Diagnosis
from tuneclinic.sections import Series
from tuneclinic.values import dataclass

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 14, 26
MOST_POINTS = 400
"""Points drawn: more than one a pixel of the plot cannot be seen. Each stands for a bucket and shows its extremes."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One labelled place on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A loss curve with its axes, the evaluation points and the first bad step, all in pixels."""

    path: str
    evaluation: str
    evaluation_points: tuple[tuple[float, float], ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    bad_at: float | None
    bad_step: str
    missing: tuple[float, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def draw(diagnosis: Diagnosis) -> Picture | None:
    """The picture of a run's training loss; None where fewer than two finite points were read."""
    metrics = diagnosis.evidence.metrics if diagnosis.evidence else None
    loss = measured_loss(metrics) if metrics else None
    if metrics is None or loss is None or np.isfinite(loss.values).sum() < 2:
        return None
    evaluation = metrics.get("eval_loss")
    finite = loss.values[np.isfinite(loss.values)]
    shown = finite if evaluation is None else np.concatenate([finite, evaluation.values[np.isfinite(evaluation.values)]])
    first, last = float(loss.steps.min()), float(loss.steps.max())
    scale = _scale(shown, first, max(last, first + 1))
    bad = next((step for sighting in diagnosis.seen if (step := sighting.first_step) is not None and step > first), None)
    missing = loss.steps[~np.isfinite(loss.values)]
    return Picture(
        path=scale.path(_thinned(loss)),
        evaluation=scale.path(_thinned(evaluation)) if evaluation is not None else "",
        evaluation_points=tuple(scale.points(evaluation)) if evaluation is not None and len(evaluation) <= 40 else (),
        across=tuple(Tick(scale.x(value), f"{value:,.0f}") for value in _ticks(first, last, 6)),
        up=tuple(Tick(scale.y(value), _short(value)) for value in scale.levels()),
        bad_at=scale.x(bad) if bad is not None and first <= bad <= last else None,
        bad_step=f"{bad:g}" if bad is not None else "",
        missing=tuple(scale.x(float(step)) for step in missing[:: max(1, len(missing) // 60)]),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    first: float
    last: float
    low: float
    high: float
    logarithmic: bool = False

    def levels(self) -> list[float]:
        """The labelled places of the upright axis."""
        if not self.logarithmic:
            return _ticks(self.low, self.high, 4)
        powers = range(math.ceil(self.low), math.floor(self.high) + 1)
        return [10.0**power for power in list(powers)[:: max(1, len(powers) // 4)]]

    def x(self, step: float) -> float:
        return round(LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.low
        inside = min(max(value, self.low), self.high)
        return round(HEIGHT - BOTTOM - (inside - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM), 1)

    def points(self, series: Series) -> list[tuple[float, float]]:
        return [
            (self.x(float(step)), self.y(float(value)))
            for step, value in zip(series.steps, series.values, strict=True)
            if math.isfinite(value) and self.first <= step <= self.last
        ]

    def path(self, series: Series) -> str:
        return "M" + " L".join(f"{x} {y}" for x, y in self.points(series))


EXPLODED = 100.0
"""Times the median of the positive values from which the highest is drawn on a logarithmic axis: a normal fall spans a factor of 30."""


def _scale(values: np.ndarray, first: float, last: float) -> _Scale:
    """The axes: a loss that exploded is drawn on a logarithmic one, where all else would lie flat on the ground."""
    low, high = float(values.min()), float(values.max())
    positive = values[values > 0]
    if len(positive) and high > EXPLODED * float(median(positive)):
        return _Scale(first, last, math.log10(float(positive.min())) - 0.3, math.log10(high) + 0.2, logarithmic=True)
    air = (high - low) * 0.05 or max(abs(high), 1.0) * 0.05
    return _Scale(first, last, low - air if low < 0 else max(0.0, low - air), high + air)


def _short(value: float) -> str:
    """A label of at most five characters."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size > 1e3):
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _thinned(series: Series) -> Series:
    """At most `MOST_POINTS` points that keep the extremes of every bucket."""
    count = len(series)
    if count <= MOST_POINTS:
        return series
    keep: list[int] = []
    for bucket in np.array_split(np.arange(count), MOST_POINTS // 2):
        values = np.where(np.isfinite(series.values[bucket]), series.values[bucket], np.nan)
        if np.isnan(values).all():
            continue
        keep.extend(sorted({int(bucket[np.nanargmin(values)]), int(bucket[np.nanargmax(values)])}))
    return Series(series.steps[keep], series.values[keep], series.source)


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round places on an axis: multiples of 1, 2 or 5 times a power of ten."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    start = math.ceil(low / step)
    return [round(number * step, 10) for number in range(start, math.floor(high / step) + 1)]
