"""The public runs beside the checkout, read as a user would give them, with their labels."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneclinic import clinic, triage
from tuneclinic.diagnosis import Diagnosis
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Metrics, Series

FOLDER = Path(os.environ.get("TUNECLINIC_CORPUS", Path(__file__).resolve().parents[2] / "shared" / "corpus"))

WRONG_LABELS: dict[str, str] = {}
"""Labels that the numbers contradict, by file: the reason. Runs named here are scored without their label."""


@dataclass(frozen=True)
class Labelled:
    """One run of the corpus: what must be seen (any of `symptoms` each), what must not be, whether the label is healthy or bait."""

    file: str
    symptoms: tuple[str, ...]
    must_not: tuple[str, ...]
    quiet: bool
    diagnoses: tuple[Diagnosis, ...]

    @property
    def seen(self) -> set[str]:
        """Symptoms that any of its diagnoses confirms."""
        return {sighting.symptom for one in self.diagnoses for sighting in one.seen}

    @property
    def hinted(self) -> set[str]:
        """Symptoms that any of its diagnoses suspects."""
        return {s.symptom for one in self.diagnoses for s in one.sightings if s.verdict == "suspected"}


def absent() -> str:
    """Why the corpus cannot be read; "" where it can."""
    return "" if (FOLDER / "manifest.jsonl").is_file() else f"the corpus of real runs is not at {FOLDER}"


def labelled() -> list[Labelled]:
    """Every run that has a file, diagnosed."""
    with (FOLDER / "manifest.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [_one(row) for row in rows if row["class"] == "run" and row["file"]]


def _one(row: dict[str, Any]) -> Labelled:
    path = FOLDER / row["file"]
    series_only = path.name == "series.json"
    diagnoses = (triage.examine(_series(path), path.parent.name),) if series_only else tuple(clinic.diagnose(path))
    quiet = row["label"] == "healthy" or "bait" in row["findings"]
    wanted = [name for name in row["symptoms"] if name not in {"healthy", "unclear"}]
    if series_only:
        wanted = [name for name in wanted if name not in row["needs_text"]]
    return Labelled(row["file"], tuple(wanted), tuple(row["must_not"]), quiet, diagnoses)


def _series(path: Path) -> Evidence:
    """The numbers of a run whose own file could not be kept: series by unified names, and end-of-run sums."""
    held = json.loads(path.read_text(encoding="utf-8"))
    series, summary = {}, {}
    for name, points in held["series"].items():
        steps, values = zip(*points, strict=True)
        numbers = [float(value) for value in values]
        if name.startswith("summary/"):
            summary[name.removeprefix("summary/")] = numbers[-1]
        else:
            series[name] = Series.of(numbers, [float(step) for step in steps], "series.json")
    metrics = Metrics(series, summary=summary, rows_are_steps=held["step_kind"] == "row", source="series.json")
    return Evidence(metrics=metrics)
