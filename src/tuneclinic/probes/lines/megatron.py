"""Megatron-LM, Megatron-DeepSpeed, NeMo's Megatron: `iteration 100/ 1000 | lm loss: 2.5E+00 | loss scale: 1.0 | …`."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import VALUE, Field, LineFormat, pairs
from tuneclinic.probes.lines._lazy import Lazy

ROW = Lazy(r"\biteration {1,12}(?P<step>\d{1,12})/ {0,12}(?P<total>\d{1,12}) \|")
EVAL = Lazy(r"\bvalidation loss at iteration (?P<step>\d{1,12})\b")
PAIR = Lazy(rf"\|\s{{0,4}}(?P<name>[A-Za-z][^|:]{{1,60}}?): {{0,12}}(?P<value>{VALUE})")


class Megatron(LineFormat):
    """A training row, or the validation row with its value and perplexity."""

    framework: ClassVar[str] = "megatron"
    needles: ClassVar[tuple[bytes, ...]] = (b"iteration ",)
    aliases: ClassVar[dict[str, str]] = {"lm loss PPL": "eval_perplexity", "global batch size": "global batch size"}
    kind: ClassVar[str] = "causal-lm"

    def fields(self, line: str) -> list[Field] | None:
        """Columns between bars; milliseconds become seconds."""
        row = ROW.search(line)
        if row is not None:
            fields = pairs(PAIR, line, row.end() - 1)
            fields = [field._replace(scale=1e-3) if field.name.endswith("(ms)") else field for field in fields]
            return [Field("step", *row.span("step")), Field("total_steps", *row.span("total")), *fields]
        held = EVAL.search(line)
        if held is None:
            return None
        return [Field("step", *held.span("step")), *pairs(PAIR, line, held.end())]
