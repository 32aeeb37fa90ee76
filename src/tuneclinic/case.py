"""A case: one failure mode in one file, with its cards, examples and detection.

A case is a pure function of the evidence: `detect` runs nothing, reads no file and takes milliseconds.
Adding a file to the casebook registers it; see `registry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.words import Language

Stage: TypeAlias = Literal["data", "overfit", "hyperparameters", "environment"]


@dataclass(frozen=True, slots=True)
class Card:
    """One case told to a person in one language.

    title: the fault in a few words. sign: what it looks like from outside. cause: why it does that. remedy: what to change
    now. verify: how to see that the change worked. prevention: what keeps it from coming back. question: what the tool asks a
    person who has no file to show. quiz: a question to test oneself with, and its answer.
    """

    title: str
    sign: str
    cause: str
    remedy: str
    verify: str
    prevention: str
    question: str
    quiz: str


class Case:
    """One failure mode. Subclasses set the class attributes and write `detect`.

    id: names the fault, never the remedy; never renamed or reused.
    symptoms: prior within each symptom that the case can show.
    kind: "fault", or "benign" for what looks like a fault and is none.
    stage: where in the general order it is settled. A "hyperparameters" case that rests on settings alone is lowered to a
        suspicion by the triage until the data were seen and ten samples memorised.
    explains: ids of cases that fire as its consequence.
    needs: evidence sections that `detect` reads. With none of them present the case is not examined.
    probe: the cheapest probe that settles it.
    change: settings to change, by the vocabulary's names, where the remedy is a setting.
    root: False for a case that names how a fault shows in the log and never its cause: it is ranked behind a likely cause.
    residual: True for a case of any error at all: where another case knows the same error by its text, that one is the cause.
    signatures: regular expressions, in lower case, over lower-cased log lines and error messages that name this case.
    search: phrases that people type for it, in both languages.
    sick, healthy: evidence that must be confirmed, and near-miss evidence that must be ruled out.
    """

    id: ClassVar[str] = ""
    symptoms: ClassVar[Mapping[str, float]] = {}
    kind: ClassVar[str] = "fault"
    root: ClassVar[bool] = True
    residual: ClassVar[bool] = False
    stage: ClassVar[Stage] = "data"
    explains: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    probe: ClassVar[str] = ""
    change: ClassVar[Mapping[str, Any]] = {}
    signatures: ClassVar[tuple[str, ...]] = ()
    search: ClassVar[tuple[str, ...]] = ()
    en: ClassVar[Card]
    zh: ClassVar[Card]
    sick: ClassVar[Sequence[Evidence]] = ()
    healthy: ClassVar[Sequence[Evidence]] = ()

    def card(self, language: Language) -> Card:
        """The card in `language`."""
        return self.zh if language == "zh" else self.en

    def detect(self, seen: Evidence) -> Finding:
        """What this case says of the evidence; one of the four answers below."""
        raise NotImplementedError

    def confirmed(self, *exhibits: Exhibit, change: Mapping[str, Any] | None = None) -> Finding:
        """The fault is there; the exhibits prove it."""
        return self._finding("confirmed", exhibits, change)

    def suspected(self, *exhibits: Exhibit, change: Mapping[str, Any] | None = None, missing: tuple[str, ...] = ()) -> Finding:
        """The exhibits speak for it, and something else could still explain them."""
        return self._finding("suspected", exhibits, change, missing)

    def ruled_out(self, *exhibits: Exhibit) -> Finding:
        """The exhibits show that it is not this."""
        return self._finding("ruled_out", exhibits, None)

    def not_checked(self, *missing: str, exhibits: tuple[Exhibit, ...] = ()) -> Finding:
        """It could not be examined for want of the evidence sections `missing`; exhibits may still lean either way."""
        return self._finding("not_checked", exhibits, None, missing)

    def _finding(
        self, verdict: Any, exhibits: tuple[Exhibit, ...], change: Mapping[str, Any] | None, missing: tuple[str, ...] = ()
    ) -> Finding:
        return Finding(
            case=self.id,
            verdict=verdict,
            exhibits=tuple(exhibits),
            kind=self.kind,
            symptoms=tuple(self.symptoms),
            change=dict(self.change if change is None else change),
            missing=missing,
        )
