"""Preference pairs: both sides the same, or the worse one chosen."""

from __future__ import annotations

from tuneclinic.probes.data.checks import Check, Found, hits
from tuneclinic.probes.data.row import Table


class Pairs(Check):
    """Chosen against rejected."""

    names = ("identical-pair", "swapped-pair-suspect")

    def find(self, table: Table) -> Found:
        """Equal sides always; swapped ones only where the set scores both."""
        if table.layout != "preference" or not table.answers:
            return {}
        same = [(row, text) for row, text in table.answers if row.rejected is not None and row.rejected.strip() == text.strip()]
        found: Found = {"identical-pair": hits(same)}
        scored = [row for row in table.rows if row.scores is not None]
        if scored:
            swapped = [row for row in scored if row.scores is not None and row.scores[0] < row.scores[1]]
            found["swapped-pair-suspect"] = hits([(row, f"{row.scores}") for row in swapped])
        return found
