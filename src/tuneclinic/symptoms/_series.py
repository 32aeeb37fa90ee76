"""What the symptoms of a training log share: the run's shape, and its own numbers quoted with their places."""

from __future__ import annotations

import numpy as np

from tuneclinic.curves import Shape, shape, vocabulary_of
from tuneclinic.curves.rows import REINFORCEMENT
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.sections import Series
from tuneclinic.words import Text

NO_LIKELIHOOD = REINFORCEMENT | {"diffusion"}
"""Kinds of loss whose level says nothing: a policy loss is about 0 by construction, a denoising loss is flat and noisy."""

POLICY = pattern(r"reward|\bkl\b|/kl|advantage|clip|polic|entropy|critic|actor")
"""Names of series that stand beside a policy's loss."""
ENOUGH_POINTS = 8
"""Logged rows below which nothing is said about the course of a loss: the shortest healthy runs of the corpus have 4 to 6 rows
and their step-to-step jitter is of the size of their drop."""


def look(seen: Evidence) -> Shape:
    """The shape of the run's series, with ln V from the run's own vocabulary."""
    if seen.metrics is None:
        return Shape()
    return shape(seen.metrics, vocabulary_of(seen.model, seen.tokenizer))


def kind(seen: Evidence) -> str:
    """What the loss is of, as the log or the names of its series tell; "" where they do not."""
    return look(seen).kind


def policy(seen: Evidence) -> bool:
    """Whether the log prints what only a policy has: its loss may well read 0."""
    return seen.metrics is not None and any(POLICY.search(name) for name in seen.metrics.series)


def zero_at_once(seen: Evidence) -> bool:
    """Whether the loss reads exactly 0.0 from its first row on, before anything can have been learnt."""
    zero, loss = look(seen).zero_from, curve(seen)
    return zero is not None and loss is not None and zero <= float(loss.steps[0])


def curve(seen: Evidence, name: str = "loss") -> Series | None:
    """The series called `name`, None where it was not logged."""
    return seen.metrics.get(name) if seen.metrics is not None else None


def main_name(loss: Series | None, norm: Series | None) -> str:
    """Which series a NaN is looked for in: the loss, else the gradient norm, else the evaluation loss."""
    return "loss" if loss is not None else "grad_norm" if norm is not None else "eval_loss"


def long_enough(seen: Evidence) -> bool:
    """Whether the training loss has enough rows for its course to be judged, and a level that means something."""
    loss = curve(seen)
    return loss is not None and len(loss) >= ENOUGH_POINTS and kind(seen) not in NO_LIKELIHOOD


def index_of(series: Series, step: float) -> int:
    """The index of the logged point nearest to `step`."""
    distance = np.abs(series.steps - step)
    return int(np.nanargmin(distance)) if np.isfinite(distance).any() else 0


def number(value: float) -> str:
    """A value as a log would print it, four significant digits."""
    return f"{value:.4g}"


def row(name: str, series: Series, index: int) -> Exhibit:
    """One row of a series: `loss 0.0`, with its place."""
    return Exhibit(f"{name} {number(float(series.values[index]))}", series.where(index), series.source, section="metrics")


def point(name: str, series: Series, step: float) -> Exhibit:
    """The logged value nearest to `step`: `loss 0.0`, with its place."""
    return row(name, series, index_of(series, step))


def stated(text: Text, series: Series, step: float) -> Exhibit:
    """A sentence about a series, with the place of its point nearest to `step`."""
    return Exhibit(text, series.where(index_of(series, step)), series.source, section="metrics")


def course(name: str, series: Series) -> Exhibit:
    """From where to where a series went: its first and its last finite value."""
    finite = np.flatnonzero(np.isfinite(series.values))
    if not len(finite):
        return Exhibit(Text(f"{name}: no finite value", f"{name}：没有有限值"), series.source, series.source, section="metrics")
    first, last = int(finite[0]), int(finite[-1])
    a, b = number(float(series.values[first])), number(float(series.values[last]))
    text = Text(f"{name} goes from {a} to {b} in {len(series)} rows", f"{name} 在 {len(series)} 行里从 {a} 到 {b}")
    return Exhibit(text, series.where(last), series.source, section="metrics")
