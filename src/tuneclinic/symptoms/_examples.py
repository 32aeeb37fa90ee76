"""Small made-up series for the symptoms' examples: exact arithmetic, so that an example is the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic.evidence import Evidence
from tuneclinic.sections import Metrics, Series

Array = np.ndarray[Any, np.dtype[Any]]


def jitter(count: int, scale: float = 0.03) -> Array:
    """`count` values spread evenly in ± `scale` without visible order: the fractional part of a fast sine."""
    spread = np.sin(np.arange(1, count + 1) * 12.9898) * 43758.5453
    values: Array = (spread - np.floor(spread) - 0.5) * 2 * scale
    return values


def falling(count: int = 80, first: float = 2.4, last: float = 1.1, scale: float = 0.03) -> Array:
    """A loss that falls from `first` towards `last` with relative jitter."""
    course = last + (first - last) * np.exp(-np.arange(count) / (count / 4))
    values: Array = course * (1 + jitter(count, scale))
    return values


def flat(count: int = 80, level: float = 2.4, scale: float = 0.03) -> Array:
    """A loss that sits at `level` with relative jitter."""
    return level * (1 + jitter(count, scale))


def run(kind: str = "causal-lm", every: float = 10.0, source: str = "trainer_state.json", **series: Any) -> Evidence:
    """Evidence of a training log: `series` by name (`__` stands for `/`), a row each `every` steps.

    A learning rate that was on is added to a run that names none. A value may be a (values, steps) pair.
    """
    held: dict[str, Series] = {}
    for name, values in series.items():
        points, steps = values if isinstance(values, tuple) else (values, None)
        at = every * np.arange(1, len(points) + 1) if steps is None else steps
        held[name.replace("__", "/")] = Series.of(points, at, source)
    if "loss" in held and "learning_rate" not in held:
        held["learning_rate"] = Series.of(np.full(len(held["loss"]), 1e-4), held["loss"].steps, source)
    return Evidence(metrics=Metrics(held, kind=kind, source=source))
