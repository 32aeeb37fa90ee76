"""The whole configuration that axolotl and ms-swift print at the head of their logs."""

from __future__ import annotations

import ast
import warnings
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._settings import Entry, entries_of, settings_of
from tuneclinic.probes.readers._tree import json_tree
from tuneclinic.probes.reading import SourceFile
from tuneclinic.sections import Settings

AXOLOTL = pattern(r"\[axolotl\.[^\n]{0,200}\bconfig:[ \r]{0,4}\n(?=\{)")
SWIFT = pattern(r"\[INFO:swift\] args: \w{1,40}Arguments\([ \r]{0,4}\n")
_PAIR = pattern(r"([A-Za-z_]\w{0,80})=(.{0,400}?),?\r?")
"""One line of ms-swift's block: `learning_rate=0.01,`."""


def printed_settings(file: SourceFile) -> Settings | None:
    """The settings printed within the head of a log, each with its line; None where none are."""
    head = file.head_text
    if "config:" in head and (found := AXOLOTL.search(head)):
        end = head.find("\n}", found.end())
        before = head.count("\n", 0, found.end())
        root = json_tree("\n" * before + head[found.end() : end + 2 if end >= 0 else len(head)])
        return settings_of(entries_of(root, file.name), "axolotl", file.name) if root is not None else None
    if "args: " in head and (found := SWIFT.search(head)):
        end = head.find("\n)", found.end())
        first = head.count("\n", 0, found.end()) + 1
        lines = head[found.end() : end if end >= 0 else len(head)].split("\n")
        entries = [entry for number, line in enumerate(lines, first) if (entry := _entry(line, f"{file.name}:{number}"))]
        return settings_of(entries, "ms-swift", file.name)
    return None


def _entry(line: str, where: str) -> Entry | None:
    pair = _PAIR.fullmatch(line)
    return Entry(pair[1], _value(pair[2]), where, line.rstrip("\r,")[:200]) if pair else None


def _value(text: str) -> Any:
    try:
        with warnings.catch_warnings():  # an odd escape in somebody's path is not our user's concern
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
