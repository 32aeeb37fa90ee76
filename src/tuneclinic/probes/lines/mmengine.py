"""mmengine (XTuner) and old mmcv: `Epoch(train) [1][10/500]  lr: 1.0e-02  eta: 0:00:25  time: 0.01  memory: 0  loss: 11.47`."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import NUMBER, Field, LineFormat, pairs
from tuneclinic.probes.lines._lazy import Lazy

EPOCH = Lazy(
    r"\bEpoch ?(?:\((?P<mode>train|val|test)\))? {0,4}\[ {0,8}(?P<epoch>\d{1,9})\]\[ {0,8}(?P<at>\d{1,12})/ {0,8}(?P<of>\d{1,12})\]"
)
ITERATION = Lazy(r"\bIter ?(?:\((?P<mode>train|val|test)\))? {0,4}\[ {0,8}(?P<at>\d{1,12})/ {0,8}(?P<of>\d{1,12})\]")
PAIR = Lazy(rf"(?P<name>[A-Za-z][\w./]{{0,80}}): (?P<value>{NUMBER})(?!:)")


class MmEngine(LineFormat):
    """Rows by epoch or by iteration. Memory is printed in MiB."""

    framework: ClassVar[str] = "xtuner"
    needles: ClassVar[tuple[bytes, ...]] = (b"epoch(", b"epoch [", b"iter(", b"iter [")

    def fields(self, line: str) -> list[Field] | None:
        """The place in the epoch or run, and every `name: number` behind it."""
        row = EPOCH.search(line) or ITERATION.search(line)
        if row is None:
            return None
        fields = [field._replace(scale=1 / 1024) if field.name == "memory" else field for field in pairs(PAIR, line, row.end())]
        if not fields:
            return None
        if row["mode"] in {"val", "test"}:
            timing = {"time", "data_time", "memory", "eta"}
            return [field._replace(name=f"eval_{field.name}") for field in fields if field.name not in timing] or None
        if row.re is ITERATION.compiled:
            return [Field("step", *row.span("at")), Field("total_steps", *row.span("of")), *fields]
        return [
            Field("epoch", *row.span("epoch")),
            Field("epoch_step", *row.span("at")),
            Field("epoch_steps", *row.span("of")),
            *fields,
        ]
