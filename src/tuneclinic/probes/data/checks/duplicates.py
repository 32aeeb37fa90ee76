"""Rows that stand twice, and prompts with contradictory labels."""

from __future__ import annotations

from collections import Counter, defaultdict

from tuneclinic.probes.data.checks import Check, Found
from tuneclinic.probes.data.row import Row, Table, prompt_key, shown

SHORT = 32
"""Only labels and short facts contradict each other; two long answers to one question are two ways to say it."""


class Duplicate(Check):
    """Rows equal to an earlier one in every text and attachment."""

    names = ("duplicate",)

    def find(self, table: Table) -> Found:
        """The later copies; taking these rows out leaves every row once."""
        first: dict[int, int] = {}
        again: list[int] = []
        example = ""
        for row, key in zip(table.rows, table.keys, strict=True):
            if first.setdefault(key, row.number) == row.number:
                continue
            if not again:
                example = f"{first[key]} = {row.number}: {shown(' / '.join(text for _, text in row.messages))}"
            again.append(row.number)
        return {"duplicate": (again, example)}


class Conflict(Check):
    """One prompt, several short answers that are all labels of the set."""

    names = ("conflicting-answers",)

    def find(self, table: Table) -> Found:
        """Every row of a prompt that has contradictory answers."""
        if not table.answers or table.layout == "preference":
            return {}
        short = [(row, label) for row, text in table.answers if len(text) <= SHORT and (label := _label(text))]
        used = Counter(label for _, label in short)
        by_prompt: dict[int, dict[str, list[Row]]] = defaultdict(dict)
        for row, label in short:
            if used[label] > 1:
                by_prompt[prompt_key(row)].setdefault(label, []).append(row)
        conflicts = [answers for answers in by_prompt.values() if len(answers) > 1]
        numbers = sorted(row.number for answers in conflicts for rows in answers.values() for row in rows)
        if not conflicts:
            return {"conflicting-answers": ([], "")}
        prompt = next(iter(conflicts[0].values()))[0].prompt
        labels = " | ".join(list(conflicts[0])[:4])
        return {"conflicting-answers": (numbers, f"{shown(prompt[-1][1] if prompt else '', 120)} → {labels}")}


def _label(text: str) -> str:
    return text.strip().strip(".!。！\"'").casefold()
