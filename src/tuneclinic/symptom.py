"""A symptom: what a person sees, in one file, with its card and how it shows in evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.words import Language

Letter: TypeAlias = Literal["C", "O", "E", "N", "B", "R", "-"]
"""C convergence, O overfitting, E evaluation, N numeric, B behaviour, R resources, - a crash of any kind."""


@dataclass(frozen=True, slots=True)
class SymptomCard:
    """One symptom told to a person in one language: what is seen, what is checked first, the first treatment, prevention."""

    title: str
    seen: str
    check: str
    treatment: str
    prevention: str


class Symptom:
    """One row of the handbook's tables. Its ranked suspects are computed from the cases that name it.

    id: never renamed. letter: its class. needs: sections `see` reads. search: phrases that people type for it, in both
    languages, log lines among them. speaks_for_itself: an error's own text names its cause, so that a case which
    did not know the text is no suspect. sick, healthy: evidence in which it is seen, and near misses in which it is not.
    """

    id: ClassVar[str] = ""
    letter: ClassVar[Letter] = "C"
    needs: ClassVar[tuple[str, ...]] = ("metrics",)
    speaks_for_itself: ClassVar[bool] = False
    search: ClassVar[tuple[str, ...]] = ()
    en: ClassVar[SymptomCard]
    zh: ClassVar[SymptomCard]
    sick: ClassVar[Sequence[Evidence]] = ()
    healthy: ClassVar[Sequence[Evidence]] = ()

    def card(self, language: Language) -> SymptomCard:
        """The card in `language`."""
        return self.zh if language == "zh" else self.en

    def see(self, seen: Evidence) -> Sighting:
        """Whether this symptom shows in the evidence; one of the three answers below."""
        raise NotImplementedError

    def shown(self, *exhibits: Exhibit, first_step: float | None = None) -> Sighting:
        """It is seen, from `first_step` on."""
        return Sighting(self.id, "confirmed", tuple(exhibits), first_step)

    def hinted(self, *exhibits: Exhibit, first_step: float | None = None) -> Sighting:
        """Something points to it without proving it."""
        return Sighting(self.id, "suspected", tuple(exhibits), first_step)

    def absent(self, *exhibits: Exhibit) -> Sighting:
        """What was read shows that it is not there."""
        return Sighting(self.id, "ruled_out", tuple(exhibits))

    def not_checked(self, *missing: str) -> Sighting:
        """Nothing was read that could show it."""
        return Sighting(self.id, "not_checked", missing=missing)
