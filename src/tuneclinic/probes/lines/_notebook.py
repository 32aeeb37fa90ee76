"""The table that the Trainer shows in a notebook, as people paste it: `Step  Training Loss  Validation Loss` and rows of numbers."""

from __future__ import annotations

import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.lines import Field, LineFormat
from tuneclinic.probes.lines._lazy import Lazy

HEADER = Lazy(r"^\s{0,8}\|?\s{0,4}(?:Step|Epoch)\b[\s|]{1,12}Training Loss\b.{0,400}$")
CELL = pattern(r"Training Loss|Validation Loss|Step|Epoch|[A-Z][A-Za-z\d]*(?:[ _][A-Za-z\d]+)*")
NUMBER = pattern(r"[-+\d.,eE]{1,40}")
NAMES = {"Step": "step", "Epoch": "epoch", "Training Loss": "loss", "Validation Loss": "eval_loss"}


class NotebookTable(LineFormat):
    """Rows under a header. Not found by needles: the reader hands rows over once it has seen the header."""

    def __init__(self, header: str) -> None:
        cells = re.split(r"\s*[\t|]\s*|\s{2,}", header.strip().strip("|").strip())
        self.cells = cells if len(cells) > 1 else CELL.findall(header)

    def fields(self, line: str) -> list[Field] | None:
        """The numbers of a row, under the header's names; None where the row has another number of cells."""
        found = list(NUMBER.finditer(line))
        if len(found) != len(self.cells):
            return None
        return [Field(cell, *match.span()) for cell, match in zip(self.cells, found, strict=True)]

    def name(self, printed: str) -> str:
        """Columns beside the two losses are evaluation metrics."""
        return NAMES.get(printed.strip()) or f"eval_{printed.strip().lower().replace(' ', '_')}"
