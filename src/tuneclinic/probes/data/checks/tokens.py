"""Rows that are tokenised already: what the labels cover. Checks that need the tokenizer's ids are made beside its files."""

from __future__ import annotations

from tuneclinic.probes.data.checks import Check, Found, hits
from tuneclinic.probes.data.row import Row, Table

IGNORED = -100
"""The ignore index of PyTorch's cross-entropy and of every trainer."""
MASKED_SHARE = 0.5
"""Where at least half of the rows mask their prompt, a row that does not is the exception."""


class Labels(Check):
    """Labels of a tokenised set."""

    names = ("all-masked", "prompt-trained")

    def find(self, table: Table) -> Found:
        """Rows with no label to train; rows that train their prompt where the others mask theirs."""
        labelled = [row for row in table.rows if row.labels]
        if not labelled:
            return {}
        masked = [row for row in labelled if _all_masked(row)]
        found: Found = {"all-masked": hits([(row, f"{len(row.labels or ())} × {IGNORED}") for row in masked])}
        opening = [row for row in labelled if (row.labels or (0,))[0] == IGNORED and row not in masked]
        if len(opening) >= MASKED_SHARE * len(labelled):
            trained = [row for row in labelled if IGNORED not in (row.labels or ())]
            found["prompt-trained"] = hits([(row, f"{(row.labels or ())[:12]}") for row in trained])
        return found


class Finite(Check):
    """Numbers that are none, where numbers or texts are trained on."""

    names = ("nonfinite",)

    def find(self, table: Table) -> Found:
        """Rows with NaN or infinity in a text column, in labels or in a list of values."""
        if not table.rows:
            return {}
        return {"nonfinite": hits([(row, "NaN") for row in table.rows if row.nonfinite])}


def _all_masked(row: Row) -> bool:
    return all(label == IGNORED for label in row.labels or ())
