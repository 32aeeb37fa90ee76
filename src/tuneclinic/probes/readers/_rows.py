"""Rows of numbers in hostile files: numbers, JSON lines, JSON documents that were cut off."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from json.decoder import JSONDecoder
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.probes.reading import TEXT_BYTES, Reading, SourceFile
from tuneclinic.words import Text, Words

NUMBER_CHARS = 40
"""Characters. A float prints in 24; thousands commas and signs make it longer, anything beyond is no number."""
FLAT_DEPTH = 3
"""Levels of nested metrics that are joined with `/`; loggers nest by split and by reward function, no deeper."""
FLAT_KEYS = 2000
"""Keys read of one row; a wide W&B history has some hundreds."""
HEAD_ROWS = 8
"""Rows of a head that a reader may judge a file by."""
READ_ERRORS = (OSError, EOFError, zlib.error)
"""What a damaged or vanished file raises while it is read."""
JSON_ERRORS = (ValueError, RecursionError)
"""What `json` raises on malformed, too deep or too large content."""

_GROUPED = pattern(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)


_DECODER: Any = JSONDecoder()


def number(value: Any) -> float | None:
    """A value as a float; None for switches, texts that are no number, and integers beyond a float's range."""
    if value.__class__ is float:
        return float(value)
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    return _from_text(value) if isinstance(value, str) else None


def _from_text(text: str) -> float | None:
    if len(text) > NUMBER_CHARS or "_" in text:
        return None
    try:
        return float(text)  # also nan and inf in any case, with blanks around
    except ValueError:
        return float(text.replace(",", "")) if _GROUPED.fullmatch(text.strip()) else None


def step_number(value: Any) -> float | None:
    """A step as a number; `12/438` is step 12."""
    if isinstance(value, str):
        value = value[:NUMBER_CHARS].partition("/")[0]
    step = number(value)
    return step if step is not None and math.isfinite(step) else None


def flat(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row with nested mappings joined by `/`, to `FLAT_DEPTH` levels and `FLAT_KEYS` keys."""
    for value in row.values():
        if value.__class__ is dict:
            break
    else:
        return row if isinstance(row, dict) else dict(row)
    out: dict[str, Any] = {}
    _flatten(row, "", FLAT_DEPTH, out)
    return out


def _flatten(row: Mapping[Any, Any], prefix: str, depth: int, out: dict[str, Any]) -> None:
    for key, value in row.items():
        if len(out) >= FLAT_KEYS:
            return
        if isinstance(value, dict):
            if depth > 1:
                _flatten(value, f"{prefix}{key}/", depth - 1, out)
        else:
            out[f"{prefix}{key}"] = value


def bounded_lines(file: SourceFile, damage: list[str]) -> Iterator[tuple[int, str]]:
    """The file's lines from 1; a damaged end (a cut gzip) ends them and leaves its reason in `damage`."""
    try:
        yield from file.lines()
    except READ_ERRORS as error:
        damage.append(str(error) or type(error).__name__)


def json_lines(file: SourceFile, damage: list[str]) -> Iterator[tuple[int, Any]]:
    """Line number and value of every line; None stands for a line that is no JSON. Blank lines are passed over."""
    scan = _DECODER.scan_once  # takes half the time of json.loads on short lines
    for line, text in bounded_lines(file, damage):
        try:
            value, end = scan(text, 0)
            yield line, value if end == len(text) else json.loads(text)
        except (*JSON_ERRORS, StopIteration):
            if text and not text.isspace():
                yield line, _parsed(text)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except JSON_ERRORS:
        return None


def is_json_lines(head: str) -> bool:
    """Whether a text that opens with `{` is one object a line, and not one document."""
    if not head.startswith("{"):
        return False
    first, line_feed, rest = head.partition("\n")
    if not line_feed or not first.rstrip().endswith("}"):
        return False
    return rest.lstrip().startswith("{")


def head_rows(file: SourceFile, most: int = HEAD_ROWS) -> list[dict[str, Any]]:
    """The first JSON objects of the head, whether the file is JSON lines, an array of objects or one object.

    They are kept with the file, like its head: every reader that looks at JSON asks for them.
    """
    kept: list[dict[str, Any]] | None = file.__dict__.get("_head_rows")
    if kept is None:
        kept = _head_rows(file)
        file.__dict__["_head_rows"] = kept
    return kept[:most]


def _head_rows(file: SourceFile) -> list[dict[str, Any]]:
    text = file.head_text.lstrip("\ufeff \t\r\n\0")
    if not text.startswith(("{", "[")):
        return []
    if text.startswith("["):
        return objects_after(text, 1, HEAD_ROWS)[0]
    rows = []
    for line in text.splitlines()[: 2 * HEAD_ROWS] if is_json_lines(text) else ():
        value = _parsed(line)
        if isinstance(value, dict):
            rows.append(value)
    return rows[:HEAD_ROWS] or objects_after(text, 0, 1)[0]


_GAP = pattern(r"[\s,]*")


def objects_after(text: str, start: int, most: int | None = None) -> tuple[list[dict[str, Any]], bool]:
    """The complete JSON objects that follow each other from `start`, and whether the list was closed by `]`."""
    rows: list[dict[str, Any]] = []
    at = start
    while most is None or len(rows) < most:
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
        if at >= len(text) or text[at] != "{":
            return rows, at < len(text) and text[at] == "]"
        try:
            value, at = _DECODER.raw_decode(text, at)
        except JSON_ERRORS:
            return rows, False
        rows.append(value)
    return rows, False


def document(file: SourceFile) -> tuple[Any, str, str]:
    """A whole JSON document: its value (None where it does not parse), its text, and why it does not parse."""
    try:
        text = file.text(TEXT_BYTES)
    except READ_ERRORS as error:
        return None, "", str(error) or type(error).__name__
    text = text.lstrip("\ufeff").rstrip("\0 \t\r\n")
    try:
        return json.loads(text), text, ""
    except RecursionError:
        return None, text, "nested too deeply"
    except ValueError as error:
        return None, text, str(error)


MANY_VALUES = "Extra data"
"""What `json` says of a document that goes on behind its end: JSON lines whose first line is longer than a file's head."""


def nothing(note: Words, skipped: Mapping[str, int] | None = None) -> list[Reading]:
    """The answer of a reader that understood nothing."""
    return [Reading(skipped=skipped or {}, note=note)]


def damaged(reasons: list[str]) -> Text | None:
    """What to say of a file whose reading broke off."""
    if not reasons:
        return None
    return Text(f"the file is damaged and was read up to there ({reasons[0]})", f"文件已损坏，只读到损坏处为止（{reasons[0]}）")


def joined(*notes: Words | None) -> Words:
    """Several notes as one."""
    kept = [note for note in notes if note]
    if not kept:
        return ""
    if len(kept) == 1:
        return kept[0]
    english = "; ".join(note.en if isinstance(note, Text) else note for note in kept)
    chinese = "；".join(note.zh if isinstance(note, Text) else note for note in kept)
    return Text(english, chinese)


def sure(claim: Callable[[SourceFile], float], file: SourceFile) -> float:
    """A claim that never raises: a head that breaks it is not this format's."""
    try:
        return claim(file)
    except (*READ_ERRORS, *JSON_ERRORS, TypeError, AttributeError, KeyError, IndexError):
        return 0.0
