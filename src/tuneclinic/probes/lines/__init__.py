"""Line formats of text logs: one trainer's way of printing a row a file. Adding a file registers its format.

A format says where the numbers of a row stand in a line. The reader learns a pattern from that and reads the thousands of
lines of the same shape without asking the format again.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar, NamedTuple

from tuneclinic.probes.lines._lazy import Lazy
from tuneclinic.probes.lines._names import metric_name
from tuneclinic.registry import found

NUMBER = r"[-+]?(?:\d+(?:,\d{3})*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[nN]a[nN]|NAN|[iI]nf(?:inity)?|INF)(?![\w])"
"""A printed number: thousands commas, exponents, and the words for what is not finite."""
VALUE = NUMBER.removesuffix(r"(?![\w])")
"""The same where a unit may follow without a space: `5.05ms`, `160.66GiB`."""
LONGEST_NUMBER = 64


class Field(NamedTuple):
    """One number of a row: its name as printed, where it stands in the line, and what to multiply it by."""

    name: str
    start: int
    end: int
    scale: float = 1.0


class Row(NamedTuple):
    """One row of a line: its numbers from left to right, and the stretch of the line that belongs to it."""

    fields: tuple[Field, ...]
    start: int
    end: int


class LineFormat:
    """One trainer's line. Subclasses set the class attributes and write `rows` or `fields`.

    framework: who prints it, as `Settings.framework` names it; "" where that does not tell.
    needles: bytes, lower case; a line without any of them in its lower-cased form is not shown to the format.
    aliases: names that mean something else here than in the common table.
    bar: a progress bar: printed again and again for one step, of which the last counts.
    common: a shape that several trainers share; asked after the formats of one trainer.
    by_epoch: rows name an epoch and rarely a step.
    last_resort: asked only where no other format knows the line.
    kind: what the loss is of, where the trainer trains nothing else; "" where its metric names have to tell.
    """

    framework: ClassVar[str] = ""
    needles: ClassVar[tuple[bytes, ...]] = ()
    aliases: ClassVar[dict[str, str]] = {}
    bar: ClassVar[bool] = False
    last_resort: ClassVar[bool] = False
    common: ClassVar[bool] = False
    by_epoch: ClassVar[bool] = False
    kind: ClassVar[str] = ""

    def fields(self, line: str) -> list[Field] | None:
        """The numbers of the line's only row, by their printed names; None where the line is not of this format."""
        raise NotImplementedError

    def rows(self, line: str) -> list[Row]:
        """All rows of the line."""
        fields = self.fields(line)
        return [Row(ordered(fields), 0, len(line))] if fields else []

    def name(self, printed: str) -> str:
        """The series name of a printed name."""
        return self.aliases.get(printed) or metric_name(printed)

    def parse(self, line: str) -> dict[str, float] | None:
        """The first row of the line by series names; reserved names are `step`, `epoch`, `total_steps` and their kin."""
        rows = self.rows(line)
        if not rows:
            return None
        return {
            self.name(one.name): value
            for one in rows[0].fields
            if (value := number(line[one.start : one.end], one.scale)) is not None
        }


def ordered(fields: list[Field]) -> tuple[Field, ...]:
    """The fields from left to right, none overlapping another, each name once (the first)."""
    kept: list[Field] = []
    seen: set[str] = set()
    for field in sorted(fields, key=lambda field: field.start):
        if field.name not in seen and (not kept or field.start >= kept[-1].end):
            seen.add(field.name)
            kept.append(field)
    return tuple(kept)


def number(text: str, scale: float = 1.0) -> float | None:
    """The value of a printed number, None where it is none."""
    if len(text) > LONGEST_NUMBER:
        return None
    try:
        return float(text.replace(",", "")) * scale
    except ValueError:
        return None


def pairs(pattern: Lazy, line: str, start: int = 0, end: int | None = None) -> list[Field]:
    """Fields of all matches of `pattern`, whose groups are `name` and `value` and, optionally, `unit`."""
    fields = []
    units = "unit" in pattern.compiled.groupindex
    for match in pattern.finditer(line, start, len(line) if end is None else end):
        scale = SCALES.get(match["unit"] or "", 1.0) if units else 1.0
        fields.append(Field(match["name"].strip(), *match.span("value"), scale))
    return fields


SCALES = {"ms": 1e-3, "us": 1e-6, "MiB": 1 / 1024, "MB": 1 / 1024, "KiB": 1 / 1024**2}
"""Units brought to the series' own: seconds and GiB."""


@cache
def formats() -> tuple[LineFormat, ...]:
    """All formats, those of last resort at the end."""
    return tuple(sorted(found("tuneclinic.probes.lines", LineFormat), key=lambda one: (one.last_resort, one.common)))
