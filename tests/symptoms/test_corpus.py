"""Symptoms over the real runs of the corpus: silent on the healthy ones, seen on the labelled ones."""

import json

import pytest

from tuneclinic.clinic import runs
from tuneclinic.registry import found
from tuneclinic.symptom import Symptom

pytestmark = pytest.mark.corpus
SYMPTOMS = found("tuneclinic.symptoms", Symptom)


@pytest.fixture(scope="module")
def results(corpus):
    """(label line, symptoms seen or hinted at) of every run that has a file."""
    lines = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text("utf-8").splitlines()]
    answers = []
    for line in lines:
        if line["class"] == "run" and line["file"]:
            seen = {
                symptom.id
                for run in runs([corpus / line["file"]])
                for symptom in SYMPTOMS
                if symptom.see(run.evidence).verdict in {"confirmed", "suspected"}
            }
            answers.append((line, seen))
    return answers


def test_no_forbidden_symptom(results):
    alarms = [(line["file"], seen & set(line["must_not"])) for line, seen in results if seen & set(line["must_not"])]
    assert alarms == []


def test_healthy_runs_are_silent(results):
    assert [(line["file"], seen) for line, seen in results if line["symptoms"] == ["healthy"] and seen] == []


def test_labelled_symptoms_are_seen(results):
    asked = missed = 0
    for line, seen in results:
        expected = set(line["symptoms"]) - {"healthy", "unclear"}
        if line["form"] == "series":
            expected -= set(line["needs_text"])
        asked += len(expected)
        missed += len(expected - seen)
    assert asked >= 25
    assert missed <= asked // 10
