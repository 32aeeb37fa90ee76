"""MLflow's local stores: the folders `mlruns/<experiment>/<run>/{metrics,params}/<name>` and the database `mlflow.db`.

A metric file holds a line a point: time in milliseconds, value, step. A parameter file holds one value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._config import logged_settings
from tuneclinic.probes.readers._jsonl import readings_of
from tuneclinic.probes.readers._rows import READ_ERRORS, bounded_lines, nothing, number, sure
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.words import Text

if TYPE_CHECKING:
    import sqlite3

SQLITE = b"SQLite format 3\0"
MOST_RUNS = 64
"""Runs read of one database, the ones with the most points."""
MOST_ROWS = 2_000_000
"""Points read of one run in a database."""
PARAMETER_CHARS = 6000
"""Characters of a parameter; MLflow itself cuts at 6000."""
STEPS_OF_WORK = 200_000_000
"""Instructions of SQLite's virtual machine after which a query is given up: some seconds; a scan of two million rows needs
about a tenth."""
_POINT = pattern(r"-?\d{1,20} \S{1,40}(?: -?\d{1,18})?\s*")


class MlflowMetric(Reader):
    """Reads one file of a run's `metrics` or `params` folder."""

    kind: ClassVar[str] = "MLflow run"
    precedence: ClassVar[int] = 30

    def claims(self, file: SourceFile) -> float:
        """By its folder and, for a metric, by its first line; for a parameter, by the `meta.yaml` beside its folder."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """One series, or one setting."""
        folder, name = _place(file)
        return _read_metric(file, name) if folder == "metrics" else _read_parameter(file, name)


class MlflowDatabase(Reader):
    """Reads `mlflow.db`, read-only."""

    kind: ClassVar[str] = "MLflow database"
    precedence: ClassVar[int] = 30

    def claims(self, file: SourceFile) -> float:
        """A SQLite file that holds MLflow's tables."""
        if not file.head.startswith(SQLITE) or file.zipped:
            return 0.0
        named = "mlflow" in file.base or "mlruns" in file.base
        return 0.97 if b"experiment_tags" in file.head or b"latest_metrics" in file.head else 0.5 if named else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """A reading a run."""
        import sqlite3  # noqa: PLC0415 - only databases need it

        try:
            connection = _connect(file)
        except (sqlite3.Error, OSError, ValueError) as error:
            return nothing(_unreadable(error))
        try:
            return list(_runs(connection, file)) or nothing(
                Text("the database holds no run with a metric", "数据库里没有带指标的 run")
            )
        except (sqlite3.Error, OverflowError, ValueError, TypeError) as error:
            return nothing(_unreadable(error))
        finally:
            connection.close()


def _unreadable(error: Exception) -> Text:
    return Text(f"the database could not be read: {error}", f"数据库读取失败：{error}")


def _place(file: SourceFile) -> tuple[str, str]:
    """The folder (`metrics` or `params`, "" for neither) and the name below it, which may have folders of its own."""
    parts = PurePosixPath(file.name).parts
    full = parts if len(parts) > 2 else file.path.parts[-6:]
    for folder in ("metrics", "params"):
        if folder in full[:-1]:
            at = len(full) - 1 - full[::-1].index(folder)
            return folder, "/".join(full[at + 1 :])
    return "", ""


def _claim(file: SourceFile) -> float:
    folder, _ = _place(file)
    if not folder or file.binary:
        return 0.0
    if folder == "metrics":
        first = file.head_text.partition("\n")[0]
        return 0.95 if _POINT.fullmatch(first) else 0.0
    beside = file.path.parent.parent / "meta.yaml"
    return 0.95 if file.size <= 4 * PARAMETER_CHARS and beside.is_file() else 0.0


def _read_metric(file: SourceFile, name: str) -> list[Reading]:
    collector, skipped = Collector(file.name), Counter[str]()
    damage: list[str] = []
    for line, text in bounded_lines(file, damage):
        if not text:
            continue
        parts = text.split() if _POINT.fullmatch(text) else []
        if not parts or not collector.add({name: parts[1], "step": parts[2] if len(parts) > 2 else line}, line):
            skipped["malformed lines"] += 1
    readings = readings_of(collector, skipped, damage, split=False)
    return [replace(one, understood={"points": sum(one.understood.values())} if one.understood else {}) for one in readings]


def _read_parameter(file: SourceFile, name: str) -> list[Reading]:
    try:
        value = file.text(PARAMETER_CHARS).strip()
    except READ_ERRORS as error:
        return nothing(str(error) or type(error).__name__)
    settings = logged_settings({name: _typed(value)}, file.name)
    if settings is None:
        return [Reading(understood={"other parameters": 1})]
    return [Reading(Evidence(settings=settings), {"settings": 1})]


def _typed(value: str) -> Any:
    """A parameter as what it was before MLflow wrote it as text."""
    if value in {"True", "False"}:
        return value == "True"
    if value in {"None", ""}:
        return None
    held = number(value)
    if held is None:
        return value
    return int(held) if re.fullmatch(r"-?\d{1,15}", value) else held


def _connect(file: SourceFile) -> sqlite3.Connection:
    """The database opened read-only and unlocked, with a limit on the work of each query."""
    import sqlite3  # noqa: PLC0415 - only databases need it
    from urllib.parse import quote  # noqa: PLC0415 - as above

    connection = sqlite3.connect(f"file:{quote(str(file.path.resolve()))}?mode=ro&immutable=1", uri=True)
    left = [STEPS_OF_WORK // 10_000]

    def work() -> int:
        left[0] -= 1
        return int(left[0] < 0)

    connection.set_progress_handler(work, 10_000)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.text_factory = lambda content: content[:PARAMETER_CHARS].decode("utf-8", errors="replace")
    return connection


def _runs(connection: sqlite3.Connection, file: SourceFile) -> Iterator[Reading]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 1000")}
    if "metrics" not in tables:
        return
    counted = connection.execute("SELECT run_uuid, count(*) FROM metrics GROUP BY run_uuid ORDER BY 2 DESC LIMIT ?", (MOST_RUNS,))
    identities = [identity for identity, _ in counted.fetchall()]
    for identity in identities:
        collector = Collector(file.name)
        query = "SELECT key, CASE WHEN is_nan THEN 'nan' ELSE value END, step FROM metrics WHERE run_uuid = ? ORDER BY step, timestamp LIMIT ?"
        for row, (key, value, step) in enumerate(connection.execute(query, (identity, MOST_ROWS)), 1):
            collector.add({str(key): value, "step": step}, row)
        for reading in readings_of(collector, {}, [], split=False):
            config = _parameters(connection, identity) if "params" in tables else {}
            settings = logged_settings(config, file.name)
            understood = {"points": sum(reading.understood.values())} if reading.understood else {}
            if settings:
                understood["settings"] = len(settings.values)
            name = str(identity)[:100] if len(identities) > 1 else ""
            yield replace(reading, evidence=replace(reading.evidence, settings=settings), understood=understood, run=name)


def _parameters(connection: sqlite3.Connection, identity: Any) -> dict[str, Any]:
    rows = connection.execute("SELECT key, value FROM params WHERE run_uuid = ? LIMIT 2000", (identity,))
    return {str(key): _typed(value) if isinstance(value, str) else value for key, value in rows}
