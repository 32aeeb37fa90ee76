"""Damage done to a file by a seed: the same seed always does the same."""

import random
import struct

TOKENS = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"{", b"}", b"[", b"]", b'"', b"'", b",", b":", b"NaN", b"-Infinity", b"1e999", b"-1", b"9" * 400,
    b"null", b"true", b"\x1b[2J", b"<script>", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"../../../etc/passwd", b"{% for i in range(10**9) %}", b"&a [*a]", b"!!python/object:os.system",
    b"loss", b"step", b"'loss': nan", b"Traceback (most recent call last):\n", b"\x80\x04", b"PK\x03\x04", b"\x1f\x8b", b"[" * 500, b"{" * 500, b'{"a":' * 300, b"(" * 300, b"- " * 200, b"%s%n", b"\t",
)  # fmt: skip


def damaged(content: bytes, seed: int) -> bytes:
    """`content` with one to six hits."""
    draw = random.Random(seed)
    held = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(held) + 1)
        draw.choice((_cut, _insert, _flip, _repeat, _number, _drop, _swap))(held, at, draw)
    return bytes(held[: 4 << 20])


def _cut(held, at, _draw):
    del held[at:]


def _insert(held, at, draw):
    held[at:at] = draw.choice(TOKENS)


def _flip(held, at, draw):
    for place in range(at, min(len(held), at + draw.randint(1, 8))):
        held[place] = draw.randrange(256)


def _repeat(held, at, draw):
    piece = held[at : at + draw.randint(1, 64)]
    held[at:at] = piece * draw.choice((2, 10, 1000))


def _number(held, at, draw):
    held[at : at + 8] = struct.pack("<q", draw.choice((0, -1, 2**31, 2**63 - 1, -(2**63), 2**40)))


def _drop(held, at, draw):
    del held[at : at + draw.randint(1, 40)]


def _swap(held, at, draw):
    other = draw.randrange(len(held) + 1)
    first, second = min(at, other), max(at, other)
    held[:] = held[second:] + held[first:second] + held[:first]
