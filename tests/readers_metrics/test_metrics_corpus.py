"""Every run of the corpus that these readers take: points, first, smallest and last training loss are the manifest's."""

import json

import numpy as np
import pytest

from tuneclinic.probes.gather import choose
from tuneclinic.probes.readers.outputs import GeneratedOutputs
from tuneclinic.probes.readers.results import Results
from tuneclinic.probes.readers.table import Table
from tuneclinic.probes.reading import SourceFile

pytestmark = pytest.mark.corpus
KINDS = {
    "trainer_state.json": "trainer_state.json",
    "trainer_log.jsonl": "trainer_log.jsonl",
    "ms-swift logging.jsonl": "ms-swift logging.jsonl",
    "tfevents": "TensorBoard events",
    "all_results.json": "results",
}
DIGITS = 1e-6
"""Relative. The manifest gives seven digits."""


def entries(corpus):
    for line in (corpus / "manifest.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["class"] == "run" and entry["file"] and (entry["kind"] in KINDS or entry["file"].endswith("series.json")):
            yield entry


def test_every_run_is_read_as_the_manifest_has_it(corpus):
    wrong, seen = [], 0
    for entry in entries(corpus):
        file = SourceFile(corpus / entry["file"], entry["file"].split("/", 2)[2])
        (reader,) = [reader for reader in choose(file) if not reader.also]
        expected = "table of metrics" if entry["file"].endswith("series.json") else KINDS[entry["kind"]]
        (reading,) = reader.read(file)
        metrics = reading.evidence.metrics
        loss = metrics.get("loss") if metrics else None
        got = (0, None, None, None) if loss is None else (len(loss), loss.values[0], np.nanmin(loss.values), loss.values[-1])
        want = (entry["points"], entry["first"], entry["min"], entry["last"])
        same = got[0] == want[0] and all(
            (mine is None) == (theirs is None) and (mine is None or mine == pytest.approx(theirs, rel=DIGITS))
            for mine, theirs in zip(got[1:], want[1:], strict=True)
        )
        seen += 1
        if reader.kind != expected or not same or (metrics is not None and metrics.resumed_at and "128" not in entry["file"]):
            wrong.append((entry["file"], reader.kind, got, want))
    assert seen >= 50
    assert wrong == []


def test_no_other_file_of_the_corpus_is_claimed(corpus):
    claimed = []
    for folder in ("datasets", "configs", "templates", "tokenizers"):
        for path in sorted((corpus / folder).iterdir()):
            file = SourceFile(path, path.name)
            claimed += [(path.name, reader.kind) for reader in (Table(), GeneratedOutputs(), Results()) if reader.claims(file)]
    assert claimed == []
