"""All rows of a log side by side: where each stands, which run and which rank it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.probes.lines._table import Table
from tuneclinic.sections.training import Array
from tuneclinic.values import dataclass

SAME = 1e-3
"""Relative difference below which two prints of one row agree: LLaMA-Factory's logger prints four digits of what the Trainer prints in full."""
FARTHEST = 1e12
"""Steps, epochs and ranks beyond this are misread."""
INTERLEAVED_ROWS = 50_000
"""Rows up to which runs that write into one file at the same time are told apart, row by row."""


@dataclass(eq=False)
class Rows:
    """Rows of all tables in the order of the file. `place` is the step, NaN where the row names none; `train` marks logging steps."""

    table: Array
    index: Array
    order: Array
    place: Array
    epoch: Array
    rank: Array
    loss: Array
    rate: Array
    train: Array
    run: Array

    def __len__(self) -> int:
        return len(self.order)

    def pick(self, mask: Array) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def gathered(tables: Sequence[Table]) -> Rows:
    """The rows of all tables but the summaries, in order."""
    parts: list[list[Array]] = []
    for number, table in enumerate(tables):
        size = len(table.order)
        if not size or table.kind == "summary":
            continue
        blank = np.full(size, np.nan)
        columns = [table.column(name) for name in ("epoch", "rank", "loss", "learning_rate")]
        epoch, rank, loss, rate = (blank if column is None else column for column in columns)
        epoch, rank = _sane(epoch), _sane(rank)
        parts.append([
            np.full(size, number), np.arange(size), np.frombuffer(table.order, dtype=np.int64), _sane(_place(table, epoch)), epoch, rank, loss, rate,
            np.full(size, table.pacing), np.zeros(size, dtype=np.int64),
        ])  # fmt: skip
    if not parts:
        return Rows(*(np.zeros(0, dtype=kind) for kind in (int, int, int, float, float, float, float, float, bool, int)))
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    ordered = np.argsort(joined[2], kind="stable")
    return Rows(*(column[ordered] for column in joined))


def _sane(values: Array) -> Array:
    """Places that can be: infinite, negative and absurdly large ones are unknown."""
    return np.where(np.isfinite(values) & (values >= 0) & (values < FARTHEST), values, np.nan)


def _place(table: Table, epoch: Array) -> Array:
    step = table.column("step")
    if step is not None:
        return step
    at = table.column("epoch_step")
    if at is None:
        return np.full(len(table.order), np.nan)
    size = table.column("epoch_steps")
    if size is None or np.isnan(epoch).all():
        return at
    base = 1.0 if np.nanmin(epoch) >= 1 else 0.0
    return np.asarray((epoch - base) * size + at)


def fresh(rows: Rows, tables: Sequence[Table]) -> Array:
    """Which rows are no second print of the row before: by another logger, by other ranks without a prefix."""
    keep = np.ones(len(rows), dtype=bool)
    twice = _twice(rows)
    widths = np.array([len(table.names) for table in tables] or [0])
    for at in np.flatnonzero(twice):
        before = at
        keep[before if widths[rows.table[before]] < widths[rows.table[at + 1]] else at + 1] = False
    for number, table in enumerate(tables):
        mine = np.flatnonzero(rows.table == number)
        if table.kind == "train" and not table.form.bar and len(mine) > 3:
            keep[mine[_echoes(table, rows.index[mine])]] = False
        if table.form.bar and len(mine) > 1:
            keep[mine[_rewound(table, rows, mine)]] = False
    return keep


def _rewound(table: Table, rows: Rows, mine: Array) -> Array:
    """Bars set back to 0 that still show the last loss: Lightning draws one under the old epoch's number and one under the new one's."""
    at = table.column("epoch_step")
    if at is None:
        return np.zeros(len(mine), dtype=bool)
    return np.concatenate(([False], (at[rows.index[mine[1:]]] == 0) & (rows.loss[mine[1:]] == rows.loss[mine[:-1]])))


def _twice(rows: Rows) -> Array:
    """Neighbouring training rows of different makes with the same epoch, loss and learning rate."""
    if len(rows) < 2:
        return np.zeros(0, dtype=bool)
    pair = rows.train[1:] & rows.train[:-1] & (rows.table[1:] != rows.table[:-1])
    return np.asarray(pair & (np.abs(np.diff(rows.epoch)) <= 0.006) & _agree(rows.loss) & _agree(rows.rate))


def _agree(values: Array) -> Array:
    first, second = values[:-1], values[1:]
    close = np.abs(first - second) <= SAME * np.maximum(np.abs(first), np.abs(second))
    return np.asarray(close | (np.isnan(first) & np.isnan(second)))


def _echoes(table: Table, index: Array) -> Array:
    """Rows that repeat the one before to the last digit, where every row of the table is printed the same number of times."""
    columns: list[Any] = [
        np.frombuffer(column, dtype=np.float64)[index]
        for column, name in zip(table.columns, table.names, strict=True)
        if name != "rank"
    ]
    same = np.ones(len(index) - 1, dtype=bool)
    for values in columns:
        same &= (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    sizes = np.diff(np.concatenate((starts, [len(index)])))
    if len(starts) < 2 or sizes[0] < 2 or (sizes[:-1] != sizes[0]).any() or sizes[-1] > sizes[0]:
        return np.zeros(len(index), dtype=bool)
    echo = np.ones(len(index), dtype=bool)
    echo[starts] = False
    return echo


def unrolled(place: Array, epoch: Array) -> Array:
    """Steps counted on where they start anew with every epoch."""
    if len(place) < 2 or np.isnan(epoch).any():
        return place
    back = np.flatnonzero(np.diff(place) < 0)
    if not len(back) or not (epoch[back + 1] > epoch[back]).all():
        return place
    ahead = np.diff(place)
    cadence = float(median(ahead[ahead > 0])) if (ahead > 0).any() else 1.0
    jumps = np.zeros(len(place))
    jumps[back + 1] = place[back] + np.maximum(cadence - place[back + 1], 0)
    return np.asarray(place + np.cumsum(jumps))


def runs(position: Array, started: Array, resumed: Array) -> Array:
    """The run of each row, by positions (steps, else epochs) that go back.

    `started` and `resumed` say of each row whether the log announced a start or a resume between it and the row before.
    A position that goes back into the middle is a resume and no new run, unless a start was announced.
    """
    size = len(position)
    result = np.zeros(size, dtype=np.int64)
    back = np.flatnonzero(np.diff(position) < 0) + 1
    if not len(back):
        return result
    if size > INTERLEAVED_ROWS:
        return _sequential(position, back, started, resumed)
    tracks = [_Track(position[0])]
    current = tracks[0]
    for at in range(1, size):
        where = position[at]
        if where < current.last or not current.follows(where, current.cadence):
            current = _next(tracks, current, where, started[at], resumed[at])
        current.take(where)
        result[at] = tracks.index(current)
    return result


class _Track:
    """One run while it is being read."""

    def __init__(self, first: float) -> None:
        self.first = self.last = first
        self.cadence = 0.0

    def follows(self, where: float, usual: float) -> bool:
        """Whether `where` is the place this run would print next (at the `usual` distance after its first row), or the same again."""
        cadence = self.cadence or usual
        return where == self.last or (cadence > 0 and abs(where - self.last - cadence) <= 1e-6 * abs(where))

    def take(self, where: float) -> None:
        if where > self.last:
            self.cadence = where - self.last
        self.last = where

    def inside(self, where: float) -> bool:
        """Whether `where` lies beyond the first rows of this run."""
        return where > self.first + 1.5 * self.cadence


def _next(tracks: list[_Track], current: _Track, where: float, started: bool, resumed: bool) -> _Track:
    other = next(
        (
            track
            for track in reversed(tracks)
            if track is not current and track.follows(where, current.cadence) and where != track.last
        ),
        None,
    )
    if other is not None and not started:
        return other
    if where > current.last or (where < current.last and (resumed or (current.inside(where) and not started))):
        return current
    tracks.append(_Track(where))
    return tracks[-1]


def _sequential(position: Array, back: Array, started: Array, resumed: Array) -> Array:
    result = np.zeros(len(position), dtype=np.int64)
    first, number = 0, 0
    for at in back:
        cadence = position[min(first + 1, len(position) - 1)] - position[first]
        middle = position[at] > position[first] + 1.5 * max(cadence, 0)
        if resumed[at] or (middle and not started[at]):
            continue
        number += 1
        first = int(at)
        result[at:] = number
    return result
