"""The pattern learned from one row: where its numbers stand, for all lines of the same shape."""

from __future__ import annotations

import re
from array import array
from dataclasses import field

from tuneclinic.patterns import pattern
from tuneclinic.probes.lines import LineFormat, Row
from tuneclinic.probes.lines._table import Table
from tuneclinic.values import dataclass

LOOSE = rb"[0-9.+\-,:#? \t\x80-\x9f\xe2]*"
"""The bytes that lines of one shape may differ in (`_stream.PASSED`)."""
_RUN = pattern(r"[0-9.+\-,:#? \t\u2500-\u259f]+")
_PART = pattern(r"\d+|[ \t]+|[^\d \t]+")
_COMMA = pattern(r"\d,\d")


@dataclass(eq=False)
class Template:
    """A learned row: `pattern` captures its numbers in the table's column order, `pending` are lines of the block that wait for it.

    `plain` are the texts between the numbers where these never change and are all of the line: taking them away leaves the numbers,
    at twice the speed of the pattern.
    """

    pattern: re.Pattern[bytes]
    table: Table
    plain: tuple[bytes, ...] = ()
    pending: list[int] = field(default_factory=list)

    def take(self, lines: list[bytes]) -> tuple[list[int], list[int], list[array[float]]]:
        """Reads the pending lines: indices read, indices of lines that did not fit, and the columns of those read."""
        pending = self.pending.copy()
        self.pending.clear()
        if self.plain:
            stripped = self._stripped([lines[at] for at in pending])
            if stripped is not None:
                return pending, [], stripped
        search = self.pattern.search
        found = [search(lines[at]) for at in pending]
        left: list[int] = []
        if None in found:
            left = [at for at, match in zip(pending, found, strict=True) if match is None]
            pending = [at for at, match in zip(pending, found, strict=True) if match is not None]
        rows = [match.groups() for match in found if match is not None]
        columns = _columns(rows)
        if columns is None:
            pending, left, columns = self._one_by_one(pending, left, rows)
        return pending, left, columns

    def _stripped(self, lines: list[bytes]) -> list[array[float]] | None:
        text = b"\n".join(lines)
        for between in self.plain:
            text = text.replace(between, b" ")
        width = len(self.table.printed)
        try:
            values = array("d", map(float, text.split()))
        except ValueError:
            return None
        return [values[at::width] for at in range(width)] if len(values) == width * len(lines) else None

    def _one_by_one(
        self, pending: list[int], left: list[int], rows: list[tuple[bytes, ...]]
    ) -> tuple[list[int], list[int], list[array[float]]]:
        good: list[int] = []
        columns: list[array[float]] = [array("d") for _ in self.table.printed]
        for at, row in zip(pending, rows, strict=True):
            one = _columns([row])
            if one is None:
                left.append(at)
                continue
            good.append(at)
            for column, value in zip(columns, one, strict=True):
                column.extend(value)
        return good, sorted(left), columns


def _columns(rows: list[tuple[bytes, ...]]) -> list[array[float]] | None:
    try:
        return [array("d", map(float, column)) for column in zip(*rows, strict=True)]
    except ValueError:
        pass
    try:
        return [array("d", (float(text.replace(b",", b"")) for text in column)) for column in zip(*rows, strict=True)]
    except ValueError:
        return None


def learn(line: str, row: Row, table: Table) -> Template | None:
    """The pattern of one row. The stretch before the first number and behind the last is part of it."""
    if not row.fields:
        return None
    source, at = b"", row.start
    between: list[str] = []
    for one in row.fields:
        before = line[at : one.start]
        between.append(before)
        source += _literal(before, tail=True, head=at > row.start)
        source += rb"([\w.+\-,]*\w\.?)" if _COMMA.search(line[one.start : one.end]) else rb"([\w.+\-]+)"
        at = one.end
    source += _literal(line[at : row.end], tail=False, head=True)
    try:
        plain = _plain([*between, line[at : row.end]]) if (row.start, row.end) == (0, len(line)) else ()
        return Template(re.compile(source), table, plain)
    except (re.error, OverflowError, RecursionError):
        return None


def _plain(between: list[str]) -> tuple[bytes, ...]:
    """The texts between numbers, longest first, where none has a digit and each but the outer ones holds the numbers apart."""
    if any(char.isdigit() for text in between for char in text) or not all(text for text in between[1:-1]):
        return ()
    return tuple(sorted({text.encode("utf-8", "replace") for text in between if text.strip()}, key=len, reverse=True))


def _literal(text: str, *, tail: bool, head: bool) -> bytes:
    """What stands between numbers. A run of changing characters that touches a number keeps its signs, any other may be anything."""
    source, at = b"", 0
    for run in _RUN.finditer(text):
        source += re.escape(text[at : run.start()].encode("utf-8", "replace"))
        touches = (run.start() == 0 and head) or (run.end() == len(text) and tail)
        source += b"".join(map(_part, _PART.findall(run[0]))) if touches else LOOSE
        at = run.end()
    return source + re.escape(text[at:].encode("utf-8", "replace"))


def _part(part: str) -> bytes:
    if part[0].isdigit():
        return rb"\d+"
    if part[0] in " \t":
        return rb"[ \t]*"
    return re.escape(part.encode("utf-8", "replace"))


__all__ = ["LineFormat", "Template", "learn"]
