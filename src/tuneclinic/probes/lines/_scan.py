"""The one pass over a log: every line by its shape, each shape looked at once.

A log repeats itself: its lines, without their digits, are a few hundred shapes. A shape is classified when it first shows (a
metric row of some format, a bar, a line to keep, nothing); the other lines of that shape then cost a look-up. Rows are read
with the pattern learned from the first row of their shape.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import BinaryIO

import numpy as np

from tuneclinic.patterns import pattern
from tuneclinic.probes.lines import Field, LineFormat, formats
from tuneclinic.probes.lines import _facts as facts
from tuneclinic.probes.lines._kept import (
    ERROR_WINDOWS,
    FAILED,
    GRAVE,
    HEAD_LINES,
    MOST_ERROR_LINES,
    NOTED,
    TAIL_HELD,
    TRACEBACK,
    WINDOW_LINES,
    WORDS,
    Keeper,
    Kept,
    text_of,
)
from tuneclinic.probes.lines._notebook import HEADER, NotebookTable
from tuneclinic.probes.lines._prefix import labelled, shifted, without_rank
from tuneclinic.probes.lines._stream import Block, blocks
from tuneclinic.probes.lines._table import Table
from tuneclinic.probes.lines._template import Template, learn
from tuneclinic.values import dataclass

SHAPE_BYTES, MOST_REMEMBERED = 200, 24 << 20
"""Memory of one shape beside its text, and of all: some 80,000 shapes. A log of more (random text) is looked at line by line from then on."""
MOST_TABLES = 200
LOOKED_AT = 1 << 14
QUOTED = 1 << 12
"""Bytes of a line that are read for numbers, and that are kept for quotation."""
TEMPLATES = 4
COLUMNS_A_ROW = 30
"""A pattern is learned when a shape was seen once for so many columns: compiling one of 150 columns costs 20 ms."""
MOST_FACTS = 4000
MOST_BARS = 1 << 14
EARLY = 3000
"""Different lines that are looked at closely. Facts stand at the top of a log; one with more different lines than this quotes its data."""
PLAIN_BAR = pattern(r"(?:^|[\r\]])\s{0,200}\d{1,3}%\|[^|\n]{0,400}\| {0,4}(\d{1,12})/(\d{1,12}) \[")


@dataclass(eq=False, slots=True)
class Shape:
    """What is done with the lines of one shape. `fast` takes a line's index where nothing but its numbers is wanted."""

    fast: Callable[[int], None] | None = None

    forms: tuple[LineFormat, ...] = ()
    templates: list[Template] = field(default_factory=list)
    kept: Kept | None = None
    stating: bool = False
    failing: bool = False
    bar: bool = False
    slow: int = 0


NOTHING = Shape()
_LINES = np.arange(1 << 16, dtype=np.int64)


class Scan:
    """What one pass over a log gathered."""

    def __init__(self) -> None:
        self.keeper = Keeper()
        self.tables: dict[tuple[object, ...], Table] = {}
        self.facts: list[facts.Fact] = []
        self.lines = 0
        self.physical = 0
        self.labelled = False
        self.bars: list[tuple[int, int, int]] = []
        self._shapes: dict[bytes, Shape] = {}
        self._templates: list[Template] = []
        self._bars_at: list[int] = []
        self._stepless: list[int] = []
        self._looked = 0
        self._remembered = 0
        self._notebook: NotebookTable | None = None
        self._cells_at: list[int] = []
        self._forms = formats()
        self._needles = _shortest({needle.lower().decode() for form in self._forms for needle in form.needles})
        self._late = (*self._needles, "%|", *GRAVE)

    def run(self, stream: BinaryIO) -> Scan:
        """Reads the whole stream."""
        for block in blocks(stream):
            if block.first == 0:
                self.labelled = labelled(block.lines[:200])
            self._take(block)
        return self

    def _take(self, block: Block) -> None:
        lines, known = block.lines, self._shapes
        size = len(lines)
        self.lines = block.first + size
        self.physical = block.number(size - 1)
        if len(self.keeper.head) < HEAD_LINES:
            self._head(block)
        for at, seen in enumerate(map(known.get, block.shapes)):
            if seen is NOTHING:
                continue
            if seen is not None and seen.fast is not None:
                seen.fast(at)
                continue
            shape = seen or self._learn(block, at)
            if shape is NOTHING:
                continue
            if shape.bar:
                self._bars_at.append(at)
            elif shape.templates:
                shape.templates[0].pending.append(at)
            elif shape.forms:
                self._slow(block, at, shape)
            if shape.kept is not None or shape.stating or shape.failing:
                self._beside(block, at, shape, fresh=seen is None)
        for template in self._templates:
            if template.pending:
                self._drain(block, template)
        self.keeper.tally()
        self._read_bars(block)
        self._read_cells(block)
        if self.keeper.window:
            self._window(block)
        for at in range(max(0, size - TAIL_HELD), size):
            self.keeper.held.append((block.first + at, block.number(at), lines[at][:QUOTED], block.shapes[at][:QUOTED]))

    def _head(self, block: Block) -> None:
        for at, raw in enumerate(block.lines):
            if raw.strip():
                self.keeper.head.append((block.first + at, block.number(at), text_of(raw[:QUOTED])))
                if len(self.keeper.head) >= HEAD_LINES:
                    return

    def _learn(self, block: Block, at: int) -> Shape:
        """Classifies a line of a new shape; a shape that became known in this very block is looked up again."""
        key = block.shapes[at]
        known = self._shapes.get(key)
        if known is not None:
            return known
        shape = self._classify(block, at)
        self._remembered += len(key) + SHAPE_BYTES
        if self._remembered < MOST_REMEMBERED:
            self._shapes[key] = shape
        return shape

    def _classify(self, block: Block, at: int) -> Shape:
        raw = block.lines[at][:LOOKED_AT]
        if len(raw) < 3 or raw.isspace():
            return NOTHING
        self._looked += 1
        low = raw.lower().decode(
            "latin-1"
        )  # `in` on bytes first asks whether the needle is a number, which costs ten times the search
        early = self._looked <= EARLY
        if not early and not any(map(low.__contains__, self._late)):
            return NOTHING
        forms: tuple[LineFormat, ...] = ()
        if "training loss" in low and HEADER.match(text_of(raw)) is not None:
            self._open_table(text_of(raw))
        if any(map(low.__contains__, self._needles)):
            text = text_of(raw)
            forms = self._speaking(
                text, tuple(form for form in self._forms if any(needle.decode() in low for needle in form.needles))
            )
        elif b"%|" in raw:
            return Shape(self._bars_at.append, bar=True)
        if forms:
            self.facts.extend(
                fact for fact in facts.facts(text_of(raw), block.number(at), block.first + at) if fact.section == "run"
            )
            return Shape(None, forms)
        return self._remark(block, at, raw, early=early)

    def _open_table(self, header: str) -> None:
        """From here on lines of nothing but numbers are the rows of a table. Their shape is empty, with bars between the cells or without."""
        self._notebook = NotebookTable(header)
        for shape in (b"", *(b"|" * count for count in range(1, 20))):
            self._shapes[shape] = Shape(self._cells_at.append)

    def _read_cells(self, block: Block) -> None:
        form, cells = self._notebook, self._cells_at.copy()
        self._cells_at.clear()
        if form is None:
            return
        for at in cells:
            text = text_of(block.lines[at][:LOOKED_AT])
            for row in form.rows(text):
                table = self._table(form, row.fields)
                if table is not None:
                    table.add(np.array([block.first + at]), np.array([block.number(at)]), [_one(text, one) for one in row.fields])

    def _remark(self, block: Block, at: int, raw: bytes, *, early: bool) -> Shape:
        """A line that is no row: worth a note, a fact, an error, or nothing."""
        text = text_of(raw)
        low = text.lower()
        remarkable = any(map(low.__contains__, WORDS if early else GRAVE))
        noted, failing = remarkable and NOTED.search(low) is not None, remarkable and FAILED.search(low) is not None
        stating = early and any(map(low.__contains__, facts.WORDS)) and next(facts.facts(text, 0, 0), None) is not None
        kept = self.keeper.keep(text, block.number(at), block.first + at, noted=noted or stating or failing)
        if kept is not None and not (stating or failing):
            return Shape(kept.hits.append, kept=kept)
        return Shape(None, (), [], kept, stating, failing) if stating or failing else NOTHING

    def _speaking(self, text: str, forms: tuple[LineFormat, ...]) -> tuple[LineFormat, ...]:
        body, _ = without_rank(text, labelled=self.labelled)
        for form in forms:
            if form.rows(body):
                return (form,)
        return ()

    def _slow(self, block: Block, at: int, shape: Shape) -> None:
        """Reads a row through its format, and learns its pattern."""
        text = text_of(block.lines[at][:LOOKED_AT])
        body, rank = without_rank(text, labelled=self.labelled)
        rows = shape.forms[0].rows(body)
        for row in rows:
            whole = shifted(row, len(text) - len(body), rank)
            table = self._table(shape.forms[0], whole.fields)
            if table is None:
                continue
            shape.slow += 1
            if len(rows) == 1 and len(shape.templates) < TEMPLATES and shape.slow * COLUMNS_A_ROW >= len(whole.fields):
                template = learn(text, whole, table)
                if template is not None:
                    shape.templates.insert(0, template)
                    shape.fast = template.pending.append
                    self._templates.append(template)
            columns = [_one(text, one) for one in whole.fields]
            if "step" not in table.names:
                self._stepless.append(at)
            table.add(np.array([block.first + at]), np.array([block.number(at)]), columns)

    def _table(self, form: LineFormat, fields: Sequence[Field]) -> Table | None:
        key = (form, *((one.name, one.scale) for one in fields))
        table = self.tables.get(key)
        if table is None and len(self.tables) < MOST_TABLES:
            table = self.tables[key] = Table(form, fields)
        return table

    def _drain(self, block: Block, template: Template) -> None:
        read, left, columns = template.take(block.lines)
        if read:
            index = np.array(read, dtype=np.int64)
            if "step" not in template.table.names:
                self._stepless.extend(read)
            template.table.add(block.first + index, block.numbers_of(index), columns)
        for at in left:
            shape = self._shapes.get(block.shapes[at])
            if shape is not None:
                self._again(block, at, shape)

    def _again(self, block: Block, at: int, shape: Shape) -> None:
        """A line whose first pattern did not fit: the others, else the format itself."""
        for template in shape.templates[1:]:
            template.pending = [at]
            read, _, columns = template.take(block.lines)
            if read:
                template.table.add(np.array([block.first + at]), np.array([block.number(at)]), columns)
                return
        self._slow(block, at, shape)

    def _beside(self, block: Block, at: int, shape: Shape, *, fresh: bool) -> None:
        """Counts, facts, bars and the surroundings of errors."""
        if shape.kept is not None:
            shape.kept.count += not fresh
        order, line = block.first + at, block.number(at)
        if shape.stating and len(self.facts) < MOST_FACTS:
            self.facts.extend(facts.facts(text_of(block.lines[at]), line, order))
        if shape.failing:
            self._fail(block, at, shape)

    def _read_bars(self, block: Block) -> None:
        """Bars without metrics tell the step of the rows beside them that print none; the others are passed over."""
        at = np.array(self._bars_at, dtype=np.int64)
        rows = np.array(self._stepless, dtype=np.int64)
        self._bars_at.clear()
        self._stepless.clear()
        if not len(at):
            return
        behind = np.searchsorted(at, rows if len(self.bars) < MOST_BARS else rows[-1:])
        wanted = {0, len(at) - 1, *behind.tolist(), *(behind - 1).tolist()}
        for one in sorted(number for number in wanted if 0 <= number < len(at)):
            where = int(at[one])
            match = _last_bar(text_of(block.lines[where][:LOOKED_AT]))
            if match is not None:
                self.bars.append((block.first + where, int(match[1]), int(match[2])))

    def _fail(self, block: Block, at: int, shape: Shape) -> None:
        errors = self.keeper.errors
        if len(errors) >= MOST_ERROR_LINES:
            return
        windows = shape.kept.windows if shape.kept is not None else 0
        raw = block.lines[at][:QUOTED]
        long = TRACEBACK.search(text_of(raw)) is not None
        errors[block.first + at] = (block.number(at), text_of(raw))
        if windows >= ERROR_WINDOWS:
            return
        if shape.kept is not None:
            shape.kept.windows += 1
        behind = WINDOW_LINES if long else 4
        for near in range(max(0, at - 3), min(len(block.lines), at + behind)):
            errors.setdefault(block.first + near, (block.number(near), text_of(block.lines[near][:QUOTED])))
        self.keeper.window = max(self.keeper.window, block.first + at + behind)

    def _window(self, block: Block) -> None:
        """The rest of a window that began in the block before."""
        end = min(self.keeper.window, block.first + len(block.lines))
        for order in range(block.first, max(block.first, end)):
            if len(self.keeper.errors) >= MOST_ERROR_LINES:
                return
            at = order - block.first
            self.keeper.errors.setdefault(order, (block.number(at), text_of(block.lines[at][:QUOTED])))


def _shortest(needles: set[str]) -> tuple[str, ...]:
    """The needles without those that hold another one: `loss` speaks for `, val loss `."""
    return tuple(sorted(needle for needle in needles if not any(other in needle and other != needle for other in needles)))


def _last_bar(text: str) -> re.Match[str] | None:
    match = None
    for match in PLAIN_BAR.finditer(text):  # noqa: B007 - the last bar of the line
        pass
    return match


def _one(text: str, one: Field) -> array[float]:
    try:
        return array("d", [float(text[one.start : one.end].replace(",", ""))])
    except ValueError:
        return array("d", [float("nan")])


__all__ = ["Scan", "Shape"]
