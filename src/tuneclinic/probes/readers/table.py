"""Any table of metrics: CSV, TSV, JSON lines or JSON, read by what its columns are called.

The roles of the columns are said in the note, and `read_table(file, roles={...})` overrides them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._jsonl import readings_of
from tuneclinic.probes.readers._metric_names import STEP_NAMES, meaning, normal
from tuneclinic.probes.readers._rows import (
    MANY_VALUES,
    document,
    flat,
    head_rows,
    is_json_lines,
    json_lines,
    nothing,
    number,
    objects_after,
    step_number,
    sure,
)
from tuneclinic.probes.readers._series_json import is_series_document, read_series_document
from tuneclinic.probes.readers.lightning_csv import csv_rows
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.words import Text

TEXT_COLUMNS = frozenset({
    "messages", "conversations", "conversation", "instruction", "prompt", "question", "query", "chosen", "rejected", "input_ids",
    "labels", "text", "content", "response", "completion", "answer", "output", "generated_text", "predict",
})  # fmt: skip
"""Columns of data sets and generations: a file that has them as text is no log of metrics."""
QUANTITIES = frozenset({"loss", "eval_loss", "grad_norm", "reward", "perplexity", "eval_perplexity"})
"""A table needs one of these to be a training log; anything else with numbers is somebody's spreadsheet."""
STEP_COLUMNS = (*STEP_NAMES, "Step", "Global Step", "batch", "epoch", "Epoch")
"""Columns that count; an epoch only where nothing finer does."""
SAID = 0.98
"""A claim on a file that has a column the user named."""
LONGEST_CELL = 200
"""Characters. No metric, name or time is longer; a column of such texts is data."""
_SERIES = pattern(r'"series"\s*:\s*\{\s*"[^"]{1,200}"\s*:\s*\[\s*\[')
_ROWS_BELOW = pattern(r'"[^"]{1,100}"\s*:\s*\[\s*\{')
MOST_SHOWN = 6
"""Columns named in the note; the rest is counted."""


class Table(Reader):
    """Reads a table of metrics by the roles of its columns."""

    kind: ClassVar[str] = "table of metrics"
    precedence: ClassVar[int] = 40

    def claims(self, file: SourceFile) -> float:
        """By columns: a step or an epoch, a loss or the like, and no texts."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """A reading a run."""
        return read_table(file, roles_given(file))


def roles_given(file: SourceFile) -> dict[str, str]:
    """Column → role, as the user gave them with the file."""
    return {column: role for role, column in file.columns.items()}


def read_table(file: SourceFile, roles: Mapping[str, str] | None = None) -> list[Reading]:
    """The metrics of any table.

    Args:
        file: CSV, TSV, JSON lines, a JSON array of objects, columns (`{"loss": [...]}`) or `{"series": {name: [[step, value]]}}`.
        roles: column → "step", one of the names of `Metrics.series`, or "" to leave the column out. Columns that are not
            named keep the role that their name suggests.

    Returns:
        One reading, or one a run where steps begin anew. The note says which column was read as what.
    """
    rows, skipped = _Rows(file), Counter[str]()
    if rows.series is not None:
        return read_series_document(rows.series, file.name, roles)
    collector, given = None, dict(roles or {})
    columns: dict[str, str] = {}
    for line, row in rows:
        if row is None:
            skipped["lines that are no row"] += 1
            continue
        if collector is None:
            columns = columns_of(row, file, given)
            collector = Collector(file.name, {**columns, **given})
        if not collector.add(row, line):
            skipped["rows without numbers"] += 1
    if collector is None:
        return nothing(Text("no table was found in the file", "文件里没有找到表格"), skipped)
    return readings_of(collector, skipped, rows.damage, _said(collector))


def columns_of(row: Mapping[str, Any], file: SourceFile, given: Mapping[str, str]) -> dict[str, str]:
    """Roles that names alone do not give: the counting column, and the `Value` of a series that was exported by itself."""
    roles: dict[str, str] = {}
    if "step" not in given.values():
        counting = next((name for name in STEP_COLUMNS if name in row and step_number(row[name]) is not None), None)
        if counting:
            roles[counting] = "step"
    value = next((name for name in row if name.strip().lower() == "value"), None)
    if value and {name.strip().lower() for name in row} >= {"wall time", "step"}:
        roles[value] = _name_of_file(file)
    for name in row:
        run, dash, metric = name.rpartition(" - ")
        if dash and run:  # W&B's export: `run name - train/loss`, with __MIN and __MAX beside it
            roles[name] = "" if metric.endswith(("__MIN", "__MAX")) else meaning(metric)[0]
    return roles


def _name_of_file(file: SourceFile) -> str:
    """The quantity of TensorBoard's single-series export, from the file's name: `run-…-tag-train_loss.csv`."""
    stem = normal(PurePosixPath(file.base).stem)
    tag = stem.rpartition("tag_")[2] if "tag_" in stem else stem
    if "loss" not in tag or tag.startswith("eval_"):
        return meaning(tag)[0]
    return "eval_loss" if any(part in tag for part in ("eval", "val")) else "loss"


class _Rows:
    """The rows of a table in whatever form it has: iterates over line (or row) numbers and rows, None where malformed."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.damage: list[str] = []
        self.series: dict[str, Any] | None = None
        self.skipped: Counter[str] = Counter()
        head = file.head_text.lstrip("\ufeff \t\r\n")
        self.lines = is_json_lines(head)
        self.document: list[tuple[int, dict[str, Any]]] | None = None
        if head.startswith(("{", "[")) and not self.lines:
            self._load()

    def _load(self) -> None:
        value, text, problem = document(self.file)
        if isinstance(value, dict) and is_series_document(value):
            self.series = value
            return
        if problem.startswith(MANY_VALUES) and text.startswith("{"):
            self.lines = True
            return
        if problem:
            self.damage.append(problem)
            value, _ = objects_after(text, text.find("[") + 1) if "[" in text else ([], False)
        elif isinstance(value, dict) and not _objects(value):
            value = [value]
        self.document = list(enumerate(_objects(value), 1))

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        if self.document is not None:
            for line, row in self.document:
                yield line, flat(row)
        elif self.lines:
            for line, row in json_lines(self.file, self.damage):
                yield line, flat(row) if isinstance(row, dict) else None
        else:
            yield from csv_rows(self.file, self.damage, self.skipped, delimiter_of(self.file))


def _objects(value: Any) -> list[dict[str, Any]]:
    """The rows in a JSON document: a list of objects, the longest such list in an object, or columns of equal length."""
    if isinstance(value, list):
        return [row for row in value if isinstance(row, dict)]
    if not isinstance(value, dict):
        return []
    lists = {str(name): held for name, held in value.items() if isinstance(held, list)}
    rows = max(([row for row in held if isinstance(row, dict)] for held in lists.values()), key=len, default=[])
    if rows:
        return rows
    columns = {name: held for name, held in lists.items() if held and number(held[0]) is not None}
    length = max((len(held) for held in columns.values()), default=0)
    return [{name: held[at] for name, held in columns.items() if at < len(held)} for at in range(length)]


def delimiter_of(file: SourceFile) -> str:
    """The separator of the header line: the most frequent of tab, comma and semicolon."""
    header = next((line for line in file.head_text.splitlines() if line.strip()), "")
    return max(("\t", ",", ";"), key=header[:20_000].count)


def _claim(file: SourceFile) -> float:
    if file.binary:
        return 0.0
    head = file.head_text.lstrip("\ufeff \t\r\n")
    if head.startswith(("{", "[")):
        return _claim_json(file, head)
    if not file.base.endswith((".csv", ".tsv", ".txt", ".log", ".dat")):
        return 0.0
    delimiter = delimiter_of(file)
    lines = [line for line in file.head_text.splitlines() if line.strip()][:3]
    if len(lines) < 2 or delimiter not in lines[0]:
        return 0.0
    cells = [line.split(delimiter) for line in lines]
    if len(cells[0]) < 2 or any(number(cell) is not None for cell in cells[0]) or abs(len(cells[1]) - len(cells[0])) > 1:
        return 0.0
    row = {name.strip().strip('"'): cell.strip().strip('"') for name, cell in zip(*cells[:2], strict=False)}
    if row.keys() & set(file.columns.values()):
        return SAID
    return 0.5 if _is_log(row) else 0.0


def _claim_json(file: SourceFile, head: str) -> float:
    if _SERIES.search(head[:4096]):
        return 0.9
    if head.startswith("[") or is_json_lines(head):
        rows = head_rows(file)
    else:  # one document: rows below some key, columns, or a single row
        found = _ROWS_BELOW.search(head)
        whole = head_rows(file, 1)
        rows, _ = objects_after(head, found.end() - 1, 2) if found else (_objects(whole[0]) if whole else [], False)
        if len(rows) < 2:
            rows = [row for row in whole if row.keys() & set(STEP_NAMES)]
    named = set(file.columns.values())
    if any(named & flat(row).keys() for row in rows):
        return SAID
    return 0.5 if any(_is_log(flat(row)) for row in rows) else 0.0


def _is_log(row: Mapping[str, Any]) -> bool:
    """Whether a row's columns are those of a training log."""
    if any(normal(name) in TEXT_COLUMNS and _is_text(value) for name, value in row.items()):
        return False
    if any(isinstance(value, str) and len(value) > LONGEST_CELL for value in row.values()):
        return False
    names = {str(name).strip() for name in row}
    known = {meaning(name.rpartition(" - ")[2] or name)[0] for name in names}
    counted = any(name in STEP_COLUMNS or name.lower() in STEP_COLUMNS for name in names)
    exported = {"wall time", "step", "value"} <= {name.lower() for name in names}
    numeric = any(number(value) is not None for value in row.values())
    return numeric and (exported or (bool(known & QUANTITIES) and (counted or len(known) <= 12)))


def _is_text(value: Any) -> bool:
    return isinstance(value, (list, dict)) or (isinstance(value, str) and number(value) is None)


def _said(collector: Collector) -> Text:
    """Which column was read as what."""
    step = next((name for name, role in collector.roles.items() if role == "step"), "")
    pairs = [f"{role} = {raw}" for raw, sink in collector.sinks.items() if sink and (role := collector.role_of(raw)) != raw]
    plain = [raw for raw, sink in collector.sinks.items() if sink and collector.role_of(raw) == raw]
    shown = [f"step = {step}"] if step else []
    shown += (pairs + plain)[:MOST_SHOWN]
    more = len(pairs) + len(plain) - MOST_SHOWN
    english = f"columns read as: {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")
    chinese = f"按列名识别为：{'、'.join(shown)}" + (f"，另有 {more} 列" if more > 0 else "")
    if not step:
        return Text(f"{english}; no step column, rows were counted", f"{chinese}；没有 step 列，按行计数")
    return Text(english, chinese)
