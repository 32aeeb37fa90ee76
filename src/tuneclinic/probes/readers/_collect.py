"""Rows of metrics, gathered into the series of one run or of several."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tuneclinic.arrays import distinct
from tuneclinic.probes.readers._metric_names import (
    NOT_METRICS,
    RECIPROCALS,
    STEP_NAMES,
    SUMMARY_NAMES,
    TOTAL_NAMES,
    kind_of,
    meaning,
    normal,
    summary_name,
)
from tuneclinic.probes.readers._rows import number, step_number
from tuneclinic.sections import Metrics, Series
from tuneclinic.sections.training import Array

MOST_POINTS = 12_000_000
"""Points kept of one file over all series, 12 bytes each: two million rows of six quantities."""
MOST_NAMES = 1000
"""Series kept of one file; GRPO with many reward functions logs about a hundred."""
NAME_CHARS = 200
"""Characters. The longest names, of per-module statistics, have about a hundred."""
MOST_RUNS = 64
"""Runs told apart in one file; a file that restarts more often is a sweep, and the rest is counted as skipped."""
SIDE_BY_SIDE = 0.7
"""Distinct steps over rows below which a file was written by several processes: two make it 0.5, a resume that repeats a
quarter of the run 0.8."""
LARGEST_STEP = 1 << 53
"""Whole numbers are exact in a float up to here."""
BOTH_STEPS = "global_step/max_steps"
_SHAPES = ("other rows", "eval rows", "train rows", "summary rows")
_TOTALS = (*TOTAL_NAMES, BOTH_STEPS)
_PASSED = NOT_METRICS | frozenset(TOTAL_NAMES) | frozenset(STEP_NAMES)


class _Sink:
    """One raw name's values, each with the index of its row."""

    __slots__ = ("rows", "values")

    def __init__(self) -> None:
        self.values = array("d")
        self.rows = array("i")


class _Stretch:
    """The rows `start` to `stop` of all rows, whose steps and train rows these are; `position` orders them where the file does not."""

    __slots__ = ("has_loss", "position", "start", "steps", "stop")

    def __init__(self, start: int, stop: int, steps: Array, has_loss: Array, position: Array | None = None) -> None:
        self.start, self.stop = start, stop
        self.steps, self.has_loss, self.position = steps, has_loss, position

    def holds(self, index: int) -> bool:
        return self.start <= index < self.stop


class Part:
    """The rows of one run: its metrics and how many rows of each shape it holds."""

    __slots__ = ("metrics", "shapes")

    def __init__(self, metrics: Metrics, shapes: Mapping[str, int]) -> None:
        self.metrics, self.shapes = metrics, shapes


class Collector:
    """Takes rows in the order they were logged and gives the metrics of the run, or of each run.

    A row is anything with numbers under names; numbers that are written as text count. Roles map a column to one of our
    names ("loss"), to "step", or to "" for "leave it out".
    """

    def __init__(self, source: str, roles: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.roles = dict(roles or {})
        self.step_names = tuple(raw for raw, role in self.roles.items() if role == "step") or STEP_NAMES
        self.sinks: dict[str, _Sink | None] = {}
        self.steps = array("d")
        self.lines = array("q")
        self.summaries: list[tuple[int, dict[str, float]]] = []
        self.totals: list[tuple[int, float]] = []
        self.skipped: Counter[str] = Counter()
        self.points = 0
        self._step_name = ""
        self._totals_named = False

    def add(self, row: Mapping[str, Any], line: int) -> bool:
        """Takes one row; False where it holds no number that could be a metric."""
        if "train_runtime" in row and "loss" not in row:
            return self.add_summary(row, line)
        if self.points >= MOST_POINTS:
            self.skipped["rows beyond the limit"] += 1
            return True
        sinks, index, before = self.sinks, len(self.steps), self.points
        for raw, value in row.items():
            if value is None:
                continue
            try:
                sink = sinks[raw]
            except KeyError:
                sink = self._open(raw, value)
            if sink is None:
                continue
            held = value if value.__class__ is float else number(value)
            if held is not None:
                sink.values.append(held)
                sink.rows.append(index)
                self.points += 1
        if self.points == before:
            return False
        self._place(row, index, line)
        return True

    def _open(self, raw: Any, value: Any) -> _Sink | None:
        """A sink for a name that was not seen before, unless it is no metric."""
        if not isinstance(raw, str) or len(raw) > NAME_CHARS:
            return None
        if raw in _PASSED or self.roles.get(raw) in {"", "step"}:
            self.sinks[raw] = None
            self._totals_named |= raw in _TOTALS
            return None
        if number(value) is None:  # a text now, perhaps a number in a later row
            return None
        if len(self.sinks) >= MOST_NAMES:
            self.skipped["names beyond the limit"] += 1
            return None
        self.sinks[raw] = sink = _Sink()
        return sink

    def _place(self, row: Mapping[str, Any], index: int, line: int) -> None:
        step = row.get(self._step_name)
        if step.__class__ is not int or not -LARGEST_STEP < step < LARGEST_STEP:
            step = step_number(step)
            if step is None:
                step = self._find_step(row)
        self.steps.append(math.nan if step is None else step)
        self.lines.append(line)
        if self._totals_named:
            self._note_total(row, index)

    def _note_total(self, row: Mapping[str, Any], index: int) -> None:
        for name in _TOTALS:
            value = row.get(name)
            if name == BOTH_STEPS:
                value = value[:40].partition("/")[2] if isinstance(value, str) else None
            total = number(value)
            fresh = not self.totals or self.totals[-1][1] != total
            if total is not None and 0 < total < math.inf and fresh and len(self.totals) < MOST_NAMES:
                self.totals.append((index, total))

    def _find_step(self, row: Mapping[str, Any]) -> float | None:
        for name in self.step_names:
            if row.get(name) is not None:
                step = step_number(row[name])
                if step is not None:
                    self._step_name = self._step_name or name
                    return step
        return None

    def add_summary(self, row: Mapping[str, Any], line: int) -> bool:
        """Takes one row of end-of-run numbers."""
        index = len(self.steps)
        numbers = {str(raw): held for raw, value in row.items() if raw not in _PASSED and (held := number(value)) is not None}
        if not numbers:
            return False
        self._place(row, index, line)
        self.summaries.append((index, numbers))
        return True

    def parts(self, *, split: bool = True) -> list[Part]:
        """The runs of the file in order: one, or several where the steps begin anew (unless `split` is off)."""
        if not self.steps:
            return []
        has_loss = self._rows_with("loss")
        steps, counted = self._filled_steps(has_loss)
        borders, resumes = borders_of(steps, has_loss) if split and not counted else ([], [])
        edges = [0, *borders, len(steps)]
        position = settled(steps, has_loss, [*borders, *(index for index, _ in resumes)]) if split and not counted else None
        if len(edges) - 1 > MOST_RUNS:
            self.skipped["runs beyond the limit"] += len(edges) - 1 - MOST_RUNS
            edges = edges[: MOST_RUNS + 1]
        return [
            self._part(_Stretch(start, stop, steps, has_loss, position), counted=counted, resumes=resumes)
            for start, stop in pairwise(edges)
        ]

    def _rows_with(self, name: str) -> Array:
        """Which rows hold the series called `name`, under the surest of its names."""
        held = np.zeros(len(self.steps), dtype=bool)
        ranked = [
            (self._meaning(raw)[1], raw)
            for raw, sink in self.sinks.items()
            if sink is not None and self._meaning(raw)[0] == name and not summary_name(raw)
        ]
        sink = self.sinks[min(ranked)[1]] if ranked else None
        if sink is not None:
            held[np.array(sink.rows, dtype=np.int64)] = True
        return held

    def _filled_steps(self, has_loss: Array) -> tuple[Array, bool]:
        """A step for every row: its own, the last one seen, or the count of train rows where no row has any."""
        steps = np.array(self.steps, dtype=np.float64)
        known = np.isfinite(steps)
        if not known.any():
            counting = has_loss if has_loss.any() else np.ones(len(steps), dtype=bool)
            return np.maximum(np.cumsum(counting), 1).astype(np.float64), True
        last = np.maximum.accumulate(np.where(known, np.arange(len(steps)), 0))
        filled: Array = steps[last]
        filled[~np.isfinite(filled)] = steps[known][0]
        return filled, False

    def role_of(self, raw: str) -> str:
        """What a column is read as."""
        return self._meaning(raw)[0]

    def _meaning(self, raw: str) -> tuple[str, int]:
        role = self.roles.get(raw)
        return (role, -1) if role else meaning(raw)

    def _part(self, stretch: _Stretch, *, counted: bool, resumes: list[tuple[int, float]]) -> Part:
        ranked: dict[str, list[tuple[int, str, Series]]] = {}
        summary: dict[str, float] = {}
        evaluated = np.zeros(len(stretch.steps), dtype=bool)
        lines = np.array(self.lines, dtype=np.int64)
        raws = []
        for raw, rows, values in self._sinks_in(stretch):
            raws.append(raw)
            once = "" if raw in self.roles else summary_name(raw)
            if once:
                summary[once] = float(values[-1])
                continue
            name, rank = self._meaning(raw)
            evaluated[rows] |= name.startswith("eval_")
            ranked.setdefault(name, []).append((rank, raw, Series(stretch.steps[rows], values, self.source, lines[rows])))
        for index, numbers in self.summaries:
            if stretch.holds(index):
                summary.update({name: held for name, held in numbers.items() if name != "epoch"})
        metrics = Metrics(
            series=_preferred(ranked),
            kind=kind_of(raws),
            total_steps=next((total for index, total in reversed(self.totals) if index < stretch.stop), None),
            finished=True if any(name in summary for name in SUMMARY_NAMES) else None,
            rows_are_steps=counted,
            summary=summary,
            source=self.source,
            resumed_at=tuple(step for index, step in resumes if stretch.holds(index)),
        )
        return Part(metrics, self._shapes_in(stretch, evaluated))

    def _sinks_in(self, stretch: _Stretch) -> Iterator[tuple[str, Array, Array]]:
        """Each raw name with its row indices and values in one stretch of rows; speeds are turned into seconds."""
        for raw, sink in self.sinks.items():
            if sink is None:
                continue
            rows, values = np.array(sink.rows, dtype=np.int64), np.array(sink.values, dtype=np.float64)
            inside = (rows >= stretch.start) & (rows < stretch.stop)
            if normal(raw) in RECIPROCALS:
                inside &= values > 0
                values = 1.0 / np.where(values > 0, values, 1.0)
            if inside.any():
                rows, values = rows[inside], values[inside]
                if stretch.position is not None:
                    order = np.argsort(stretch.position[rows], kind="stable")
                    rows, values = rows[order], values[order]
                yield raw, rows, values

    def _shapes_in(self, stretch: _Stretch, evaluated: Array) -> dict[str, int]:
        """How many rows of which shape: a row with a loss is a train row, one with evaluation numbers an eval row."""
        rows = np.zeros(len(stretch.steps), dtype=np.int8)
        rows[evaluated] = 1
        rows[stretch.has_loss] = 2
        rows[[index for index, _ in self.summaries]] = 3
        counts = np.bincount(rows[stretch.start : stretch.stop], minlength=len(_SHAPES))
        return {shape: int(count) for shape, count in zip(_SHAPES, counts, strict=True) if count}


def _preferred(ranked: Mapping[str, list[tuple[int, str, Series]]]) -> dict[str, Series]:
    """Of several series that mean the same, the surest gets our name and the others keep their own."""
    series: dict[str, Series] = {}
    for name, rivals in ranked.items():
        best, *others = sorted(rivals, key=lambda rival: rival[0])
        series[name] = best[2]
        for _, raw, other in others:
            series.setdefault(raw, other)
    return series


def settled(steps: Array, train: Array, borders: Sequence[int]) -> Array | None:
    """Places of the rows by step, for a file that several processes wrote side by side; None where the file is in order.

    Args:
        steps: The step of every row, float64.
        train: Which rows are train rows, bool.
        borders: Row indices at which a run or a resume begins: nothing is moved across them.
    """
    if train.sum() < 4 or not (np.diff(steps[train]) < 0).any():
        return None
    order = np.arange(len(steps))
    edges = [0, *sorted(borders), len(steps)]
    for start, stop in pairwise(edges):
        order[start:stop] = start + np.argsort(steps[start:stop], kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return position


def borders_of(steps: Array, has_loss: Array) -> tuple[list[int], list[tuple[int, float]]]:
    """Row indices at which a new run begins, and (row index, step) of every resume.

    Judged on the train rows. Two processes that write one file side by side log most steps twice and lag behind each other by
    a row or two, which is no border: there the step must stay back for longer. A single row out of order is none either.
    Back to the first step or before it is a new run, back to a later one a resume.
    """
    train = np.flatnonzero(has_loss)
    if len(train) < 4:
        return [], []
    at = steps[train]
    ahead = 2 if distinct(at) < SIDE_BY_SIDE * len(at) else 1
    borders: list[int] = []
    resumes: list[tuple[int, float]] = []
    first = at[0]
    for place in np.flatnonzero(np.diff(at) < 0) + 1:
        following, left = at[place + 1 : place + 1 + ahead], at[place - 1]
        back_again = (following >= left) if ahead > 1 else (following > left)
        if back_again.any() or (ahead > 1 and not len(following)):
            continue
        if at[place] <= first:
            borders.append(int(train[place]))
            first = at[place]
        else:
            if ahead > 1 and resumes and resumes[-1][0] >= train[place - ahead]:
                resumes.pop()  # the last lagging row before the border
            resumes.append((int(train[place]), float(at[place])))
    return borders, resumes
