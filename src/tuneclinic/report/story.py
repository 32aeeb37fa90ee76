"""A diagnosis told in one language, in the order in which a finding speaks; every renderer draws the same story.

Seen (the user's own lines, with places), why it does that, what to do (with the line to paste), how to verify it, what next.
Confirmed first, then suspects with their odds, then one line for the rest; the last line is always what was not looked at.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from tuneclinic.case import Case
from tuneclinic.diagnosis import Diagnosis, Finding, Read, Sighting
from tuneclinic.evidence import SECTIONS, Exhibit
from tuneclinic.registry import found
from tuneclinic.report import phrases as say_
from tuneclinic.report.clean import clean
from tuneclinic.symptom import Symptom
from tuneclinic.values import dataclass
from tuneclinic.vocabulary import paste
from tuneclinic.words import SECTION_NAMES, Language, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN_EXHIBITS = 5
"""Exhibits shown for one finding: more than a hand's breadth is not read."""
SHOWN_SUSPECTS = 5
"""Suspects shown: the handbook's rows name three to eight, and nobody tries the sixth."""
ALL_FRAMEWORKS = ("transformers", "llama-factory", "axolotl")
"""Whose lines are given where the run does not tell its framework."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One exhibit as told: text, place, weight in bits."""

    text: str
    where: str = ""
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """One finding as told."""

    id: str
    verdict: str
    kind: str
    title: str
    odds: str
    seen: tuple[Fact, ...]
    why: str
    remedy: str
    pastes: tuple[tuple[str, str], ...]
    verify: str
    prevention: str
    note: str = ""
    by_prior: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """One symptom as told."""

    id: str
    title: str
    facts: tuple[Fact, ...]
    check: str
    first_step: float | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """The whole diagnosis as told, with the headings in its language."""

    run: str
    language: Language
    conclusion: str
    headline: str
    summary: str
    read: tuple[str, ...]
    unread: tuple[str, ...]
    symptoms: tuple[Seen, ...]
    confirmed: tuple[Told, ...]
    benign: tuple[Told, ...]
    suspects: tuple[Told, ...]
    rest: str
    usual: tuple[tuple[str, str, str, str], ...]
    next: str
    command: str
    not_looked: str
    words: dict[str, str] = field(default_factory=dict)


def tell(diagnosis: Diagnosis, language: Language) -> Story:
    """The story of one diagnosis."""
    book = {case.id: case for case in found("tuneclinic.casebook", Case)}
    shown = [finding for finding in diagnosis.findings if finding.verdict in {"confirmed", "suspected"} and finding.case in book]
    told = [_told(finding, book[finding.case], diagnosis, language) for finding in shown]
    confirmed = [one for one in told if one.verdict == "confirmed" and one.kind == "fault"]
    suspects = [one for one in told if one.verdict == "suspected"]
    worth = [one for one in suspects if one.id in _worth_telling(diagnosis)]
    return Story(
        run=clean(diagnosis.run),
        language=language,
        conclusion=diagnosis.conclusion,
        headline=_headline(diagnosis, confirmed, suspects, language),
        summary=_summary(diagnosis.read, language),
        read=tuple(_read_line(read, language) for read in diagnosis.read if sum(read.understood.values())),
        unread=_unread_lines([read for read in diagnosis.read if not sum(read.understood.values())], language),
        symptoms=tuple(_seen(sighting, language) for sighting in diagnosis.seen),
        confirmed=tuple(confirmed),
        benign=tuple(one for one in told if one.verdict == "confirmed" and one.kind == "benign"),
        suspects=tuple(worth[:SHOWN_SUSPECTS]),
        rest=_rest(diagnosis, len(suspects) - len(worth[:SHOWN_SUSPECTS]), language),
        usual=tuple(_usual(diagnosis, language)),
        next=say(diagnosis.next.what, language) if diagnosis.next else "",
        command=diagnosis.next.command if diagnosis.next else "",
        not_looked=_not_looked(diagnosis, language),
        words={name: say(text, language) for name, text in say_.HEADINGS.items()},
    )


def _facts(exhibits: Iterable[Exhibit], language: Language) -> tuple[Fact, ...]:
    ordered = sorted(exhibits, key=lambda exhibit: -abs(exhibit.weight))[:SHOWN_EXHIBITS]
    return tuple(
        Fact(clean(say(one.text, language)), clean(say(one.where, language)) or clean(one.source), one.weight) for one in ordered
    )


def _told(finding: Finding, case: Case, diagnosis: Diagnosis, language: Language) -> Told:
    card = case.card(language)
    note = ""
    if finding.prior_only:
        note = say(say_.PRIOR_ONLY, language)
    elif finding.capped:
        note = say(say_.CAPPED, language)
    elif finding.consequence_of:
        note = say(say_.CONSEQUENCE, language).format(case=finding.consequence_of)
    return Told(
        id=finding.case,
        verdict=finding.verdict,
        kind=finding.kind,
        title=card.title,
        odds=f"{100 * (finding.probability or 0):.0f} %",
        seen=_facts(finding.exhibits, language),
        why=card.cause,
        remedy=card.remedy,
        pastes=pastes(finding.change or case.change, _framework(diagnosis)),
        verify=card.verify,
        prevention=card.prevention,
        note=note,
        by_prior=finding.prior_only,
    )


def _framework(diagnosis: Diagnosis) -> str:
    settings = diagnosis.evidence.settings if diagnosis.evidence else None
    return settings.framework if settings else ""


def pastes(change: object, framework: str) -> tuple[tuple[str, str], ...]:
    """(framework, line to paste) for every setting to change, in the user's framework or, where unknown, in the usual three."""
    lines: list[tuple[str, str]] = []
    items = change.items() if isinstance(change, dict) else dict(change or {}).items()  # type: ignore[call-overload]
    for name, value in items:
        for one in (framework,) if framework else ALL_FRAMEWORKS:
            line = paste(name, value, one)
            if line:
                lines.append((one, line))
    return tuple(lines)


def _seen(sighting: Sighting, language: Language) -> Seen:
    symptom = next((one for one in found("tuneclinic.symptoms", Symptom) if one.id == sighting.symptom), None)
    card = symptom.card(language) if symptom else None
    title, check = (card.title, card.check) if card else (sighting.symptom, "")
    return Seen(sighting.symptom, title, _facts(sighting.exhibits, language), check, sighting.first_step)


def _headline(diagnosis: Diagnosis, confirmed: Sequence[Told], suspects: Sequence[Told], language: Language) -> str:
    if not diagnosis.understood:
        return say(say_.NOTHING_READ, language)
    if confirmed:
        behind = next((one for one in suspects if one.id in _behind(diagnosis, confirmed[0].id)), None)
        also = say(say_.ALSO_SUSPECTED, language).format(title=behind.title, odds=behind.odds) if behind else ""
        return say(say_.CONFIRMED, language).format(title=confirmed[0].title) + also
    if diagnosis.seen and diagnosis.conclusion == "no_fault":
        return say(say_.NO_FAULT, language)
    if suspects and diagnosis.seen:
        return say(say_.SUSPECT, language).format(title=suspects[0].title)
    if diagnosis.seen:
        return say(say_.SYMPTOM_ONLY, language)
    return say(say_.NOTHING_SEEN if diagnosis.conclusion == "no_fault" else say_.TOO_LITTLE, language)


LIKELY = 0.5
"""A suspect is named in the headline beside a confirmed case where it is likelier than not."""


def _behind(diagnosis: Diagnosis, confirmed: str) -> set[str]:
    """Suspects likelier than not, by evidence, that share a visible symptom with a confirmed case."""
    visible = {sighting.symptom for sighting in diagnosis.seen}
    shared = {one for finding in diagnosis.findings if finding.case == confirmed for one in finding.symptoms} & visible
    return {
        finding.case
        for finding in diagnosis.having("suspected")
        if (finding.probability or 0) >= LIKELY and not finding.prior_only and shared & set(finding.symptoms)
    }


def _worth_telling(diagnosis: Diagnosis) -> set[str]:
    """Suspects of a symptom that no confirmed fault explains, and those likelier than not."""
    explained = {one for finding in diagnosis.having("confirmed") for one in finding.symptoms}
    left = {sighting.symptom for sighting in diagnosis.seen} - explained
    suspected = diagnosis.having("suspected")
    return {
        finding.case
        for finding in suspected
        if not explained or left & set(finding.symptoms) or (finding.probability or 0) >= LIKELY
    }


def _read_line(read: Read, language: Language) -> str:
    counts = ", ".join(_count(count, shape, language) for shape, count in read.understood.items() if count)
    skipped = sum(read.skipped.values())
    tail = say(say_.SKIPPED, language).format(count=f"{skipped:,}") if skipped else ""
    note = say(read.note, language)
    return clean(f"{read.source}: {counts}{tail}" + (f". {note}" if note else ""))


def _summary(reads: Sequence[Read], language: Language) -> str:
    """How many files were read, and what was understood in them, the largest counts first."""
    known = [read for read in reads if sum(read.understood.values())]
    totals: dict[str, int] = {}
    for read in known:
        for shape, count in read.understood.items():
            totals[shape] = max(totals.get(shape, 0), count)
    counts = [_count(count, shape, language) for shape, count in totals.items() if count]
    files = len({read.source for read in known})
    return clean(
        say(say_.SUMMARY, language).format(
            files=_count(files, "files", language), counts=("、" if language == "zh" else ", ").join(counts)
        )
    )


def _count(count: int, shape: str, language: Language) -> str:
    name = say(say_.SHAPES.get(shape, shape), language)
    if language == "en" and count == 1:
        name = name.removesuffix("s")
    return f"{count:,} {name}"


def _unread_lines(reads: Sequence[Read], language: Language) -> tuple[str, ...]:
    noted = [clean(f"{read.source}: {say(read.note, language)}") for read in reads if read.kind != "unknown"]
    unknown = [read.source for read in reads if read.kind == "unknown"]
    if unknown:
        names = ", ".join(clean(name, 60) for name in unknown[:3])
        noted.append(say(say_.UNKNOWN_FILES, language).format(count=len(unknown), names=names))
    return tuple(noted)


def _rest(diagnosis: Diagnosis, more: int, language: Language) -> str:
    counts = {verdict: len(diagnosis.having(verdict)) for verdict in ("ruled_out", "not_checked", "errored")}
    text = say(say_.REST, language).format(ruled_out=counts["ruled_out"], not_checked=counts["not_checked"])
    if more:
        text += say(say_.MORE_SUSPECTS, language).format(count=more)
    if counts["errored"]:
        text += say(say_.ERRORED, language).format(count=counts["errored"])
    return text


def _usual(diagnosis: Diagnosis, language: Language) -> Iterable[tuple[str, str, str, str]]:
    for one in diagnosis.usual:
        low = "…" if one.low is None else f"{one.low:.3g}"
        high = "…" if one.high is None else f"{one.high:.3g}"
        yield (
            say(one.measure, language),
            f"{one.value:.3g}",
            f"{low} – {high}",
            clean(one.source),
        )


def _not_looked(diagnosis: Diagnosis, language: Language) -> str:
    seen = diagnosis.evidence
    missing = [
        say(SECTION_NAMES[name], language) for name in SECTIONS if name != "attempts" and (seen is None or not seen.has(name))
    ]
    if not missing:
        return say(say_.ALL_LOOKED, language)
    return say(say_.NOT_LOOKED, language).format(names=("、" if language == "zh" else ", ").join(missing))
