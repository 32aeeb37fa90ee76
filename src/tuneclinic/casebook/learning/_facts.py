"""What the cases of this folder and of `numerics` ask of the evidence, each question once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tuneclinic.case import Case
from tuneclinic.curves import Shape, shape, vocabulary_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_fact, from_setting
from tuneclinic.sections import Series
from tuneclinic.signature import matches
from tuneclinic.words import Text, Words

PROOF = 10.0
"""Bits of an exhibit that settles a case: a thousand to one, about as often as such a line is misread."""
HUGE = 1e150
"""Where logged numbers are cut, so that sums and squares of a million of them stay finite."""
LEANS_AGAINST = -2.0
"""Bits at or below which a case is ruled out: four to one against. Nearer to zero it stays open, with its exhibits."""


def say(
    en: str, zh: str, weight: float = 0.0, *, section: str = "metrics", where: str = "", source: str = "", private: bool = False
) -> Exhibit:
    """An exhibit in both languages."""
    return Exhibit(Text(en, zh), where, source, weight=weight, section=section, private=private)


def conclude(
    case: Case,
    exhibits: Iterable[Exhibit],
    *,
    proof: bool = False,
    missing: tuple[str, ...] = (),
    change: Mapping[str, Any] | None = None,
) -> Finding:
    """Proof confirms; else the sum of the exhibits' weights leans one way, and a sum near zero leaves the case open."""
    held = tuple(exhibits)
    total = sum(exhibit.weight for exhibit in held)
    if proof and held:
        return case.confirmed(*held, change=change)
    if total > 0:
        return case.suspected(*held, change=change, missing=missing)
    if total <= LEANS_AGAINST:
        return case.ruled_out(*held)
    return case.not_checked(*(missing or case.needs), exhibits=held)


def shape_of(seen: Evidence) -> Shape:
    """The shape of the run's series; one without points where nothing was logged."""
    if seen.metrics is None:
        return Shape()
    return shape(seen.metrics, vocabulary_of(seen.model, seen.tokenizer))


def series(seen: Evidence, name: str) -> Series | None:
    """A logged series with at least one point."""
    return seen.metrics.get(name) if seen.metrics is not None else None


def finite(seen: Evidence, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """The finite values of a logged series, cut at ±`HUGE`; empty where it was not logged."""
    one = series(seen, name)
    return np.empty(0) if one is None else np.clip(one.values[np.isfinite(one.values)], -HUGE, HUGE)


def quoted(case: Case, seen: Evidence, weight: float = PROOF) -> tuple[Exhibit, ...]:
    """The run's own error or log lines that name the case."""
    return tuple(matches(seen, case.signatures, weight))


def lines(seen: Evidence, *patterns: str, weight: float = 0.0) -> tuple[Exhibit, ...]:
    """The run's own error or log lines that match one of `patterns` (lower case)."""
    return tuple(matches(seen, patterns, weight))


def facts(seen: Evidence, *names: str, weight: float = PROOF) -> tuple[Exhibit, ...]:
    """The script's lines that show one of the named facts."""
    if seen.script is None:
        return ()
    return tuple(from_fact(fact, weight) for fact in seen.script.facts if fact.name in names)


def clean(seen: Evidence, *names: str, weight: float = -6.0) -> tuple[Exhibit, ...]:
    """One exhibit against, where the script was checked for one of `names` and has none of them."""
    if seen.script is None or facts(seen, *names) or not set(names) & seen.script.checked:
        return ()
    source = next(iter(seen.script.sources), "")
    listed = ", ".join(sorted(set(names) & seen.script.checked))
    return (
        say(
            f"the script does not contain it ({listed})",
            f"脚本里没有这个问题（{listed}）",
            weight,
            section="script",
            where=source,
            source=source,
        ),
    )


def setting(seen: Evidence, name: str, weight: float = 0.0, text: Words = "") -> tuple[Exhibit, ...]:
    """The user's own line for a setting, where it was read."""
    if seen.settings is None or name not in seen.settings:
        return ()
    return (from_setting(seen.settings.values[name], weight, text),)


def number(seen: Evidence, name: str) -> float | None:
    """A setting as a finite number."""
    return as_number(seen.settings.get(name)) if seen.settings is not None else None


def text_of(seen: Evidence, name: str) -> str:
    """A setting as lower-case text; "" where it was not read."""
    value = seen.settings.get(name) if seen.settings is not None else None
    return "" if value is None else str(value).lower()


def falls(seen: Evidence) -> Exhibit | None:
    """An exhibit that the training loss falls, where it does."""
    form = shape_of(seen)
    if form.points < 10 or form.first is None or form.last is None or form.drop is None:
        return None
    if form.no_learning or form.nan_from is not None or form.diverged_from is not None or form.drop < 0.1:
        return None
    return say(
        f"the training loss falls from {form.first:.3g} to {form.last:.3g}",
        f"训练 loss 从 {form.first:.3g} 降到 {form.last:.3g}",
        -8.0,
    )


def flat(seen: Evidence, weight: float = 0.5) -> tuple[Exhibit, ...]:
    """An exhibit that the training loss does not fall, where it does not."""
    form = shape_of(seen)
    if not (form.no_learning or form.repeats_exactly):
        return ()
    level = form.level if form.level is not None else form.last
    told = "" if level is None else f" {level:.4g}"
    return (
        say(
            f"the training loss stays at{told} over {form.points} logged steps",
            f"训练 loss 在 {form.points} 个记录点上一直停在{told}",
            weight,
        ),
    )


def as_number(value: Any) -> float | None:
    """Any foreign value as a finite float, or None."""
    if isinstance(value, bool):
        return None
    try:
        held = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return held if math.isfinite(held) else None
