"""Masking what a diagnosis quotes of the user's own: sample text, paths, host and user names, addresses, keys."""

from __future__ import annotations

import re
from dataclasses import replace

from tuneclinic.diagnosis import Diagnosis, Finding, Read, Sighting
from tuneclinic.evidence import Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.words import Text, Words

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (pattern(r"(?i)\b(?:hf|sk|ghp|gho|wandb|xox[bp])[_-][A-Za-z0-9_-]{12,}"), "<key>"),
    (pattern(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<mail>"),
    (pattern(r"\b(?:https?|ssh|s3|gs|hdfs|oss)://\S+"), "<address>"),
    (pattern(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (pattern(r"(?<![\w./~])(?:~|/(?!/)|[A-Za-z]:\\)[^\s:'\"(),;\]}>|]*[\\/]([^\s\\/:'\"(),;\]}>|]+)"), r"<path>/\1"),
    (pattern(r"(?<![\w./])/(?:home|root|mnt|data|workspace|users)\b[^\s:'\"(),;]*", re.IGNORECASE), "<path>"),
    (pattern(r"(?i)\b(user(?:name)?|login|host(?:name)?|node)\s*[=:]\s*['\"]?[\w.-]+"), r"\1=<name>"),
)
"""Patterns in order, with what stands in their place. A file's own name is kept: a finding without it cannot be followed."""

PRIVATE = Text("<sample text>", "<样本文本>")


def mask(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis with everything private masked; verdicts, steps, weights and settings stay."""
    return replace(
        diagnosis,
        run=_masked(diagnosis.run),
        read=tuple(_read(read) for read in diagnosis.read),
        sightings=tuple(_sighting(sighting) for sighting in diagnosis.sightings),
        findings=tuple(_finding(finding) for finding in diagnosis.findings),
    )


def _read(read: Read) -> Read:
    return replace(read, source=_masked(read.source), note=_words(read.note))


def _sighting(sighting: Sighting) -> Sighting:
    return replace(sighting, exhibits=tuple(_exhibit(exhibit) for exhibit in sighting.exhibits))


def _finding(finding: Finding) -> Finding:
    return replace(finding, exhibits=tuple(_exhibit(exhibit) for exhibit in finding.exhibits), note=_words(finding.note))


def _exhibit(exhibit: Exhibit) -> Exhibit:
    text: Words = PRIVATE if exhibit.private else _words(exhibit.text)
    return replace(exhibit, text=text, where=_words(exhibit.where), source=_masked(exhibit.source))


def _words(words: Words) -> Words:
    return _masked(words) if isinstance(words, str) else Text(_masked(words.en), _masked(words.zh))


def _masked(text: str) -> str:
    for shape, instead in _MASKS:
        text = shape.sub(instead, text)
    return text
