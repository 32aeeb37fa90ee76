"""Findings, sightings and the diagnosis: plain data that renderers read.

The wording stays in both languages until a renderer picks one. `report/json.py` writes the published schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.values import dataclass
from tuneclinic.words import Words

Verdict: TypeAlias = Literal["confirmed", "suspected", "ruled_out", "not_checked", "errored"]
Conclusion: TypeAlias = Literal["fault", "no_fault", "not_enough_evidence"]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one symptom's test saw. `confirmed` means that the symptom is seen; `first_step` is where it begins."""

    symptom: str
    verdict: Verdict
    exhibits: tuple[Exhibit, ...] = ()
    first_step: float | None = None
    stated: bool = False
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What one case says of one run.

    `probability` is set by the triage from the prior within the symptoms seen and the exhibits' weights. `change` holds
    settings to change, under the vocabulary's names, computed for this run. `missing` names evidence sections the case
    would need. `prior_only` marks a suspect that no exhibit speaks for or against yet. `consequence_of` names a confirmed
    case that explains this one. `capped` says that a confirmation from settings alone was lowered to a suspicion.
    """

    case: str
    verdict: Verdict
    exhibits: tuple[Exhibit, ...] = ()
    kind: str = "fault"
    probability: float | None = None
    symptoms: tuple[str, ...] = ()
    change: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    prior_only: bool = False
    consequence_of: str | None = None
    capped: bool = False
    note: Words = ""

    @property
    def weight(self) -> float:
        """The sum of the exhibits' weights of evidence, in bits."""
        return sum(exhibit.weight for exhibit in self.exhibits)


@dataclass(frozen=True, slots=True)
class Read:
    """What one reader made of one file: counts of rows understood by shape, and of rows skipped by reason."""

    source: str
    kind: str
    understood: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    note: Words = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of "is this normal?": a measure of this run beside the usual band, with the band's source."""

    measure: Words
    value: float
    low: float | None
    high: float | None
    where: str
    runs: int
    source: str


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next: give one more item, or run one probe; `settles` names the suspects it would settle."""

    what: Words
    command: str = ""
    section: str = ""
    settles: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Diagnosis:
    """All findings of one run in order, what was read, what was not checked, and what to do next."""

    run: str
    conclusion: Conclusion
    read: tuple[Read, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    findings: tuple[Finding, ...] = ()
    usual: tuple[Comparison, ...] = ()
    next: Step | None = None
    evidence: Evidence | None = None

    @property
    def seen(self) -> tuple[Sighting, ...]:
        """The symptoms that are seen."""
        return tuple(sighting for sighting in self.sightings if sighting.verdict == "confirmed")

    def having(self, verdict: Verdict) -> tuple[Finding, ...]:
        """The findings with one verdict, in order."""
        return tuple(finding for finding in self.findings if finding.verdict == verdict)

    @property
    def understood(self) -> bool:
        """Whether any reader understood anything at all."""
        return any(sum(read.understood.values()) for read in self.read)

    @property
    def exit_code(self) -> int:
        """0 nothing seen or no fault; 1 a fault confirmed, be it by one line, or an unexplained symptom; 2 nothing could be read."""
        if any(finding.verdict == "confirmed" and finding.kind == "fault" for finding in self.findings):
            return 1
        if not self.understood:
            return 2
        return 1 if self.seen and self.conclusion != "no_fault" else 0
