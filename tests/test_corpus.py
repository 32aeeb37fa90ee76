"""The labelled runs: silent where healthy or bait, and the labelled symptoms found."""

import json
from collections import Counter

import pytest

from tuneclinic.clinic import diagnose

pytestmark = pytest.mark.corpus

NOT_COUNTED = {"healthy", "unclear", "bait"}
WRONG_LABELS = {}
"""Runs whose label the numbers show to be wrong, with the numbers."""


@pytest.fixture(scope="module")
def runs(corpus):
    rows = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    found = []
    for row in rows:
        if row["class"] == "run" and row["file"]:
            seen = {
                sighting.symptom
                for diagnosis in diagnose(corpus / row["file"])
                for sighting in diagnosis.sightings
                if sighting.verdict in {"confirmed", "suspected"}
            }
            found.append((row, seen))
    return found


def test_no_symptom_in_a_healthy_or_bait_run(runs):
    alarms = {
        row["file"]: sorted(seen) for row, seen in runs if ("bait" in row["findings"] or "healthy" in row["findings"]) and seen
    }
    assert alarms == {}


def test_nothing_that_a_label_forbids(runs):
    alarms = {row["file"]: sorted(seen & set(row["must_not"])) for row, seen in runs if seen & set(row["must_not"])}
    assert alarms == {}


def test_nine_of_ten_labelled_symptoms_are_found(runs):
    wanted, missed = Counter(), []
    for row, seen in runs:
        if row["file"] in WRONG_LABELS:
            continue
        text_only = set(row["needs_text"] or ()) if row["form"] == "series" else set()
        for symptom in set(row["symptoms"]) - NOT_COUNTED - text_only:
            wanted[symptom] += 1
            if symptom not in seen:
                missed.append((row["file"], symptom))
    assert len(missed) <= 0.1 * sum(wanted.values()), missed
