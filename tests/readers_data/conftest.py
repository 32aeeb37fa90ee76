"""Small data sets for the tests beside this file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tuneclinic.probes.data.tables import data_of, table_of
from tuneclinic.probes.reading import SourceFile
from tuneclinic.sections import Data


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., SourceFile]:
    """Writes a file of text, bytes, or rows (JSON lines or an array, by its name)."""

    def write(content: object, name: str = "train.jsonl") -> SourceFile:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_bytes(content.encode("utf-8", "surrogatepass"))
        elif name.endswith(".jsonl"):
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content), encoding="utf-8")
        else:
            path.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
        return SourceFile(path, name)

    return write


@pytest.fixture
def read(source: Callable[..., SourceFile]) -> Callable[..., Data]:
    """The data section of such a file."""
    return lambda content, name="train.jsonl": data_of(table_of(source(content, name)))


@pytest.fixture
def rows() -> Callable[[Data, str], tuple[int, ...]]:
    """All row numbers of one defect; fails where the check was not made."""

    def of(data: Data, name: str) -> tuple[int, ...]:
        assert name in data.checked, f"{name} was not checked"
        return tuple(row for found in data.defect(name) for row in found.rows)

    return of


@pytest.fixture
def pair() -> Callable[[str, str], dict[str, object]]:
    """One chat row of two turns."""
    return lambda question, answer: {
        "messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    }


@pytest.fixture
def healthy(pair: Callable[[str, str], dict[str, object]]) -> Callable[[int], list[dict[str, object]]]:
    """Rows that nothing is wrong with, each another."""
    return lambda count: [
        pair(f"Please write about item {index}.", f"Item {index} is one of {index + 7} in its class, and here is why.")
        for index in range(count)
    ]
