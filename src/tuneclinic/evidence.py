"""The evidence: what has been seen of a run so far.

A section that was not looked at is `None`, never "empty". Evidence only grows: a probe returns a new
value with more in it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from tuneclinic.sections import (
    Attempts,
    Crash,
    CrashError,
    Data,
    Environment,
    Log,
    LogLine,
    Metrics,
    Model,
    Outputs,
    Scores,
    Script,
    ScriptFact,
    Serving,
    Setting,
    Settings,
    Tokenizer,
    Weights,
)
from tuneclinic.values import dataclass
from tuneclinic.words import Words


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One quoted fact with the place it was read.

    `weight` is the weight of evidence in bits (Good 1950): the base-2 logarithm of how many times likelier the fact is
    if the case holds than if it does not; negative speaks against the case. `section` names the evidence section the
    fact was read from. `private` marks text that quotes the user's samples, paths or names and is masked by `--share`.
    `rows` are complete row numbers from 1 in `source`.
    """

    text: Words
    where: Words = ""
    source: str = ""
    rows: tuple[int, ...] = ()
    weight: float = 0.0
    private: bool = False
    section: str = ""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What has been seen of one run, one section a subject; `None` was not looked at."""

    settings: Settings | None = None
    metrics: Metrics | None = None
    data: Data | None = None
    tokenizer: Tokenizer | None = None
    model: Model | None = None
    script: Script | None = None
    crash: Crash | None = None
    log: Log | None = None
    environment: Environment | None = None
    batches: Any = None
    experiments: Any = None
    outputs: Outputs | None = None
    weights: Weights | None = None
    serving: Serving | None = None
    scores: Scores | None = None
    attempts: Attempts | None = None

    def has(self, section: str) -> bool:
        """Whether a probe has filled `section`."""
        return getattr(self, section) is not None

    def merge(self, later: Evidence) -> Evidence:
        """Both; of a section in both, the section's own `merge` with this one first."""
        changes: dict[str, Any] = {}
        for name in SECTIONS:
            mine, other = getattr(self, name), getattr(later, name)
            if other is not None:
                changes[name] = other if mine is None else mine.merge(other)
        return replace(self, **changes)


SECTIONS: tuple[str, ...] = tuple(field.name for field in fields(Evidence))


def from_setting(setting: Setting, weight: float = 0.0, text: Words = "") -> Exhibit:
    """A setting as an exhibit: the user's own line, or `text` about it."""
    return Exhibit(text or setting.quote, setting.where, setting.source, weight=weight, section="settings")


def from_error(error: CrashError, weight: float = 0.0, text: Words = "") -> Exhibit:
    """An error's own last line as an exhibit."""
    return Exhibit(text or error.quote, error.where, error.source, weight=weight, section="crash")


def from_line(line: LogLine, weight: float = 0.0, text: Words = "") -> Exhibit:
    """A log line as an exhibit."""
    return Exhibit(text or line.text.strip(), line.where, line.source, weight=weight, section="log")


def from_fact(fact: ScriptFact, weight: float = 0.0, text: Words = "") -> Exhibit:
    """A line of the script as an exhibit."""
    return Exhibit(text or fact.quote.strip(), fact.where, fact.source, weight=weight, section="script")
