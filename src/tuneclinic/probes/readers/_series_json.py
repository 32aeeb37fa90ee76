"""JSON documents that hold whole series: `{"series": {name: [[step, value], …]}}`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers._collect import MOST_NAMES, NAME_CHARS, borders_of, settled
from tuneclinic.probes.readers._metric_names import kind_of, meaning, summary_name
from tuneclinic.probes.readers._rows import nothing, number
from tuneclinic.probes.reading import Reading
from tuneclinic.sections import Metrics, Series
from tuneclinic.words import Text


def is_series_document(value: Mapping[str, Any]) -> bool:
    """Whether `value` holds series of pairs, or of plain values."""
    series = value.get("series")
    return isinstance(series, dict) and any(isinstance(points, list) for points in series.values())


def read_series_document(value: Mapping[str, Any], source: str, roles: Mapping[str, str] | None = None) -> list[Reading]:
    """The series of a document; non-finite values may be written as text, names under `summary/` are end-of-run numbers."""
    held: dict[str, tuple[int, Series]] = {}
    summary: dict[str, float] = {}
    understood: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    raws = [str(raw)[:NAME_CHARS] for raw in value["series"]][:MOST_NAMES]
    for raw in raws:
        series = _series(value["series"].get(raw), source, skipped)
        if series is None:
            skipped["series without points"] += 1
            continue
        role = (roles or {}).get(raw)
        once = "" if role else summary_name(raw) or raw.partition("summary/")[2]
        if once:
            summary[once] = float(series.values[-1])
            understood["summary values"] += 1
        elif role != "":
            name, rank = (role, -1) if role else meaning(raw)
            _keep(held, name, rank, raw, series)
            understood["series points"] += len(series)
    if not held and not summary:
        return nothing(Text("no point of a series was understood", "没有读懂任何一个数据点"), skipped)
    metrics = Metrics(
        series={name: series for name, (_, series) in held.items()},
        kind=kind_of(raws),
        total_steps=_total(value),
        finished=True if "train_runtime" in summary else None,
        rows_are_steps=value.get("step_kind") == "row",
        summary=summary,
        source=source,
    )
    return [Reading(Evidence(metrics=metrics), understood, skipped)]


def _keep(held: dict[str, tuple[int, Series]], name: str, rank: int, raw: str, series: Series) -> None:
    """Keeps a series under our name where it is the surest of that name, else under its own."""
    if name not in held:
        held[name] = (rank, series)
    elif rank < held[name][0]:
        held[f"{name} (2)"] = held[name]
        held[name] = (rank, series)
    else:
        held[raw] = (rank, series)


def _series(points: Any, source: str, skipped: Counter[str]) -> Series | None:
    if not isinstance(points, list):
        return None
    steps, values, rows = [], [], []
    for row, point in enumerate(points, 1):
        pair = point if isinstance(point, list) and len(point) == 2 else [row, point]
        step, value = number(pair[0]), number(pair[1])
        if step is None or value is None or not math.isfinite(step):
            skipped["malformed points"] += 1
            continue
        steps.append(step)
        values.append(value)
        rows.append(row)
    return _in_order(Series.of(values, steps, source, rows)) if values else None


def _in_order(series: Series) -> Series:
    """The series by step between resumes, where several processes logged it side by side."""
    every = np.ones(len(series), dtype=bool)
    borders, resumes = borders_of(series.steps, every)
    position = settled(series.steps, every, [*borders, *(index for index, _ in resumes)])
    if position is None or series.lines is None:
        return series
    order = np.argsort(position, kind="stable")
    return Series(series.steps[order], series.values[order], series.source, series.lines[order])


def _total(value: Mapping[str, Any]) -> float | None:
    total = number(value.get("total_steps", value.get("max_steps")))
    return total if total is not None and 0 < total < math.inf else None
