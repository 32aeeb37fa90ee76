"""torchtitan: `step: 10  loss: 5.04052  grad_norm: 2.1  memory: 169.10GiB(94.81%)  tps: 10,379  tflops: 874  mfu: 38.87%`."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import VALUE, Field, LineFormat, pairs
from tuneclinic.probes.lines._lazy import Lazy

ROW = Lazy(r"(?P<eval>validate )?step: {0,8}(?P<step>\d{1,12}) {1,8}(?:loss|global_avg_loss): ")
PAIR = Lazy(rf"(?P<name>[a-z_]{{2,40}}): {{0,8}}(?P<value>{VALUE})(?P<unit>GiB|MiB)?")


class TorchTitan(LineFormat):
    """A training or validation row of torchtitan's console logger."""

    framework: ClassVar[str] = "torchtitan"
    needles: ClassVar[tuple[bytes, ...]] = (b"step: ",)
    kind: ClassVar[str] = "causal-lm"

    def fields(self, line: str) -> list[Field] | None:
        """Everything from `step:` on."""
        row = ROW.search(line)
        if row is None:
            return None
        fields = pairs(PAIR, line, row.start("step") - 8 if row.start("step") >= 8 else 0)
        if row["eval"]:
            fields = [field._replace(name="eval_loss") if field.name.endswith("loss") else field for field in fields]
            fields = [field for field in fields if field.name in {"eval_loss", "step"}]
        return [*(field for field in fields if field.name != "step"), Field("step", *row.span("step"))]
