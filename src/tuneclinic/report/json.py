"""The diagnosis as JSON, by the published schema `tuneclinic.diagnosis/1` (schema.json beside this file)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tuneclinic.case import Case
from tuneclinic.diagnosis import Diagnosis, Finding, Sighting
from tuneclinic.evidence import SECTIONS, Exhibit
from tuneclinic.registry import found
from tuneclinic.report.story import pastes
from tuneclinic.words import Language, say

SCHEMA = "tuneclinic.diagnosis/1"


def render(diagnoses: Sequence[Diagnosis], language: Language = "en") -> str:
    """One diagnosis as an object, several as `{"schema", "runs": […]}`; strict JSON without NaN."""
    told = [as_data(diagnosis, language) for diagnosis in diagnoses]
    value = told[0] if len(told) == 1 else {"schema": SCHEMA, "runs": told}
    return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)


def as_data(diagnosis: Diagnosis, language: Language = "en") -> dict[str, Any]:
    """One diagnosis as plain data."""
    book = {case.id: case for case in found("tuneclinic.casebook", Case)}
    seen = diagnosis.evidence
    framework = seen.settings.framework if seen and seen.settings else ""
    return {
        "schema": SCHEMA,
        "run": diagnosis.run,
        "read": [
            {
                "source": read.source,
                "kind": read.kind,
                "understood": sum(read.understood.values()),
                "skipped": sum(read.skipped.values()),
                "shapes": dict(read.understood),
                "reasons": dict(read.skipped),
                "note": say(read.note, language),
            }
            for read in diagnosis.read
        ],
        "symptoms": [_sighting(sighting, language) for sighting in diagnosis.sightings],
        "findings": [_finding(finding, book.get(finding.case), framework, language) for finding in diagnosis.findings],
        "not_checked": [name for name in SECTIONS if seen is None or not seen.has(name)],
        "usual": [
            {"measure": say(one.measure, language), "value": _number(one.value), "low": _number(one.low), "high": _number(one.high),
             "where": one.where, "runs": one.runs, "source": one.source}
            for one in diagnosis.usual
        ],
        "conclusion": diagnosis.conclusion,
        "language": language,
        "next": _next(diagnosis, language),
    }  # fmt: skip


def _sighting(sighting: Sighting, language: Language) -> dict[str, Any]:
    return {
        "id": sighting.symptom,
        "verdict": sighting.verdict,
        "first_step": _number(sighting.first_step),
        "stated": sighting.stated,
        "exhibits": [_exhibit(exhibit, language) for exhibit in sighting.exhibits],
    }


def _finding(finding: Finding, case: Case | None, framework: str, language: Language) -> dict[str, Any]:
    card = case.card(language) if case else None
    spoken = card is not None and finding.verdict in {"confirmed", "suspected"}
    change = finding.change or (dict(case.change) if case else {})
    return {
        "case": finding.case,
        "kind": finding.kind,
        "title": card.title if card else finding.case,
        "verdict": finding.verdict,
        "probability": _number(finding.probability),
        "basis": "prior" if finding.prior_only else "evidence",
        "symptoms": list(finding.symptoms),
        "exhibits": [_exhibit(exhibit, language) for exhibit in finding.exhibits],
        "why": card.cause if spoken and card else "",
        "remedy": card.remedy if spoken and card else "",
        "paste": [{"framework": one, "line": line} for one, line in pastes(change, framework)] if spoken else [],
        "verify": card.verify if spoken and card else "",
        "prevention": card.prevention if spoken and card else "",
        "probe": case.probe if case else "",
        "missing": list(finding.missing),
        "consequence_of": finding.consequence_of,
    }


def _exhibit(exhibit: Exhibit, language: Language) -> dict[str, Any]:
    return {
        "text": _text(say(exhibit.text, language)),
        "where": _text(say(exhibit.where, language)),
        "source": exhibit.source,
        "rows": list(exhibit.rows),
        "weight": _number(round(exhibit.weight, 3)),
    }


def _next(diagnosis: Diagnosis, language: Language) -> dict[str, Any] | None:
    step = diagnosis.next
    if step is None:
        return None
    return {"what": say(step.what, language), "section": step.section, "command": step.command, "settles": list(step.settles)}


def _number(value: float | None) -> float | None:
    """A number that JSON can hold: infinities and NaN are null."""
    return None if value is None or not math.isfinite(value) else value


def _text(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates are replaced."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
