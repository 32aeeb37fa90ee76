"""Rows of an evaluation set that are in the training set too."""

from __future__ import annotations

from collections.abc import Sequence

from tuneclinic.probes.data.row import Row, key_of, prompt_key, shown
from tuneclinic.probes.data.tables import table_of
from tuneclinic.probes.reading import SourceFile
from tuneclinic.sections import RowSet

PROMPT_CHARS = 40
"""A shorter prompt ("hi", "continue") recurs in both halves of an honest split."""


def leak(train: Sequence[SourceFile], evaluation: Sequence[SourceFile]) -> RowSet | None:
    """Rows of `evaluation` that stand in `train`, whole or with their prompt; None where nothing could be compared.

    The row numbers are those of the evaluation file in which most were found, which is the row set's `source`; the set
    is empty where no row leaks. The example says which training row the first of them equals.
    """
    rows: dict[int, str] = {}
    prompts: dict[int, str] = {}
    for file in train:
        table = table_of(file)
        for row in table.rows:
            place = f"{table.source} row {row.number}"
            rows.setdefault(key_of(row), place)
            if _prompt_chars(row) >= PROMPT_CHARS:
                prompts.setdefault(prompt_key(row), place)
    if not rows:
        return None
    best: RowSet | None = None
    for file in evaluation:
        table = table_of(file)
        if not table.rows:
            continue
        leaked = [(row, place) for row in table.rows if (place := _known(row, rows, prompts))]
        example = f"{leaked[0][1]} = {_text(leaked[0][0])}" if leaked else ""
        found = RowSet("train-eval-leak", tuple(row.number for row, _ in leaked), table.source, example)
        if best is None or len(found.rows) > len(best.rows):
            best = found
    return best


def _known(row: Row, rows: dict[int, str], prompts: dict[int, str]) -> str:
    return rows.get(key_of(row)) or (prompts.get(prompt_key(row), "") if _prompt_chars(row) >= PROMPT_CHARS else "")


def _prompt_chars(row: Row) -> int:
    """Characters of the user's turns before the last answer; a shared system text alone makes no prompt."""
    return sum(len(text) for role, text in row.prompt if role == "user")


def _text(row: Row) -> str:
    return shown(" / ".join(text for _, text in row.messages) or str(row.input_ids))
