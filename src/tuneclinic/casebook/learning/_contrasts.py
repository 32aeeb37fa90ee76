"""Sibling runs that differ from this one in one setting alone: the nearest thing to an experiment that files hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuneclinic.casebook.learning._facts import PROOF, say
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Attempt
from tuneclinic.values import dataclass

_NO_CAUSE = frozenset({"output_dir", "logging_steps", "save_steps", "eval_steps", "save_strategy", "eval_strategy", "resume"})
"""Settings that name places and rhythms and move no weight."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A sibling run that differs in one setting alone, with both values."""

    attempt: Attempt
    mine: Any
    other: Any


def contrasts(seen: Evidence, name: str, *also: str) -> tuple[Contrast, ...]:
    """Sibling runs that differ from this one in `name` alone, or in `name` and its kin `also`, of the settings read."""
    if seen.attempts is None or seen.settings is None:
        return ()
    mine = {key: held.value for key, held in seen.settings.values.items() if key not in _NO_CAUSE}
    found = []
    for attempt in seen.attempts.items:
        other = {key: value for key, value in attempt.settings.items() if key not in _NO_CAUSE}
        differ = {key for key in mine.keys() | other.keys() if mine.get(key) != other.get(key)}
        if also and differ and differ <= {name, *also}:
            found.append(Contrast(attempt, _of(mine, differ), _of(other, differ)))
        elif differ == {name} and name in mine and name in other:
            found.append(Contrast(attempt, mine[name], other[name]))
    return tuple(found)


def _of(settings: Mapping[str, Any], names: set[str]) -> str:
    return ", ".join(f"{name}={settings.get(name, '-')}" for name in sorted(names))


def fell(attempt: Attempt, share: float = 0.1) -> bool:
    """Whether a sibling run's loss fell by at least `share` of its start, to a finite value."""
    first, last = attempt.first_loss, attempt.last_loss
    return first is not None and last is not None and math.isfinite(last) and last < first * (1 - share)


def contrast_exhibit(contrast: Contrast, name: str, weight: float = PROOF) -> Exhibit:
    """A sibling run with one setting changed, and how its loss went."""
    first, last = contrast.attempt.first_loss, contrast.attempt.last_loss
    went = f"{first:.4g} → {last:.4g}" if first is not None and last is not None else "?"
    return say(
        f"{contrast.attempt.name} changed {name} alone ({contrast.mine} → {contrast.other}): loss {went}",
        f"{contrast.attempt.name} 只改了 {name}（{contrast.mine} → {contrast.other}）：loss {went}",
        weight,
        section="attempts",
        where=contrast.attempt.name,
        source=contrast.attempt.name,
    )
