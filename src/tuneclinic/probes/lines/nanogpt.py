"""nanoGPT: `iter 100: loss 2.3456, time 12.34ms, mfu 3.10%` and `step 250: train loss 2.1234, val loss 2.3456`."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import VALUE, Field, LineFormat
from tuneclinic.probes.lines._lazy import Lazy

ITERATION = Lazy(rf"\biter (?P<step>\d{{1,12}}): loss (?P<loss>{VALUE})(?:, time (?P<ms>{VALUE})ms)?(?:, mfu (?P<mfu>{VALUE})%)?")
EVALUATION = Lazy(rf"\bstep (?P<step>\d{{1,12}}): train loss (?P<loss>{VALUE}), val loss (?P<eval>{VALUE})")


class NanoGpt(LineFormat):
    """Both lines. The training loss of the second is an estimate on the training split, a series of its own."""

    needles: ClassVar[tuple[bytes, ...]] = (b"iter ", b", val loss ")
    aliases: ClassVar[dict[str, str]] = {"train_split_loss": "train_split_loss"}
    kind: ClassVar[str] = "causal-lm"

    def fields(self, line: str) -> list[Field] | None:
        """The numbers of either line."""
        row = ITERATION.search(line)
        if row is not None:
            fields = [Field("step", *row.span("step")), Field("loss", *row.span("loss"))]
            if row["ms"]:
                fields.append(Field("dt", *row.span("ms"), 1e-3))
            return fields + ([Field("mfu", *row.span("mfu"))] if row["mfu"] else [])
        row = EVALUATION.search(line)
        if row is None:
            return None
        return [
            Field("step", *row.span("step")),
            Field("train_split_loss", *row.span("loss")),
            Field("eval_loss", *row.span("eval")),
        ]
