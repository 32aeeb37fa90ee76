"""LLaMA-Factory's `trainer_log.jsonl`: one JSON object a logged step, in three layouts.

Old ones write `learning_rate` beside nulls for what a row lacks, then `learning_rate` without nulls, newer ones `lr`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._jsonl import readings_of
from tuneclinic.probes.readers._rows import head_rows, json_lines, sure
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Series

_ROLES = {"accuracy": "rewards/accuracies", "throughput": "tokens_per_second"}
"""The callback writes `rewards/accuracies` of preference training under `accuracy`, and tokens per second as `throughput`."""
SHORTEST = 5.0
"""Seconds between two rows below which the clock, which counts whole seconds, tells their pace to no better than 20 %."""
USABLE = 0.5
"""Share of the rows that must be far enough apart."""
_CLOCK = pattern(r"(?:(\d{1,5}) days?, )?(\d{1,3}):(\d\d):(\d\d)", re.ASCII)


class TrainerLog(Reader):
    """Reads `trainer_log.jsonl`."""

    kind: ClassVar[str] = "trainer_log.jsonl"
    precedence: ClassVar[int] = 25

    def claims(self, file: SourceFile) -> float:
        """By name, or by rows that hold both the current and the planned step."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """A reading a run; the last row of a finished run often holds no loss."""
        collector, skipped = Collector(file.name, _ROLES), Counter[str]()
        damage: list[str] = []
        planned: Any = None
        ended = False
        for line, row in json_lines(file, damage):
            if not isinstance(row, dict):
                skipped["lines that are no JSON object"] += 1
                continue
            trained = row.get("loss") is not None
            planned = row.get("total_steps", planned) if trained or planned is None else planned
            if not trained and row.get("total_steps") != planned:
                collector.add_summary(_evaluation(row), line)  # evaluated again after training, with steps of its own
                continue
            if not collector.add(_cleaned(row), line):
                skipped["rows without numbers"] += 1
            ended = planned is not None and row.get("current_steps") == planned
        readings = readings_of(collector, skipped, damage, ended=ended if planned is not None else None)
        return [_with_pace(reading) for reading in readings]


def _claim(file: SourceFile) -> float:
    rows = head_rows(file, 3)
    fits = any("current_steps" in row and "total_steps" in row for row in rows)
    if fits:
        return 0.97
    return 0.6 if file.base.startswith("trainer_log") and file.base.endswith((".jsonl", ".json")) and rows else 0.0


def _with_pace(reading: Reading) -> Reading:
    """The reading with seconds a step from the clock, without the stretches in which an evaluation ran."""
    metrics = reading.evidence.metrics
    loss, clock = (metrics.get("loss"), metrics.get("elapsed_seconds")) if metrics else (None, None)
    if metrics is None or loss is None or loss.lines is None or clock is None or clock.lines is None:
        return reading
    trained = clock.lines[np.isin(clock.lines, loss.lines)]
    at = np.flatnonzero(np.isin(clock.lines, trained))
    seconds, steps = np.diff(clock.values[at]), np.diff(clock.steps[at])
    good = (seconds >= SHORTEST) & (steps > 0) & (np.diff(at) == 1)
    if len(seconds) == 0 or good.mean() < USABLE:
        return reading
    ends = at[1:][good]
    pace = Series(clock.steps[ends], seconds[good] / steps[good], clock.source, clock.lines[ends])
    changed = replace(metrics, series={**metrics.series, "step_seconds": pace})
    return replace(reading, evidence=replace(reading.evidence, metrics=changed))


def _evaluation(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("eval_loss", "predict_loss", "reward", "accuracy") if row.get(name) is not None}


def _cleaned(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the throughput that older versions write as 0.00, and with its clock in seconds."""
    if str(row.get("throughput")) in {"0", "0.0", "0.00"}:
        row.pop("throughput")
        row.pop("total_tokens", None)
    clock = _CLOCK.fullmatch(str(row.get("elapsed_time", ""))[:40])
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        row["elapsed_seconds"] = ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    return row
