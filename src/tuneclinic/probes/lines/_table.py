"""Rows of one make: the same columns, printed by the same format."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuneclinic.probes.lines import Field, LineFormat
from tuneclinic.probes.lines._names import RESERVED, held_out
from tuneclinic.sections.training import Array

MOST_ROWS = 1 << 18
"""Rows kept of one make. Beyond it every second one is kept, then every fourth …: the curve stays, the memory is bounded."""
SUMMARY = frozenset({"train_runtime", "train_samples_per_second", "train_steps_per_second"})

BESIDE = frozenset(
    {"epoch", "step_seconds", "memory_gib", "train_speed(iter/s)", "memory/max_allocated (GiB)", "memory/device_reserved (GiB)"}
)
"""Columns that ms-swift and axolotl put into every dictionary, evaluations and summaries among them."""


class Table:
    """Rows with the same columns. `names` are series names; `order` counts lines, carriage returns included."""

    def __init__(self, form: LineFormat, fields: Sequence[Field]) -> None:
        self.form = form
        self.printed = tuple(field.name for field in fields)
        self.names = tuple(form.name(name) for name in self.printed)
        self.scales = tuple(field.scale for field in fields)
        self.kind = _kind(self.names)
        self.count = 0
        self.stride = 1
        self.order: array[int] = array("q")
        self.lines: array[int] = array("q")
        self.columns: list[array[float]] = [array("d") for _ in self.names]

    def add(self, order: Array, lines: Array, columns: Sequence[array[float]]) -> None:
        """Appends rows, thinned where the table is full."""
        skip = -self.count % self.stride
        self.count += len(order)
        kept = slice(skip, None, self.stride)
        self.order.frombytes(np.ascontiguousarray(order[kept], dtype=np.int64).tobytes())
        self.lines.frombytes(np.ascontiguousarray(lines[kept], dtype=np.int64).tobytes())
        for mine, more in zip(self.columns, columns, strict=True):
            mine.extend(more[kept] if self.stride > 1 else more)
        if len(self.order) > MOST_ROWS:
            self._thin()

    def _thin(self) -> None:
        self.stride *= 2
        self.order, self.lines = self.order[::2], self.lines[::2]
        self.columns = [column[::2] for column in self.columns]

    def column(self, name: str) -> Array | None:
        """All values of the first column called `name`, scaled; None where there is none."""
        if name not in self.names:
            return None
        at = self.names.index(name)
        values: Any = np.frombuffer(self.columns[at], dtype=np.float64)
        return np.asarray(values * self.scales[at]) if self.scales[at] != 1.0 else np.asarray(values)

    @property
    def pacing(self) -> bool:
        """Whether rows stand for logging steps: they train, and tell a loss or a place. An overflow of the loss scale does neither."""
        return self.kind == "train" and not {"loss", "epoch", "step", "epoch_step"}.isdisjoint(self.names)

    @property
    def measured(self) -> tuple[str, ...]:
        """The columns that measure something."""
        return tuple(name for name in dict.fromkeys(self.names) if name not in RESERVED)


def _kind(names: tuple[str, ...]) -> str:
    """Whether rows train, evaluate or sum up: "train", "eval" or "summary"."""
    if SUMMARY & set(names) or ("train_loss" in names and "loss" not in names):
        return "summary"
    measured = [name for name in names if name not in RESERVED | BESIDE]
    return "eval" if measured and all(held_out(name) for name in measured) else "train"
