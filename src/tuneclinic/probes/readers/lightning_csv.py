"""Lightning's `metrics.csv`: sparse, with step and epoch metrics on different rows."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._jsonl import readings_of
from tuneclinic.probes.readers._rows import bounded_lines, sure
from tuneclinic.probes.reading import Reader, Reading, SourceFile

MOST_COLUMNS = 2000
"""Columns of one table; the rest of a wider row is left out."""


class LightningCsv(Reader):
    """Reads Lightning's `metrics.csv`."""

    kind: ClassVar[str] = "Lightning metrics.csv"
    precedence: ClassVar[int] = 25

    def claims(self, file: SourceFile) -> float:
        """By name and a header with `step`, `epoch` and a loss."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """A reading a run."""
        roles = {column: role for role, column in file.columns.items()}
        collector, skipped = Collector(file.name, roles), Counter[str]()
        damage: list[str] = []
        for line, row in csv_rows(file, damage, skipped):
            if not collector.add(row, line):
                skipped["rows without numbers"] += 1
        return readings_of(collector, skipped, damage)


def _claim(file: SourceFile) -> float:
    header = {name.strip().lower() for name in file.head_text.partition("\n")[0][:20_000].split(",")}
    if "step" not in header or not any("loss" in name for name in header):
        return 0.0
    if file.base == "metrics.csv":
        return 0.95
    return 0.8 if "epoch" in header and "lightning_logs" in file.name else 0.0


def csv_rows(
    file: SourceFile, damage: list[str], skipped: Counter[str], delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and filled cells of every row below the header, which is the first line that is not blank."""
    header: list[str] = []
    first: list[str] = []
    for line, text in bounded_lines(file, damage):
        cells = _cells(text, delimiter)
        if cells is None:
            skipped["malformed rows"] += 1
        elif not any(cells):
            continue
        elif not header:
            first = cells[:MOST_COLUMNS]
            header = [cell.strip().lstrip("\ufeff") for cell in first]
        elif cells[: len(first)] != first:  # a resumed run appends its header again
            yield line, {name: cell for name, cell in zip(header, cells, strict=False) if cell}


def _cells(text: str, delimiter: str) -> list[str] | None:
    """The cells of one line, None where it is malformed. Quoted cells that run over lines are texts, no metrics, and are cut."""
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text.replace("\0", "")], delimiter=delimiter), [])
    except csv.Error:
        return None
