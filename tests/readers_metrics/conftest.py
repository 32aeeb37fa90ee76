"""Fixtures for the readers of metric files."""

import gzip
import json
from pathlib import Path

import pytest

from tuneclinic.probes.reading import SourceFile

FILES = Path(__file__).parent / "files"


@pytest.fixture
def real():
    """A file that the logging library itself wrote, by name."""
    return lambda name: SourceFile(FILES / name, name)


@pytest.fixture
def written(tmp_path):
    """Writes a file and gives it as a source: text, bytes, rows (as JSON lines) or any other value (as JSON)."""

    def write(name, content, *, zipped=False, lines=False):
        if lines:
            content = "".join(json.dumps(row) + "\n" for row in content)
        elif not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        content = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if zipped else content)
        return SourceFile(path, name)

    return write


def points(metrics, name):
    """Steps and values of a series as lists."""
    series = metrics.get(name)
    return None if series is None else (series.steps.tolist(), series.values.tolist())
