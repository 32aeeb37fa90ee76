"""Documents as trees whose every value knows its line: what YAML and JSON settings are read through.

Nothing here recurses and everything is bounded, so a cyclic alias, a billion laughs or a thousand brackets end in a short
answer and no crash.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.values import dataclass

DOCUMENT_BYTES = 1 << 18
"""The most of a settings document that is read: the longest of the public configurations measured has 4 kB, a full
TrainingArguments dump 12 kB."""
DEPTH = 40
"""Where nesting ends: the deepest real configuration (llmcompressor recipes inside axolotl) has 6 levels."""
VISITS = 20_000
"""How many nodes are walked: aliases can make a tree of any size out of ten lines."""
PIECES = 60_000
"""How many tokens of a JSON document are read: a full TrainingArguments dump has 700."""
ITEMS = 16
"""How many entries of a list of mappings (data sets) are walked."""
INTEGER_DIGITS = 18
"""Integers beyond 18 digits become floats: Python refuses to parse 4300 digits, and numpy's int64 ends at 19."""
FLOAT_WITHOUT_DOT = pattern(r"[+-]?\d+(?:\.\d*)?[eE][+-]?\d+")
"""`2e-5` is a string in YAML 1.1, which wants a dot before the exponent. People write it for the number it looks like."""


@dataclass(slots=True)
class Node:
    """One value: a scalar, a list of nodes or a mapping of nodes; `text` is a scalar as it was written, `line` from 1."""

    value: Any
    line: int = 0
    text: str = ""


def number(text: str) -> int | float | None:
    """A plain decimal number as written, None for anything else. Never raises; what is too large becomes infinity."""
    plain = text.replace("_", "")
    if re.fullmatch(r"[+-]?\d+", plain):
        return int(plain) if len(plain) <= INTEGER_DIGITS else float(plain)
    if re.fullmatch(r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?", plain) or FLOAT_WITHOUT_DOT.fullmatch(plain):
        return float(plain)
    return None


def flat(root: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Every scalar or list of scalars under `root` with its dotted key, in document order, bounded."""
    stack: list[tuple[str, Node, int]] = [(prefix, root, 0)]
    visits = 0
    while stack and visits < VISITS:
        visits += 1
        key, node, depth = stack.pop()
        if depth > DEPTH:
            continue
        if isinstance(node.value, dict):
            below = [(f"{key}.{name}" if key else name, child, depth + 1) for name, child in node.value.items()]
            stack.extend(reversed(below))
        elif isinstance(node.value, list):
            mappings = [child for child in node.value[:ITEMS] if isinstance(child.value, dict)]
            if mappings:
                yield key, Node(_paths(mappings), node.line)
                stack.extend((f"{key}.{index}", child, depth + 1) for index, child in reversed(list(enumerate(mappings))))
            else:
                plain = tuple(child.value for child in node.value[:1000] if not isinstance(child.value, (dict, list)))
                visits += len(plain)
                yield key, Node(plain, node.line)
        else:
            yield key, node


def _paths(mappings: list[Node]) -> tuple[Any, ...]:
    """The `path` or `name` of each entry of a list of data sets."""
    found = []
    for entry in mappings:
        named = next((entry.value[key].value for key in ("path", "name", "dataset", "type") if key in entry.value), None)
        if isinstance(named, (str, int, float)):
            found.append(named)
    return tuple(found)


_JSON_TOKEN = pattern(r'"(?:[^"\\\n]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def json_tree(text: str) -> Node | None:
    """A JSON object or array as a tree, as far as it goes: a file that was cut short yields what stands before the cut.

    Comments and trailing commas, which some writers leave behind, are passed over.
    """
    breaks = [match.start() for match in re.finditer("\n", text[:DOCUMENT_BYTES])]
    root: Node | None = None
    stack: list[Node] = []
    key: str | None = None
    found = islice(_JSON_TOKEN.finditer(text[:DOCUMENT_BYTES]), PIECES)
    pieces = [(match.group(), match.start()) for match in found]
    for index, (piece, start) in enumerate(pieces):
        if piece in {"}", "]"}:
            if stack:
                stack.pop()
            key = None
            if not stack:
                break
            continue
        if piece in {":", ","}:
            continue
        after = pieces[index + 1][0] if index + 1 < len(pieces) else ""
        if stack and isinstance(stack[-1].value, dict) and key is None:
            key = str(_json_scalar(piece)) if piece.startswith('"') and after == ":" else None
            continue
        opening = piece in {"{", "["}
        value: Any = ({} if piece == "{" else []) if opening else _json_scalar(piece)
        node = Node(value, bisect_right(breaks, start) + 1, "" if opening else piece)
        if root is None:
            if not opening:
                return None
            root = node
        elif len(stack) <= DEPTH:
            _attach(stack[-1], key, node)
        key = None
        if opening:
            stack.append(node)
    return root


def _attach(parent: Node, key: str | None, node: Node) -> None:
    if isinstance(parent.value, dict) and key is not None:
        parent.value[key] = node
    elif isinstance(parent.value, list):
        parent.value.append(node)


_WORDS = {"true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _json_scalar(piece: str) -> Any:
    if piece.startswith('"'):
        import json  # noqa: PLC0415 - only files with strings need it

        try:
            return json.loads(piece, strict=False)
        except ValueError:
            return piece[1:-1]
    if piece in _WORDS:
        return _WORDS[piece]
    found = number(piece)
    return piece if found is None else found
