"""ms-swift's `logging.jsonl`: one JSON object a logged step, in three layouts, and a last line about the whole run.

Rows name the step `global_step`, with or without token accuracy, or `"global_step/max_steps": "1/438"`. Several processes
may write the same row.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._jsonl import readings_of
from tuneclinic.probes.readers._rows import flat, head_rows, json_lines, sure
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Model

_PARAMETERS = pattern(r"([\d.]{1,20})M Params \(([\d.]{1,20})M Trainable", re.ASCII)
_RUN_KEYS = frozenset({"last_model_checkpoint", "best_model_checkpoint", "model_info", "dataset_info", "log_history"})


class SwiftLogging(Reader):
    """Reads ms-swift's `logging.jsonl`."""

    kind: ClassVar[str] = "ms-swift logging.jsonl"
    precedence: ClassVar[int] = 25

    def claims(self, file: SourceFile) -> float:
        """By keys that only ms-swift writes, or by the name and rows of metrics."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """A reading a run; the model's size is taken from the last line."""
        collector, skipped = Collector(file.name), Counter[str]()
        damage: list[str] = []
        about: dict[str, Any] = {}
        for line, row in json_lines(file, damage):
            if not isinstance(row, dict):
                skipped["lines that are no JSON object"] += 1
            elif "loss" not in row and row.keys() & _RUN_KEYS:
                about = row
            elif not collector.add(flat(row), line):
                skipped["rows without numbers"] += 1
        readings = readings_of(collector, skipped, damage, ended=True if about else None)
        if about and readings[-1].understood:
            readings[-1] = _with_model(readings[-1], about, file.name)
        return readings


def _claim(file: SourceFile) -> float:
    rows = head_rows(file, 3)
    for row in rows:
        if "global_step/max_steps" in row or any(str(key).startswith("train_speed(") for key in row):
            return 0.96
    named = file.base == "logging.jsonl"
    return 0.9 if named and any("loss" in row or "global_step" in row for row in rows) else 0.0


def _with_model(reading: Reading, about: dict[str, Any], source: str) -> Reading:
    """The reading with what the run's last line says of the model."""
    understood = {**reading.understood, "run lines": 1}
    info = about.get("model_info")
    told = _PARAMETERS.search(info[:2000]) if isinstance(info, str) else None
    if not told or not isinstance(info, str):
        return replace(reading, understood=understood)
    try:
        sizes = [float(part) * 1e6 for part in told.groups()]
    except ValueError:
        return replace(reading, understood=understood)
    name = info.partition(":")[0].strip()[:100]
    model = Model(architecture=name or None, parameters=sizes[0], trainable=sizes[1], sources=(source,))
    return replace(reading, evidence=replace(reading.evidence, model=model), understood=understood)
