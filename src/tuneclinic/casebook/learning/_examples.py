"""Builders of small evidence for the examples of this folder and of `numerics`. Deterministic and cheap."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic import examples
from tuneclinic.sections import (
    Attempt,
    Attempts,
    Crash,
    CrashError,
    Data,
    Log,
    LogLine,
    Metrics,
    Model,
    Output,
    Outputs,
    Script,
    ScriptFact,
    Series,
    Setting,
    Settings,
)
from tuneclinic.vocabulary import NAMES

Lazy = examples.Lazy
Array = np.ndarray[Any, np.dtype[Any]]


def jitter(points: int, scale: float, seed: float = 0.0) -> Array:
    """Noise between -scale and scale that is the same in every process."""
    wave = np.sin((np.arange(points) + seed) * 12.9898) * 43758.5453
    return np.asarray(scale * (2 * (wave - np.floor(wave)) - 1))


def falling(points: int = 200, start: float = 2.0, end: float = 0.9, noise: float = 0.05, speed: float = 4.0) -> Array:
    """A healthy curve: fast at first, then slower; `speed` is in e-foldings over the run."""
    return end + (start - end) * np.exp(-speed * np.arange(points) / points) + jitter(points, noise)


def rough(points: int = 200, start: float = 2.0, end: float = 1.5, size: float = 1.5) -> Array:
    """A falling curve whose rows differ by up to e to the `size`, as single rows of mixed difficulty do."""
    return falling(points, start, end, 0.0) * np.exp(jitter(points, size))


def level(points: int = 200, at: float = 2.0, noise: float = 0.02) -> Array:
    """A curve that learns nothing."""
    return at + jitter(points, noise)


def blows_up(points: int = 200, at: int = 40, start: float = 1.6, end: float = 9.0, noise: float = 0.05) -> Array:
    """Falls a little, then climbs at step `at` and stays up."""
    steps = np.arange(points)
    rise = (end - start) / (1 + np.exp(-(steps - at) / 3.0))
    return start - 0.3 * (1 - np.exp(-steps / 10.0)) + rise + jitter(points, noise)


def then(values: Array, tail: Any, at: int) -> Array:
    """`values` with everything from index `at` on replaced."""
    held = np.array(values, dtype=np.float64)
    held[at:] = tail
    return held


def peaked(points: int = 200, peak: float = 2e-4, warmup: int = 10) -> Array:
    """A learning rate that warms up and decays by a cosine to near zero."""
    steps = np.arange(points, dtype=np.float64)
    decay = 0.5 * (1 + np.cos(np.pi * np.clip((steps - warmup) / max(1, points - warmup), 0, 0.97)))
    return peak * np.where(steps < warmup, (steps + 1) / (warmup + 1), decay)


def ran(*, kind: str = "causal-lm", every: float = 1.0, **values: Any) -> Metrics:
    """A log: one series a keyword; `grad_norm=…`, `rewards__chosen=…` for `rewards/chosen`. A pair is (steps, values)."""
    held = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            held[name.replace("__", "/")] = Series.of(value[1], value[0])
        else:
            points = np.asarray(value, dtype=np.float64)
            held[name.replace("__", "/")] = Series.of(points, every * np.arange(1, len(points) + 1))
    return Metrics(held, kind=kind, source="log")


def resumed(points: int = 200, at: int = 120, factor: float = 1.0, back: float = 0.0) -> Metrics:
    """A run that was resumed at row `at`: the rate warms up anew, the loss changes by `factor`, the epoch goes back by `back`."""
    loss = falling(points, 2.0, 0.9, 0.03)
    loss[at:] = loss[at:] * (1 + (factor - 1) * np.exp(-np.arange(points - at) / 60.0))
    epoch = 3 * np.arange(1, points + 1) / points
    epoch[at:] -= back
    rate = np.concatenate([peaked(2 * points, warmup=5)[:at], peaked(points - at, warmup=10)])
    return ran(loss=loss, epoch=epoch, learning_rate=rate)


def configured(framework: str = "transformers", **values: Any) -> Settings:
    """Settings as read from `config.yaml`, a line each."""
    held = {}
    for line, (name, value) in enumerate(values.items(), 1):
        key = (NAMES[name].key(framework) if name in NAMES else "") or name
        held[name] = Setting(value, f"config.yaml:{line}", "config.yaml", key)
    return Settings(held, framework)


def logged(*texts: str) -> Log:
    """A log of these lines."""
    return Log(tuple(LogLine(text, f"train.log:{number}", "train.log") for number, text in enumerate(texts, 1)), len(texts))


def scripted(*facts: str, checked: tuple[str, ...] = (), quote: str = "") -> Script:
    """A script with these facts, and clean of the other checks."""
    held = tuple(ScriptFact(name, quote or name, 10 + number, "train.py") for number, name in enumerate(facts))
    return Script(held, frozenset((*facts, *checked)), ("train.py",))


def crashed(kind: str, message: str, *frames: str, phase: str = "") -> Crash:
    """A run that ended with one error."""
    return Crash((CrashError(kind, message, "train.log:99", "train.log", frames=frames, phase=phase),))


def tried(*attempts: tuple[str, dict[str, Any], float, float]) -> Attempts:
    """Sibling runs: name, settings, first and last loss."""
    return Attempts(tuple(Attempt(name, settings, first, last) for name, settings, first, last in attempts))


def counted(rows: int, **statistics: float) -> Data:
    """A data set of which every row was counted."""
    return Data("messages", rows, rows, sources=("train.jsonl",), statistics=statistics)


def modelled(**values: Any) -> Model:
    """A model as its configuration and the log describe it."""
    return Model(**values)


def answered_blindly(text: str = "A normal chest X-ray.") -> Outputs:
    """One answer for five pictures with different references."""
    references = ("pneumonia", "fracture", "normal", "effusion", "nodule")
    return Outputs(
        tuple(
            Output("<image>\nWhat is the finding?", text, f"outputs.jsonl row {row}", "outputs.jsonl", ref)
            for row, ref in enumerate(references, 1)
        )
    )


def answered_seeing() -> Outputs:
    """Answers that follow the picture."""
    references = ("pneumonia", "fracture", "normal", "effusion", "nodule")
    return Outputs(
        tuple(
            Output("<image>\nWhat is the finding?", ref, f"outputs.jsonl row {row}", "outputs.jsonl", ref)
            for row, ref in enumerate(references, 1)
        )
    )
