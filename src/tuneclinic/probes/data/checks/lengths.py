"""Rows far longer than the rest, and answers that were cut at one length."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tuneclinic.arrays import percentile
from tuneclinic.probes.data.checks import Check, Found, hits
from tuneclinic.probes.data.row import Table, size_of

LONG_FACTOR = 4.0
"""Times the 99th percentile; in 17 real sets of 100 to 2,000 rows the longest row is at most 2.9 times that."""
LONG_CHARS = 8000
"""About 2,000 tokens: a shorter row fits any training length in use."""
LONG_ROWS = 100
"""Below a hundred rows a 99th percentile is the longest row itself."""
CUT_ROWS = 5
CUT_SHARE = 0.01
CUT_CHARS = 200
"""In 17 real sets at most one answer of this length stops in the middle of a sentence at the set's greatest length."""
ENDS = frozenset(".!?。！？…~～)）]】}\"'”’»`*|>:：;；$-_=/#%")
"""What a finished text ends with."""


class Long(Check):
    """Rows far beyond the others."""

    names = ("long",)

    def find(self, table: Table) -> Found:
        """Rows of more than four times the 99th percentile."""
        if len(table.rows) < LONG_ROWS:
            return {}
        sizes = np.array(table.sizes)
        limit = max(LONG_FACTOR * float(percentile(sizes, 99)), LONG_CHARS if table.layout != "tokenised" else LONG_CHARS / 4)
        rows = [table.rows[index] for index in np.flatnonzero(sizes > limit)]
        return {"long": hits([(row, f"{size_of(row)}") for row in rows])}


class Truncated(Check):
    """Answers that stop in the middle of a sentence, all at one length."""

    names = ("truncated-answer",)

    def find(self, table: Table) -> Found:
        """Rows at the most common long length, where it is the greatest and they end without an end."""
        if len(table.answers) < CUT_ROWS:
            return {}
        cut = [(row, text) for row, text in table.answers if len(text) >= CUT_CHARS and _stops(text)]
        sizes = Counter(len(text) for _, text in cut)
        if not sizes:
            return {"truncated-answer": ([], "")}
        longest = max(len(text) for _, text in table.answers)
        count = sizes[longest]
        if count < max(CUT_ROWS, CUT_SHARE * len(table.answers)):
            return {"truncated-answer": ([], "")}
        rows = [(row, text[-120:]) for row, text in cut if len(text) == longest]
        return {"truncated-answer": hits(rows)}


def _stops(text: str) -> bool:
    last = text.rstrip()[-1:]
    return last.isalnum() or last in ",，、"
