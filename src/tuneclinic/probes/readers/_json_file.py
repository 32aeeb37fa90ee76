"""Small JSON files of a model's folder, loaded safely, with the line a key stands on."""

from __future__ import annotations

import json
import re
from typing import Any

from tuneclinic.probes.readers._settings import stand_in
from tuneclinic.probes.reading import SourceFile
from tuneclinic.words import Text, Words

DAMAGED = Text("Not valid JSON ({why}).", "不是合法的 JSON（{why}）。")
NOT_AN_OBJECT = Text("This JSON file holds no object.", "这个 JSON 文件里不是一个对象。")


def bounded(text: str) -> int | float:
    """An integer as Python's json reads it, a float where it has too many digits to be parsed."""
    return int(text) if len(text) < 300 else float("inf")


def load(file: SourceFile, limit: int) -> tuple[dict[str, Any], str, Words]:
    """The object in `file`, its text, and what is wrong with it ("" where nothing is)."""
    try:
        text = file.text(limit)
    except (OSError, EOFError) as error:
        return {}, "", type(error).__name__
    pointer = stand_in(text)
    if pointer:
        return {}, text, pointer
    try:
        found = json.loads(text, parse_int=bounded)
    except RecursionError:
        return {}, text, DAMAGED.format(why="nesting")
    except ValueError as error:
        return {}, text, DAMAGED.format(why=str(error)[:120])
    return (found, text, "") if isinstance(found, dict) else ({}, text, NOT_AN_OBJECT)


def place(text: str, key: str, file: str) -> str:
    """`config.json:14`: the first line that has `key`."""
    match = re.search(rf'"{re.escape(key)}"\s*:', text)
    return file if match is None else f"{file}:{text.count(chr(10), 0, match.start()) + 1}"
