"""A log as blocks of lines, in bounded memory and with the numbers that an editor would show.

A carriage return ends a line too, as a terminal would draw it, and does not count as a line of the file.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from tuneclinic.patterns import pattern
from tuneclinic.sections.training import Array
from tuneclinic.values import dataclass

FIRST_BLOCK, BLOCK = 1 << 15, 1 << 20
"""Bytes read at once, doubled from the first to the second: the first blocks teach the shapes, later ones spend their time in C."""
LONGEST_LINE = 1 << 16
"""Where a line without an end is cut: the longest real row (verl) has 6 kB."""
ESCAPE = pattern(rb"\x1b(?:\[[0-9;:?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_]?)")
"""ANSI colours and cursor movements, and operating-system commands (titles, links)."""
PASSED = bytes(range(0x30, 0x3A)) + b".+-,:#? \t" + bytes(range(0x80, 0xA0)) + b"\xe2"
"""What may differ between two lines of one shape: digits, signs, spaces and the blocks that bars are drawn with (U+2500 to U+259F)."""
MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive lines, the shape of each, and their numbers in the file. `first` counts all lines before, carriage returns included."""

    lines: list[bytes]
    shapes: list[bytes]
    first: int
    base: int
    numbers: Array | None

    def number(self, index: int) -> int:
        """The line's number in the file, from 1."""
        return self.base + (index if self.numbers is None else int(self.numbers[index]))

    def numbers_of(self, indices: Array) -> Array:
        """The numbers of many lines."""
        return self.base + (indices if self.numbers is None else self.numbers[indices])


def blocks(stream: BinaryIO) -> Iterator[Block]:
    """The lines of `stream` in blocks. A file that ends in the middle (a cut gzip) gives what could be read."""
    first, base, rest, dropping = 0, 1, b"", False
    for piece in _pieces(stream):
        data = piece
        if dropping:
            end = _first_end(data)
            if end < 0:
                continue
            data, dropping = data[end:], False
        data = rest + data
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        rest = data[cut:]
        if len(rest) > LONGEST_LINE:
            rest, dropping = rest[:LONGEST_LINE], True
        if cut:
            block = _block(data[: cut - 1], first, base)
            first += len(block.lines)
            base = block.number(len(block.lines) - 1) + (data[cut - 1 : cut] == b"\n")
            yield block
    if rest:
        yield _block(rest, first, base)


def _first_end(data: bytes) -> int:
    ends = [at for at in (data.find(b"\n"), data.find(b"\r")) if at >= 0]
    return min(ends) if ends else -1


def _block(data: bytes, first: int, base: int) -> Block:
    numbers = None
    if b"\x1b" in data:
        data = ESCAPE.sub(b"", data)
    if b"\r" in data:
        bytes_: Any = np.frombuffer(data, dtype=np.uint8)
        ends = bytes_[(bytes_ == 10) | (bytes_ == 13)] == 10
        numbers = np.concatenate(([0], np.cumsum(ends)))
        data = data.replace(b"\r", b"\n")
    return Block(data.split(b"\n"), data.translate(None, PASSED).split(b"\n"), first, base, numbers)


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    size = FIRST_BLOCK
    piece = _read(stream, size)
    encoding = next((name for mark, name in MARKS.items() if piece.startswith(mark)), None)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    piece = piece[2:] if encoding else piece.removeprefix(codecs.BOM_UTF8)
    while piece:
        if decoder is not None:
            piece = decoder.decode(piece).encode("utf-8", "replace")
        elif b"\0" in piece:
            piece = piece.translate(None, b"\0")
        if piece:
            yield piece
        size = min(2 * size, BLOCK)
        piece = _read(stream, size)


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size)
    except (OSError, EOFError, ValueError):
        return b""
    except Exception as error:  # zlib.error is not imported for its name alone
        if type(error).__name__ == "error":
            return b""
        raise
