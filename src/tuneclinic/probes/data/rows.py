"""The raw rows of a file: JSON lines, a JSON array, columns or splits in one object, CSV and TSV.

Damaged rows are numbered and passed over; a file that ends in the middle gives the rows before its end.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.probes.reading import HEAD_BYTES, TEXT_BYTES, SourceFile, decode
from tuneclinic.values import dataclass

ROWS = 2_000_000
"""The most rows that are taken in; at 64 MiB only rows of 32 bytes could be more."""
MOST_BAD = 5000
"""After so many damaged elements of an array the rest is not looked for: each may nest as deep as the parser goes."""
CHUNK = 1 << 20
SPLITS = ("train", "data", "rows", "examples", "instances", "samples", "items")
"""Keys under which one JSON object holds a list of rows (the Alpaca, SQuAD-like and hub viewer exports)."""
DECODER = json.JSONDecoder()
SPACE = pattern(r"[\s,]*")


@dataclass
class Raw:
    """Rows as (number from 1, value); `bad` numbers what is no JSON, `whole` is False where the file goes on after the last."""

    rows: list[tuple[int, Any]] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    bad_text: str = ""
    whole: bool = True

    def fault(self, number: int, text: str) -> None:
        """One row that could not be read."""
        self.bad.append(number)
        self.bad_text = self.bad_text or text[:400]


def load(file: SourceFile) -> Raw:
    """All rows of `file`, or those of its first 64 MiB."""
    content, whole = _content(file)
    return parse(decode(content), file.base, whole=whole)


def head(file: SourceFile, rows: int) -> Raw:
    """The first few rows, from the head alone."""
    return parse(file.head_text, file.base, whole=len(file.head) < HEAD_BYTES, most=rows)


def _content(file: SourceFile) -> tuple[bytes, bool]:
    pieces: list[bytes] = []
    size = 0
    try:
        with file.open() as stream:
            while size <= TEXT_BYTES and (piece := stream.read(CHUNK)):
                pieces.append(piece)
                size += len(piece)
    except (OSError, EOFError, zlib.error):
        return b"".join(pieces)[:TEXT_BYTES], False
    return b"".join(pieces)[:TEXT_BYTES], size <= TEXT_BYTES


def parse(text: str, base: str, *, whole: bool = True, most: int = ROWS) -> Raw:
    """The rows in `text` of a file called `base`; `whole` says that the text is all of the file."""
    if base.endswith((".csv", ".tsv")):
        return _table(text, whole, most)
    start = _skip(text, 0)
    first = text[start : start + 1]
    lines = base.endswith((".jsonl", ".ndjson", ".jsonlines"))
    if first not in ("{", "[") and not lines:
        return Raw(whole=whole)
    if lines or _is_lines(text, start):
        return _lines(text, whole, most)
    if first == "[":
        return _array(text, start, whole, most)
    return _document(text, start, whole)


def value_of(text: str) -> Any:
    """`text` as JSON.

    Raises:
        ValueError: where it is none, nests too deeply or holds a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _value_at(text: str, at: int) -> tuple[Any, int]:
    try:
        return DECODER.raw_decode(text, at)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _skip(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _is_lines(text: str, start: int) -> bool:
    """Whether the first line is a whole value and a second value starts on the next line."""
    end = text.find("\n", start)
    if end < 0:
        return False
    after = _skip(text, end)
    if text[after : after + 1] != text[start] or text[end - 1 : end] == ",":
        return False
    try:
        value_of(text[start:end])
    except ValueError:
        return False
    return True


def _lines(text: str, whole: bool, most: int) -> Raw:
    raw = Raw(whole=whole)
    at, number, size = 0, 0, len(text)
    while at < size:
        number += 1
        end = text.find("\n", at)
        if end < 0:
            if not whole:
                break
            end = size
        line = text[at:end]
        at = end + 1
        if not line or line.isspace():
            continue
        try:
            raw.rows.append((number, value_of(line)))
        except ValueError:
            raw.fault(number, line)
        if len(raw.rows) >= most:
            raw.whole = raw.whole and at >= size
            break
    return raw


def _array(text: str, start: int, whole: bool, most: int) -> Raw:
    raw = Raw(whole=whole)
    at = _skip(text, start + 1)
    indent = text[text.rfind("\n", 0, at) + 1 : at]
    number = 0
    while at < len(text) and text[at] != "]":
        number += 1
        if number > most:
            raw.whole = False
            break
        try:
            value, after = _value_at(text, at)
        except ValueError:
            after = text.find(f"\n{indent}{{", at + 1) if not indent.strip() else -1
            if whole or after >= 0:
                raw.fault(number, text[at : at + 400])
            if after < 0 or len(raw.bad) > MOST_BAD:
                raw.whole = False
                break
            after += 1 + len(indent)
        else:
            raw.rows.append((number, value))
        at = _skip(text, after)
    else:
        raw.whole = raw.whole and at < len(text)
    return raw


def _document(text: str, start: int, whole: bool) -> Raw:
    """One object: a split, a table of columns, or a single row."""
    raw = Raw(whole=whole)
    try:
        value, after = _value_at(text, start)
    except ValueError:
        return _inside(text, start, whole)
    rows = _rows_of(value)
    while rows is None and (after := _skip(text, after)) < len(text):  # objects one after the other, over several lines each
        raw.rows.append((len(raw.rows) + 1, value))
        try:
            value, after = _value_at(text, after)
        except ValueError:
            if whole:
                raw.fault(len(raw.rows) + 1, text[after : after + 400])
            return raw
    raw.rows.extend([(len(raw.rows) + 1, value)] if rows is None else list(enumerate(rows, 1)))
    return raw


def _inside(text: str, start: int, whole: bool) -> Raw:
    """The rows of a split in an object that breaks off."""
    match = re.compile(r'\{\s*"(?:' + "|".join(SPLITS) + r')"\s*:\s*\[').match(text, start)
    if not match:
        return Raw(whole=False)
    raw = _array(text, match.end() - 1, whole, ROWS)
    raw.whole = False
    return raw


def _rows_of(value: Any) -> list[Any] | None:
    if not isinstance(value, dict):
        return None
    for name in SPLITS:
        held = value.get(name)
        if isinstance(held, list) and held and isinstance(held[0], dict):
            return held
    columns = {name: held for name, held in value.items() if isinstance(held, list)}
    if len(columns) < 2 or len(columns) < len(value) or len({len(held) for held in columns.values()}) != 1:
        return None
    if not any(held and isinstance(held[0], (str, list)) for held in columns.values()) or {"messages", "conversations"} & set(
        columns
    ):
        return None
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _table(text: str, whole: bool, most: int) -> Raw:
    raw = Raw(whole=whole)
    first = text[: text.find("\n")] if "\n" in text else text
    delimiter = max(",\t;", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header: list[str] | None = None
    for number, cells in _records(reader, raw):
        if header is None:
            header = [name.strip() for name in cells]
        elif len(cells) != len(header):
            raw.fault(number, delimiter.join(cells))
        else:
            raw.rows.append((number, dict(zip(header, cells, strict=True))))
        if len(raw.rows) >= most:
            raw.whole = False
            break
    if not whole and raw.rows:
        raw.rows.pop()
    return raw


def _records(reader: Iterator[list[str]], raw: Raw) -> Iterator[tuple[int, list[str]]]:
    """Records numbered from 0 (the header), empty lines passed over; one that `csv` refuses is a bad row."""
    number, refused = 0, 0
    while refused < 1000:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            refused += 1
            raw.fault(number, str(error))
            number += 1
            continue
        if cells:
            yield number, cells
            number += 1
