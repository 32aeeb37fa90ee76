"""The contract that every case and symptom keeps, ours and a user's alike.

`problems(case)` says in sentences what a case breaks; an empty list is a kept contract. The test suite runs it over the whole
casebook and `tuneclinic case test FILE` over a user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields

from tuneclinic.case import Card, Case
from tuneclinic.evidence import SECTIONS, Evidence
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.vocabulary import NAMES

ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CHINESE = re.compile(r"[\u4e00-\u9fff]")
STAGES = ("data", "overfit", "hyperparameters", "environment")


def problems(case: Case, symptom_ids: Iterable[str], case_ids: Iterable[str]) -> list[str]:
    """What `case` breaks of the contract, one sentence each."""
    found = [*_names(case, set(symptom_ids), set(case_ids)), *_cards(case.en, case.zh)]
    if not case.sick:
        found.append("there is no sick example")
    if not case.healthy:
        found.append("there is no healthy near-miss example")
    for number, evidence in enumerate(case.sick, 1):
        finding = case.detect(evidence)
        if finding.verdict != "confirmed":
            found.append(f"sick example {number} is {finding.verdict}, not confirmed")
        if not finding.exhibits:
            found.append(f"sick example {number} is confirmed without an exhibit")
    for number, evidence in enumerate(case.healthy, 1):
        finding = case.detect(evidence)
        if finding.verdict != "ruled_out":
            found.append(f"healthy example {number} is {finding.verdict}, not ruled_out")
    if case.detect(Evidence()).verdict != "not_checked":
        found.append("empty evidence is not answered with not_checked")
    return found


def symptom_problems(symptom: Symptom) -> list[str]:
    """What `symptom` breaks of the contract, one sentence each."""
    found = [*_cards(symptom.en, symptom.zh)]
    if not ID.fullmatch(symptom.id):
        found.append(f"id {symptom.id!r} is not lower case with hyphens")
    found.extend(f"needs {section!r}, which is no section" for section in symptom.needs if section not in SECTIONS)
    for number, evidence in enumerate(symptom.sick, 1):
        sighting = symptom.see(evidence)
        if sighting.verdict != "confirmed" or not sighting.exhibits:
            found.append(f"sick example {number} is {sighting.verdict} with {len(sighting.exhibits)} exhibits")
    for number, evidence in enumerate(symptom.healthy, 1):
        verdict = symptom.see(evidence).verdict
        if verdict != "ruled_out":
            found.append(f"healthy example {number} is {verdict}, not ruled_out")
    if symptom.see(Evidence()).verdict != "not_checked":
        found.append("empty evidence is not answered with not_checked")
    if not symptom.sick:
        found.append("there is no sick example")
    return found


def _names(case: Case, symptom_ids: set[str], case_ids: set[str]) -> Iterable[str]:
    if not ID.fullmatch(case.id):
        yield f"id {case.id!r} is not lower case with hyphens"
    if not case.symptoms:
        yield "it names no symptom"
    for symptom, prior in case.symptoms.items():
        if symptom not in symptom_ids:
            yield f"symptom {symptom!r} does not exist"
        if not 0 < prior < 1:
            yield f"the prior {prior} within {symptom!r} is not between 0 and 1"
    if case.kind not in {"fault", "benign"}:
        yield f"kind {case.kind!r} is neither fault nor benign"
    if case.stage not in STAGES:
        yield f"stage {case.stage!r} is not one of {STAGES}"
    yield from (f"explains {other!r}, which does not exist" for other in case.explains if other not in case_ids)
    yield from (f"needs {section!r}, which is no section" for section in case.needs if section not in SECTIONS)
    yield from (f"change names {name!r}, which the vocabulary lacks" for name in case.change if name not in NAMES)
    if not case.needs:
        yield "it needs no section"
    for pattern in case.signatures:
        if re.search(r"(?<!\\)[A-Z]", pattern):
            yield f"signature {pattern!r} is not in lower case"
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"signature {pattern!r} is no regular expression: {error}"


def _cards(english: Card | SymptomCard, chinese: Card | SymptomCard) -> Iterable[str]:
    for language, card in (("en", english), ("zh", chinese)):
        for part in fields(card):
            text = getattr(card, part.name)
            if len(text.strip()) < 2:
                yield f"{language}.{part.name} is empty"
            if language == "zh" and not CHINESE.search(text):
                yield f"zh.{part.name} is not Chinese"
            if language == "en" and CHINESE.search(text):
                yield f"en.{part.name} is not English"


__all__ = ["problems", "symptom_problems"]
