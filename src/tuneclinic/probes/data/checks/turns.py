"""The turns of a conversation: their order, an answer to train on, pictures and their placeholders."""

from __future__ import annotations

from itertools import pairwise

from tuneclinic.probes.data.checks import Check, Found, hits
from tuneclinic.probes.data.row import Row, Table


class Order(Check):
    """Two turns of one speaker in a row."""

    names = ("roles-disordered",)

    def find(self, table: Table) -> Found:
        """Rows with two user or two assistant turns side by side; tool calls are passed over."""
        if table.layout not in ("messages", "sharegpt", "preference"):
            return {}
        rows = [(row, "-".join(role for role, _ in row.messages)) for row in table.rows if _twice(row)]
        return {"roles-disordered": hits(rows)}


class NoTarget(Check):
    """Rows without an answer in a set that has answers."""

    names = ("no-target",)

    def find(self, table: Table) -> Found:
        """Rows with no assistant turn; a set of prompts alone is not asked."""
        if not table.spoken or 2 * len(table.answers) <= len(table.rows):
            return {}
        rows = [row for row in table.rows if row.answer is None and not any(role == "text" for role, _ in row.messages)]
        return {"no-target": hits([(row, " / ".join(text for _, text in row.messages)) for row in rows])}


class Images(Check):
    """As many placeholders as pictures."""

    names = ("image-count",)

    def find(self, table: Table) -> Found:
        """Rows where both numbers differ, in a set that uses placeholders."""
        marked = sum(row.marks > 0 for row in table.rows)
        if not any(row.images for row in table.rows) or not marked:
            return {}
        strict = 2 * marked > sum(row.images > 0 for row in table.rows)
        rows = [row for row in table.rows if row.marks != row.images and (row.marks or strict)]
        return {
            "image-count": hits(
                [(row, f"{row.marks} ≠ {row.images}: {row.messages[0][1] if row.messages else ''}") for row in rows]
            )
        }


def _twice(row: Row) -> bool:
    if row.calls:
        return False
    roles = [role for role, _ in row.messages]
    return any(one == two and one in ("user", "assistant") for one, two in pairwise(roles))
