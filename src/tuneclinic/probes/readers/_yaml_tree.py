"""YAML as a tree with lines, built from the parser's events: nothing is constructed, and aliases are never expanded."""

from __future__ import annotations

import re
from typing import Any

from tuneclinic.probes.readers._tree import DEPTH, DOCUMENT_BYTES, FLOAT_WITHOUT_DOT, VISITS, Node, number

_SPECIAL = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}
_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})


def yaml_tree(text: str) -> tuple[Node | None, str]:
    """The first document of `text` as a tree, and why reading stopped early ("" where it did not).

    What stands before the first error is kept. Scalars follow the rules of YAML 1.1's safe schema, with one difference: a
    number with an exponent and no dot becomes a number, and its `text` keeps how it was written. An alias to a node that
    is not finished (a cycle) is null.
    """
    import yaml  # noqa: PLC0415 - 15 ms that runs without YAML do not pay

    builder = _Builder()
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for count, event in enumerate(yaml.parse(text[:DOCUMENT_BYTES], Loader=loader)):
            if count > VISITS or builder.take(event):
                break
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        return builder.root, place + str(getattr(error, "problem", None) or error).split("\n", 1)[0][:200]
    except (RecursionError, ValueError, OverflowError) as error:
        return builder.root, type(error).__name__
    return builder.root, ""


class _Builder:
    """Builds a tree from parser events, one call an event."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.stack: list[tuple[Node, Node | None]] = []
        self.anchors: dict[str, Node] = {}
        self.named: list[str | None] = []

    def take(self, event: Any) -> bool:
        """Takes one event in; True when the first document is over."""
        kind = type(event).__name__
        if kind == "ScalarEvent":
            self._add(_scalar(event), event.anchor)
        elif kind == "AliasEvent":
            self._add(self.anchors.get(event.anchor, Node(None, event.start_mark.line + 1)), None)
        elif kind in {"MappingStartEvent", "SequenceStartEvent"}:
            node = Node({} if kind[0] == "M" else [], event.start_mark.line + 1)
            self._add(node, None)
            self.stack.append((node, None))
            self.named.append(event.anchor)
        elif kind in {"MappingEndEvent", "SequenceEndEvent"} and self.stack:
            node, _ = self.stack.pop()
            anchor = self.named.pop()
            if anchor:
                self.anchors[anchor] = node
            if isinstance(node.value, dict):
                _merge(node.value)
        return kind == "DocumentEndEvent"

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = self.root or node
            return
        parent, key = self.stack[-1]
        if isinstance(parent.value, list):
            if len(self.stack) <= DEPTH:
                parent.value.append(node)
        elif key is None:
            self.stack[-1] = (parent, node)
        else:
            if len(self.stack) <= DEPTH and not isinstance(key.value, (dict, list)):
                if isinstance(node.value, (dict, list)):
                    node.line = node.line if node.value else key.line  # a new one stands where its key does
                    parent.value[key.text or str(key.value)] = node
                else:
                    parent.value[key.text or str(key.value)] = Node(node.value, key.line, node.text)
            self.stack[-1] = (parent, None)


def _merge(mapping: dict[str, Node]) -> None:
    """Applies a `<<` key: entries of the merged mapping that are not set here."""
    merged = mapping.pop("<<", None)
    if merged is not None and isinstance(merged.value, dict):
        for key, node in merged.value.items():
            mapping.setdefault(key, node)


def _scalar(event: Any) -> Node:
    text, line = str(event.value), event.start_mark.line + 1
    if event.style in {"'", '"', "|", ">"} or (event.tag and not event.tag.startswith("tag:yaml.org,2002:")):
        return Node(text, line, text)
    return Node(plain(text), line, text)


def plain(text: str) -> Any:
    """The value of an unquoted scalar."""
    lowered = text.lower()
    if lowered in {"", "~", "null"}:
        return None
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    if lowered in _SPECIAL:
        return _SPECIAL[lowered]
    if re.fullmatch(r"0x[0-9a-f]{1,15}", lowered):
        return int(lowered, 16)
    found = number(text) if text[:1] in "+-.0123456789" else None
    if found is None and FLOAT_WITHOUT_DOT.fullmatch(text):
        return float(text)
    return text if found is None else found
