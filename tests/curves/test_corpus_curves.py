"""Public runs that exist as numbers only: silence on the healthy ones, the labelled symptom on the others."""

import json

import pytest

from tuneclinic.curves import Shape, shape
from tuneclinic.sections import Metrics, Series

READINGS = {
    "loss-not-falling": lambda found: found.no_learning,
    "loss-near-zero": lambda found: found.near_zero_from is not None,
    "overfits": lambda found: found.overfits_from is not None,
    "loss-diverges": lambda found: found.diverged_from is not None,
    "loss-oscillates": lambda found: found.oscillates,
    "nan-at-start": lambda found: found.nan_from is not None and found.nan_at_start,
    "nan-mid-run": lambda found: found.nan_from is not None and not found.nan_at_start,
    "eval-erratic": lambda found: found.eval_erratic,
    "resume-jumps": lambda found: found.resume_jump is not None,
    "slow": lambda found: found.throughput_decays is not None,
}


def read(path) -> Shape:
    held = json.loads(path.read_text(encoding="utf-8"))["series"]
    series = {
        name: Series.of([float(value) for _, value in points], [float(step) for step, _ in points])
        for name, points in held.items()
    }
    return shape(Metrics(series))


@pytest.mark.corpus
def test_series_of_public_runs(corpus):
    rows = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    runs = [row for row in rows if row["class"] == "run" and str(row["file"]).endswith("series.json")]
    assert len(runs) >= 20
    wrong = []
    for row in runs:
        found = read(corpus / row["file"])
        seen = {symptom for symptom, shows in READINGS.items() if shows(found)}
        missed = set(row["symptoms"]) & set(READINGS) - seen - set(row["needs_text"])
        quiet = row["label"] == "healthy" or "bait" in row["findings"]
        alarmed = seen if quiet else seen & set(row["must_not"])
        if missed or alarmed:
            wrong.append((row["file"], missed, alarmed))
    assert not wrong
