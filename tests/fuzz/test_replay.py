"""Damaged files of every kind never crash, hang or leak a reader's error; the kept seeds of long runs are replayed."""

import json
import time
from pathlib import Path

import pytest
from mutate import damaged
from samples import SAMPLES

from tuneclinic.probes.gather import choose, readers
from tuneclinic.probes.reading import SourceFile

SEEDS = json.loads(Path(__file__).with_name("seeds.json").read_text(encoding="utf-8"))
MOST_SECONDS = 5.0
"""CPU seconds for one small damaged file; the slowest seen takes a twentieth. A hang is what is looked for, not a slow machine."""


def read(folder, name, content):
    """Every reader that claims the file reads it, uncaught."""
    path = folder / name
    path.write_bytes(content)
    file = SourceFile(path, name)
    started = time.process_time()
    answers = [(reader.kind, reading) for reader in choose(file) for reading in reader.read(file)]
    assert time.process_time() - started < MOST_SECONDS
    return answers


@pytest.mark.parametrize("name", SAMPLES)
def test_whole_sample_is_understood(tmp_path, name):
    answers = read(tmp_path, name, SAMPLES[name])
    assert any(sum(reading.understood.values()) or reading.note for _, reading in answers)


@pytest.mark.parametrize("name", SAMPLES)
def test_kept_seeds(tmp_path, name):
    for seed in SEEDS.get(name, []):
        for _, reading in read(tmp_path, name, damaged(SAMPLES[name], seed)):
            assert sum(reading.understood.values()) or reading.note or reading.skipped, f"seed {seed} is answered with nothing"


def test_every_reader_has_a_sample(tmp_path):
    taken = set()
    for name, content in SAMPLES.items():
        (tmp_path / name).write_bytes(content)
        taken |= {reader.kind for reader in choose(SourceFile(tmp_path / name, name))}
    left = {reader.kind for reader in readers()} - taken
    assert left <= {"MLflow run", "W&B run files", "MLflow metrics"}, (
        left
    )  # these read whole folders, tested beside their readers
