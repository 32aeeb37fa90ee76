"""Checks of rows, one file a check or a family: adding the file adds the check."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.data.row import Row, Table, shown
from tuneclinic.registry import found

Found = dict[str, tuple[list[int], str]]
"""Row numbers and an example by name of check; a name with no rows was checked and is clean."""


class Check:
    """Looks at all rows of a set. `names` are those it may answer with; one that is left out of an answer was not checked."""

    names: ClassVar[tuple[str, ...]] = ()

    def find(self, table: Table) -> Found:
        """The rows with each defect that could be looked for."""
        raise NotImplementedError


def checks() -> tuple[Check, ...]:
    """Every check of this folder."""
    return found("tuneclinic.probes.data.checks", Check)


def hits(rows: list[tuple[Row, str]]) -> tuple[list[int], str]:
    """The numbers of `rows`, and the first one's text as the example."""
    return [row.number for row, _ in rows], shown(rows[0][1]) if rows else ""
