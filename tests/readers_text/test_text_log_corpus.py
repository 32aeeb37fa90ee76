"""All text logs of the corpus against the points, the first, the lowest and the last loss that its manifest counts."""

import json

import numpy as np
import pytest

from tuneclinic.probes.readers.text_log import TextLogReader
from tuneclinic.probes.reading import SourceFile

TEXT = ("stdout/stderr text", "wandb output.log", "LLaMA-Factory running_log.txt")


def logs(corpus):
    entries = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text().splitlines()]
    return [
        entry
        for entry in entries
        if entry["class"] == "run" and entry["kind"] in TEXT and entry["file"] and entry["form"] != "series"
    ]


@pytest.mark.corpus
def test_training_losses_of_the_corpus(corpus):
    reader, entries = TextLogReader(), logs(corpus)
    assert len(entries) >= 35
    wrong = []
    for entry in entries:
        file = SourceFile(corpus / entry["file"], entry["file"].rsplit("/", 1)[-1])
        assert reader.claims(file) > 0.3
        readings = reader.read(file)
        series = [reading.evidence.metrics.get("loss") for reading in readings if reading.evidence.metrics]
        values = np.concatenate([one.values for one in series if one is not None] or [np.zeros(0)])
        expected = [entry["points"], *(entry[name] for name in ("first", "min", "last") if entry["points"])]
        found = [len(values), *((values[0], np.nanmin(values), values[-1]) if len(values) else ())]
        if not np.allclose(np.array(found, float), np.array(expected, float), rtol=1e-5, atol=1e-6, equal_nan=True):
            wrong.append((entry["file"], found, expected))
    assert not wrong


@pytest.mark.corpus
def test_labelled_crashes_of_the_corpus_are_read(corpus):
    reader = TextLogReader()
    for entry in logs(corpus):
        if set(entry["symptoms"]) & {"crashes", "oom-at-start"}:
            file = SourceFile(corpus / entry["file"], "run.log")
            assert any(reading.evidence.crash for reading in reader.read(file)), entry["file"]
