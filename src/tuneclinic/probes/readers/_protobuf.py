"""The protobuf wire format, as far as event files use it: fields of a message, without a schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

Field: TypeAlias = "tuple[int, int, int, bytes]"
"""Number, wire type, value of a varint (0 for the other types), bytes of the other types."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10
"""A 64-bit varint takes ten bytes at most."""


class BrokenError(ValueError):
    """The bytes are no protobuf message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint and the place behind it.

    Raises:
        BrokenError: It is cut off, or longer than 64 bits.
    """
    value = 0
    for shift in range(_VARINT_BYTES):
        if at >= len(data):
            raise BrokenError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise BrokenError("a number is too long")


def fields(data: bytes) -> Iterator[Field]:
    """The fields of one message in order.

    Raises:
        BrokenError: The bytes are no message; fields before the break were given.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, wire, value, b""
            continue
        if wire == BYTES:
            size, at = varint(data, at)
        elif wire in {FIXED64, FIXED32}:
            size = 8 if wire == FIXED64 else 4
        else:
            raise BrokenError(f"wire type {wire} is not in use")
        if number == 0 or at + size > len(data):
            raise BrokenError("a field is cut off")
        yield number, wire, 0, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """A varint as a signed 64-bit number."""
    return value - (1 << 64) if value >= 1 << 63 else value


def float32(data: bytes) -> float:
    """Four bytes as a float."""
    return float(struct.unpack("<f", data)[0])


def float64(data: bytes) -> float:
    """Eight bytes as a float."""
    return float(struct.unpack("<d", data)[0])


def text(data: bytes, limit: int = 4096) -> str:
    """Bytes as text, at most `limit` of them."""
    return data[:limit].decode("utf-8", errors="replace")
