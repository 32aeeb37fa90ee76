"""Triage: examines every case, ranks the suspects and says what to do next.

Ranking follows Good (1950): the prior odds of a case within the symptoms seen, times the likelihood ratio of each exhibit, kept
as additive bits. The order of next steps is decision-theoretic (Heckerman, Breese and Rommelse 1995): the cost of a step over
the probability mass it would settle; the stages of the general order break ties.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tuneclinic import usual
from tuneclinic.case import Case
from tuneclinic.diagnosis import Conclusion, Diagnosis, Finding, Read, Sighting, Step, Verdict
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.registry import found
from tuneclinic.symptom import Symptom
from tuneclinic.words import SECTION_NAMES, Text

UNSEEN_PRIOR = 0.02
"""Prior of a case none of whose symptoms is seen: about one case in fifty is at work in a run that was brought in without a
visible symptom (137 known cases; reports name one to three each)."""
CONFIRMED = 0.95
"""Probability shown for a confirmed case is at least this: a confirmation rests on proof, and proofs can be misread."""
SHOWN_SUSPECT = 0.05
"""A suspect below this probability is not worth a line: twenty such would have to be chased for one hit."""
PRIOR_SUSPECTS = 4
"""How many suspects that nothing speaks for yet are named per symptom, in order of their priors."""
SUSPECT_WITHOUT_SYMPTOM = 0.5
"""A suspicion without any visible symptom is only spoken when it is likelier than not: silence on a healthy run is a feature."""

STAGES = ("data", "overfit", "hyperparameters", "environment")
URGENCY = {"R": 0, "N": 1, "-": 0}
"""Resource and numeric symptoms first, for they pollute all others; then the rest in any order."""

COSTS = {
    "data": 1.0, "tokenizer": 1.0, "settings": 1.0, "metrics": 1.0, "model": 1.0, "script": 1.0, "crash": 1.0, "log": 1.0, "environment": 1.5,
    "outputs": 2.0, "weights": 2.0, "serving": 1.0, "scores": 3.0, "attempts": 2.0,
}  # fmt: skip
"""What it costs a person to give one more section, in units of "name one more file": measured by nobody, an ordering only."""


def symptoms() -> tuple[Symptom, ...]:
    """All symptoms."""
    return found("tuneclinic.symptoms", Symptom)


def cases() -> tuple[Case, ...]:
    """The whole casebook."""
    return found("tuneclinic.casebook", Case)


def examine(
    seen: Evidence, run: str = "run", read: Iterable[Read] = (), stated: Sequence[str] = (), book: Sequence[Case] | None = None
) -> Diagnosis:
    """Every case over the evidence of one run: the diagnosis, its findings in order.

    `stated` are ids of symptoms that the user names; they count as seen even where no file shows them.
    """
    book = cases() if book is None else book
    sightings = tuple(_look(symptom, seen, stated) for symptom in symptoms())
    visible = [sighting.symptom for sighting in sightings if sighting.verdict == "confirmed"]
    findings = [_judge(case, seen) for case in book]
    by_id = {case.id: case for case in book}
    ranked = _rank(findings, by_id, visible)
    conclusion = _conclude(ranked, visible, seen)
    return Diagnosis(
        run=run,
        conclusion=conclusion,
        read=tuple(read),
        sightings=tuple(sorted(sightings, key=_sighting_order)),
        findings=ranked,
        usual=usual.compare(seen),
        next=_next_step(ranked, by_id, seen, visible),
        evidence=seen,
    )


def _look(symptom: Symptom, seen: Evidence, stated: Sequence[str]) -> Sighting:
    try:
        sighting = symptom.see(seen)
    except Exception as error:  # noqa: BLE001 - one symptom's bug must not hide all others
        sighting = Sighting(symptom.id, "errored", (Exhibit(f"{type(error).__name__}: {error}"),))
    if symptom.id in stated and sighting.verdict != "confirmed":
        text = Text("you say so", "由你说明")
        return replace(sighting, verdict="confirmed", stated=True, exhibits=(*sighting.exhibits, Exhibit(text)))
    return sighting


def _judge(case: Case, seen: Evidence) -> Finding:
    if not any(seen.has(section) for section in case.needs):
        return case.not_checked(*case.needs)
    try:
        finding = case.detect(seen)
    except Exception as error:  # noqa: BLE001 - one case's bug must not end the diagnosis; it is shown as errored
        text = f"{type(error).__name__}: {error}"
        return Finding(case.id, "errored", (Exhibit(text),), case.kind, symptoms=tuple(case.symptoms), note=text)
    return _capped(finding, case, seen)


def _capped(finding: Finding, case: Case, seen: Evidence) -> Finding:
    """A hyperparameter judged from settings alone is at most suspected until data were seen and ten samples memorised."""
    if case.stage != "hyperparameters" or finding.verdict != "confirmed":
        return finding
    sections = {exhibit.section for exhibit in finding.exhibits if exhibit.weight > 0}
    if sections <= {"settings", ""} and not (seen.has("data") and seen.has("experiments")):
        return replace(finding, verdict="suspected", capped=True)
    return finding


def _bits(probability: float) -> float:
    return math.log2(probability / (1 - probability))


def _rank(findings: list[Finding], book: dict[str, Case], visible: Sequence[str]) -> tuple[Finding, ...]:
    explained = _consequences(findings, book)
    weighed = [_weigh(finding, book[finding.case], visible, explained.get(finding.case)) for finding in findings]
    return tuple(sorted(_with_prior_suspects(weighed, book, visible), key=lambda finding: _order(finding, book, visible)))


def _consequences(findings: list[Finding], book: dict[str, Case]) -> dict[str, str]:
    """For each confirmed case that another confirmed case explains: that other case."""
    confirmed = {finding.case for finding in findings if finding.verdict == "confirmed"}
    explained = {
        other: case for case in sorted(confirmed) for other in book[case].explains if other in confirmed and other != case
    }
    named = {exhibit.where: case for case, exhibit in _by_error(findings) if not book[case].residual}
    return explained | {
        case: named[exhibit.where] for case, exhibit in _by_error(findings) if book[case].residual and exhibit.where in named
    }


def _by_error(findings: list[Finding]) -> Iterator[tuple[str, Exhibit]]:
    """The confirmed cases that rest on an error's own text, with that exhibit."""
    for finding in findings:
        if finding.verdict == "confirmed" and finding.kind == "fault":
            yield from (
                (finding.case, exhibit) for exhibit in finding.exhibits if exhibit.section == "crash" and exhibit.weight > 0
            )


def _weigh(finding: Finding, case: Case, visible: Sequence[str], cause: str | None) -> Finding:
    """The finding with its probability; a suspicion too weak to speak of goes back to "not checked" with its exhibits."""
    priors = {symptom: case.symptoms[symptom] for symptom in visible if symptom in case.symptoms}
    bits = _bits(max(priors.values(), default=UNSEEN_PRIOR)) + finding.weight
    probability = 1 / (1 + 2 ** -max(-60.0, min(60.0, bits)))
    if finding.verdict == "confirmed":
        return replace(finding, probability=max(probability, CONFIRMED), consequence_of=cause)
    if finding.verdict == "suspected":
        threshold = SHOWN_SUSPECT if priors else SUSPECT_WITHOUT_SYMPTOM
        verdict: Verdict = "suspected" if probability >= threshold else "not_checked"
        return replace(finding, probability=probability, verdict=verdict, missing=finding.missing or _unsettled(case))
    if finding.verdict == "not_checked" and priors:
        return replace(finding, probability=probability)
    return finding


def _unsettled(case: Case) -> tuple[str, ...]:
    return ("experiments",) if case.probe else ()


def _with_prior_suspects(findings: list[Finding], book: dict[str, Case], visible: Sequence[str]) -> list[Finding]:
    """Names the likeliest cases that could not be examined as suspects, by their priors alone, and says so."""
    raised: set[str] = set()
    told = {symptom.id for symptom in symptoms() if symptom.speaks_for_itself}
    for symptom in visible:
        if symptom in told:
            continue
        open_ = [finding for finding in findings if symptom in book[finding.case].symptoms and _open(finding)]
        open_.sort(key=lambda finding: -(finding.probability or 0))
        raised.update(finding.case for finding in open_[:PRIOR_SUSPECTS] if (finding.probability or 0) >= SHOWN_SUSPECT)
    return [
        replace(finding, verdict="suspected", prior_only=not finding.weight)
        if finding.case in raised and _open(finding)
        else finding
        for finding in findings
    ]


def _open(finding: Finding) -> bool:
    return finding.verdict == "not_checked" and finding.kind == "fault"


_VERDICTS = ("confirmed", "suspected", "errored", "not_checked", "ruled_out")


def _order(finding: Finding, book: dict[str, Case], visible: Sequence[str]) -> tuple[float, ...]:
    case = book[finding.case]
    at_work = [symptom for symptom in visible if symptom in case.symptoms]
    urgency = min((_urgency(symptom) for symptom in at_work), default=3)
    return (
        _place(finding, case),
        finding.consequence_of is not None,
        finding.verdict == "confirmed" and not at_work and bool(visible),
        finding.kind == "benign" and finding.verdict == "suspected",
        urgency if finding.verdict == "confirmed" else 0,
        -(finding.probability or 0.0) if finding.verdict != "confirmed" else -finding.weight,
        STAGES.index(case.stage),
    )


def _place(finding: Finding, case: Case) -> float:
    """Confirmed, suspected, errored, not checked, ruled out; a case that is never the cause stands behind a likely suspect."""
    if finding.verdict == "confirmed" and not case.root:
        return 0.5
    if finding.verdict == "suspected" and not finding.prior_only and (finding.probability or 0.0) >= SUSPECT_WITHOUT_SYMPTOM:
        return 0.25
    return float(_VERDICTS.index(finding.verdict))


def _letters() -> dict[str, str]:
    return {symptom.id: symptom.letter for symptom in symptoms()}


def _urgency(symptom: str) -> int:
    return URGENCY.get(_letters().get(symptom, "C"), 2)


def _sighting_order(sighting: Sighting) -> tuple[float, ...]:
    return (_VERDICTS.index(sighting.verdict), _urgency(sighting.symptom), sighting.first_step or 0.0)


def _conclude(findings: Sequence[Finding], visible: Sequence[str], seen: Evidence) -> Conclusion:
    confirmed = [finding for finding in findings if finding.verdict == "confirmed"]
    if any(finding.kind == "fault" for finding in confirmed):
        return "fault"
    explained = {symptom for finding in confirmed if finding.kind == "benign" for symptom in finding.symptoms}
    unexplained = [symptom for symptom in visible if symptom not in explained]
    if visible and not unexplained:
        return "no_fault"
    if unexplained:
        top = next((finding for finding in findings if finding.verdict == "suspected" and not finding.prior_only), None)
        return "fault" if top is not None and (top.probability or 0) >= SUSPECT_WITHOUT_SYMPTOM else "not_enough_evidence"
    enough = seen.metrics is not None and any(len(series) >= _ENOUGH_POINTS for series in seen.metrics.series.values())
    return "no_fault" if enough else "not_enough_evidence"


_ENOUGH_POINTS = 10
"""Points of a series below which nothing can be said of its course: the shortest healthy run of the reference set has 10."""


def _next_step(findings: Sequence[Finding], book: dict[str, Case], seen: Evidence, visible: Sequence[str]) -> Step | None:
    """The one item that would settle the most suspicion per cost; None where nothing is open or nothing is seen."""
    confirmed = [finding for finding in findings if finding.verdict == "confirmed" and finding.kind == "fault"]
    if not visible or any(book[finding.case].root for finding in confirmed):
        return None
    open_mass: dict[str, float] = defaultdict(float)
    settles: dict[str, list[str]] = defaultdict(list)
    for finding in findings:
        if finding.verdict != "suspected" and not _open(finding):
            continue
        for section in _wanted(finding, book[finding.case], seen):
            open_mass[section] += finding.probability or 0.0
            settles[section].append(finding.case)
    mass = {section: total for section, total in open_mass.items() if total >= SHOWN_SUSPECT}
    if not mass:
        return None
    best = max(mass, key=lambda section: mass[section] / COSTS[section])
    name = SECTION_NAMES[best]
    what = Text(f"Give one more thing: the {name.en}.", f"再给一样东西：{name.zh}。")
    return Step(what, section=best, settles=tuple(settles[best][:5]))


def _wanted(finding: Finding, case: Case, seen: Evidence) -> tuple[str, ...]:
    missing = finding.missing or case.needs
    return tuple(section for section in missing if section in COSTS and not seen.has(section))
