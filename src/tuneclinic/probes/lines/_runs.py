"""The runs of a log: which rows belong to which, where each begins, at which step each row stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.probes.lines import _steps
from tuneclinic.probes.lines._facts import Fact
from tuneclinic.probes.lines._rows import FARTHEST, Rows, fresh, gathered, runs, unrolled
from tuneclinic.probes.lines._table import Table
from tuneclinic.sections.training import Array
from tuneclinic.values import dataclass

LARGEST_RANK = 65_536
"""Above this a rank prefix was a process id."""


@dataclass(eq=False)
class Run:
    """One run of a log: its rows, what was printed at its end, and where it begins and ends, in lines with carriage returns."""

    rows: Rows
    ranks: dict[int, Rows] = field(default_factory=dict)
    summary: dict[str, float] = field(default_factory=dict)
    summaries: int = 0
    begins: int = 0
    ends: int = 1 << 62
    total: float | None = None
    finished: bool | None = None
    rows_are_steps: bool = False
    steps: Array = field(default_factory=lambda: np.zeros(0))


def found_runs(tables: Sequence[Table], facts: Sequence[Fact], bars: Sequence[tuple[int, int, int]]) -> list[Run]:
    """The runs of a log, in the order in which they begin; one without rows where the log has none."""
    rows = gathered(tables)
    rows = rows.pick(fresh(rows, tables))
    main, others = _by_rank(rows)
    _assign(main, facts)
    result = [Run(main.pick(main.run == number)) for number in range(int(main.run.max()) + 1)] if len(main) else [Run(main)]
    result = _without_copies(result)
    _borders(result, facts)
    for run in result:
        run.ranks = {rank: part for rank, other in others.items() if len(part := _between(other, run))}
        run.summary, run.summaries = _summary(tables, run)
        _place(run, tables, facts, bars)
    return result


def _by_rank(rows: Rows) -> tuple[Rows, dict[int, Rows]]:
    """The rows of the rank that speaks for the run, and those of the others."""
    known = rows.rank[~np.isnan(rows.rank) & rows.train]
    ranks, counts = np.unique(known, return_counts=True)
    if len(ranks) < 2:
        return rows, {}
    speaks = ranks[counts * 2 >= counts.max()][0]
    names = {float(rank): number if ranks.max() > LARGEST_RANK else int(rank) for number, rank in enumerate(ranks)}
    others = {names[float(rank)]: rows.pick(rows.rank == rank) for rank in ranks[:1024] if rank != speaks}
    return rows.pick(np.isnan(rows.rank) | (rows.rank == speaks)), others


def _assign(rows: Rows, facts: Sequence[Fact]) -> None:
    """Sets the run of every row, and counts steps on where they start anew each epoch."""
    train = np.flatnonzero(rows.train)
    placed = train[~np.isnan(rows.place[train])]
    if len(placed):
        rows.place[placed] = unrolled(rows.place[placed], rows.epoch[placed])
        position = rows.place[placed]
    else:
        placed = train[~np.isnan(rows.epoch[train])]
        position = rows.epoch[placed]
    if not len(placed):
        return
    order = rows.order[placed]
    of_placed = runs(position, _announced(order, facts, "started"), _announced(order, facts, "resumed"))
    at = np.searchsorted(placed, np.arange(len(rows)), side="right") - 1
    rows.run[:] = of_placed[np.maximum(at, 0)]


def _announced(order: Array, facts: Sequence[Fact], name: str) -> Array:
    """Of each row, whether a fact called `name` stands between it and the row before."""
    marks = np.array([fact.order for fact in facts if fact.name == name], dtype=np.int64)
    counts = np.searchsorted(marks, order)
    return np.concatenate(([False], np.diff(counts) > 0))


def _without_copies(result: list[Run]) -> list[Run]:
    """Runs that another logger printed a second time, after the whole run, are the same run."""
    kept: list[Run] = []
    for run in result:
        loss = run.rows.loss[~np.isnan(run.rows.loss)]
        tables = set(run.rows.table.tolist())
        copied = any(
            not tables & set(other.rows.table.tolist()) and len(mine := other.rows.loss[~np.isnan(other.rows.loss)]) == len(loss) > 1 and np.allclose(mine, loss, rtol=1e-3)
            for other in kept
        )  # fmt: skip
        if not copied:
            kept.append(run)
    return kept


def _borders(result: list[Run], facts: Sequence[Fact]) -> None:
    """Where each run begins: at the settings or the start announced behind the last row of the run before, else at its first row."""
    opening = np.array([fact.order for fact in facts if fact.section == "settings" or fact.name == "started"], dtype=np.int64)
    for before, run in pairwise(result):
        first, last = int(run.rows.order[0]), int(before.rows.order[-1])
        between = opening[(opening > last) & (opening < first)]
        run.begins = before.ends = int(between[0]) if len(between) else first


def _between(rows: Rows, run: Run) -> Rows:
    return rows.pick((rows.order >= run.begins) & (rows.order < run.ends))


def _summary(tables: Sequence[Table], run: Run) -> tuple[dict[str, float], int]:
    summary: dict[str, float] = {}
    count = 0
    for table in tables:
        if table.kind != "summary":
            continue
        order = np.frombuffer(table.order, dtype=np.int64)
        inside = np.flatnonzero((order >= run.begins) & (order < run.ends))
        count += len(inside)
        if len(inside):
            summary |= {name: float(values[inside[-1]]) for name in table.measured if (values := table.column(name)) is not None}
    return summary, count


def _place(run: Run, tables: Sequence[Table], facts: Sequence[Fact], bars: Sequence[tuple[int, int, int]]) -> None:
    """Steps of all rows, the steps that were planned, and whether they were reached."""
    inside = [fact for fact in facts if run.begins <= fact.order < run.ends]
    run.total = next(
        (float(fact.value) for fact in reversed(inside) if fact.name == "total_steps" and 0 < fact.value < FARTHEST), None
    ) or _printed_total(run, tables)
    beside, bar_total = _bars_beside(run, bars)
    done = bool(run.summary) or any(fact.name == "finished" for fact in inside)
    epochs = next((float(fact.value) for fact in reversed(inside) if fact.name == "epochs"), None)
    rows = run.rows
    train = np.flatnonzero(rows.train)
    place = rows.place[train]
    if np.isnan(place).all():
        run.total = run.total or bar_total or _steps.total_of(run.summary, len(train))
        if epochs is None and done and len(train):
            epochs = run.summary.get("epoch")
        steps = _steps.derived(rows.epoch[train], beside[rows.train], run.total, epochs, finished=done)
        run.rows_are_steps = steps is None and len(train) > 0
        place = np.arange(1, len(train) + 1, dtype=np.float64) if steps is None else steps
    else:
        place = _through(place, rows.table[train], tables)
    steps = rows.place.copy()
    steps[train] = place
    run.steps = _evaluations(steps, rows, place, train)
    run.finished = _finished(run, place, done)


def _through(place: Array, table: Array, tables: Sequence[Table]) -> Array:
    """The Trainer's callbacks may add a step to some dictionaries and not to others; other rows without a step take the last one."""
    result: Array = place.copy()
    dicts = np.array([one.form.by_epoch for one in tables])[table]
    if dicts.any():
        result[dicts] = _steps.filled(place[dicts])
    missing = np.isnan(result)
    if missing.any():
        known = np.flatnonzero(~missing)
        last = np.searchsorted(known, np.arange(len(result)), side="right") - 1
        result[missing] = np.where(last >= 0, result[known[np.maximum(last, 0)]], 0.0)[missing] if len(known) else 0.0
    return result


def _evaluations(steps: Array, rows: Rows, place: Array, train: Array) -> Array:
    """Evaluation rows without a step belong to the training row before, or where their epoch says, if that is elsewhere."""
    held = np.flatnonzero(~rows.train & np.isnan(steps))
    if not len(held):
        return steps
    if not len(train):
        steps[held] = np.arange(1, len(held) + 1)
        return steps
    before = np.searchsorted(train, held) - 1
    steps[held] = np.where(before >= 0, place[np.maximum(before, 0)], 0.0)
    epochs = rows.epoch[train]
    known = ~np.isnan(epochs) & (epochs > 0)
    if known.sum() < 2 or np.isnan(rows.epoch[held]).all():
        return steps
    ratio = float(median(place[known] / epochs[known]))
    cadence = float(median(np.diff(place))) if len(place) > 1 else 1.0
    said = np.round(rows.epoch[held] * ratio)
    far = np.abs(said - steps[held]) > 2 * _steps.ROUNDED * ratio + max(cadence, 1.0)
    steps[held] = np.where(far & ~np.isnan(said), said, steps[held])
    return steps


def _printed_total(run: Run, tables: Sequence[Table]) -> float | None:
    for number in dict.fromkeys(run.rows.table[::-1].tolist()):
        totals = tables[number].column("total_steps")
        mine = run.rows.index[run.rows.table == number]
        if totals is not None and len(mine) and 0 < totals[mine[-1]] < FARTHEST:
            return float(totals[mine[-1]])
    return None


def _bars_beside(run: Run, bars: Sequence[tuple[int, int, int]]) -> tuple[Array, float | None]:
    """The step of the bar drawn right after each row (else before it), and the bar's total."""
    beside = np.full(len(run.rows), np.nan)
    mine = [bar for bar in bars if run.begins <= bar[0] < run.ends]
    if not mine or not len(run.rows):
        return beside, None
    order = np.array([bar[0] for bar in mine])
    step, total = np.array([bar[1] for bar in mine], dtype=np.float64), np.array([bar[2] for bar in mine], dtype=np.float64)
    after = np.minimum(np.searchsorted(order, run.rows.order, side="right"), len(mine) - 1)
    before = np.maximum(after - 1, 0)
    near = np.where(order[after] - run.rows.order <= 4, after, before)
    close = np.abs(order[near] - run.rows.order) <= 6
    used = near[close & run.rows.train]
    if not len(used):
        return beside, None
    totals, counts = np.unique(total[used], return_counts=True)
    best = float(totals[np.argmax(counts)])
    good = close & (total[near] == best)
    beside[good] = step[near][good]
    return beside, best


def _finished(run: Run, place: Array, done: bool) -> bool | None:
    if done:
        return True
    if run.total is None or not len(place) or run.rows_are_steps:
        return None
    cadence = float(median(np.diff(place))) if len(place) > 1 else 1.0
    return bool(place[-1] + max(cadence, 1.0) > run.total)
