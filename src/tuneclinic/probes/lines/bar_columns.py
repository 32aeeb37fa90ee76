"""nanochat and torchtune's log file: `step 00010/00500 (2.00%) | loss: 5.47 | lrm: 1.00 | dt: 5.05ms | tok/sec: 25,328`."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import VALUE, Field, LineFormat, pairs
from tuneclinic.probes.lines._lazy import Lazy

ROW = Lazy(r"(?:^|[\s\]])[Ss]tep {0,8}(?P<step>\d{1,12})(?:/(?P<total>\d{1,12}))?(?: \([\d.]{1,12}%\))? {0,4}\|")
PAIR = Lazy(rf"(?:\||(?<=\d)) {{0,4}}(?P<name>[A-Za-z][\w/@ ]{{0,60}}): {{0,4}}(?P<value>{VALUE})(?P<unit>ms|GiB|MiB)?")


class BarColumns(LineFormat):
    """A step, then columns between bars. torchtune writes them with spaces behind one bar."""

    needles: ClassVar[tuple[bytes, ...]] = (b"step ",)
    aliases: ClassVar[dict[str, str]] = {
        "Validation bpb": "eval_bpb",
        "peak_memory_reserved": "memory_gib",
        "total time": "total time",
    }

    def fields(self, line: str) -> list[Field] | None:
        """The step and every `name: number` behind it."""
        row = ROW.search(line)
        if row is None:
            return None
        fields = pairs(PAIR, line, row.end() - 1)
        if not fields:
            return None
        placed = [Field("step", *row.span("step"))]
        if row["total"]:
            placed.append(Field("total_steps", *row.span("total")))
        return placed + [field for field in fields if field.name not in {"step", "total time"}]
