"""torchtune's progress bar: `1|23|Loss: 1.2345: 12%|█▏        | 23/190 [00:31<03:47, 1.36s/it]`."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import VALUE, Field, LineFormat
from tuneclinic.probes.lines._lazy import Lazy

ROW = Lazy(rf"(?:^|[\s\]])(?P<epoch>\d{{1,9}})\|(?P<step>\d{{1,12}})\|(?P<name>Loss|loss): (?P<loss>{VALUE})")


class TorchTune(LineFormat):
    """Epoch, global step and loss in front of the bar."""

    framework: ClassVar[str] = "torchtune"
    needles: ClassVar[tuple[bytes, ...]] = (b"|loss: ",)
    bar: ClassVar[bool] = True

    def fields(self, line: str) -> list[Field] | None:
        """The three numbers."""
        row = ROW.search(line)
        if row is None:
            return None
        return [Field("epoch", *row.span("epoch")), Field("step", *row.span("step")), Field("loss", *row.span("loss"))]
