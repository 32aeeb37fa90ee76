"""The loop of PyTorch's examples: `Train Epoch: 1 [640/60000 (1%)]  Loss: 1.72` and its `Test set:` line."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import VALUE, Field, LineFormat
from tuneclinic.probes.lines._lazy import Lazy

ROW = Lazy(
    rf"Train(?:ing)? Epoch: {{0,4}}(?P<epoch>\d{{1,9}}) \[ {{0,8}}(?P<at>\d{{1,12}})/(?P<of>\d{{1,12}})[^\]\n]{{0,20}}\]\s{{0,8}}(?:Train )?[Ll]oss: {{0,4}}(?P<loss>{VALUE})"
)
TEST = Lazy(
    rf"(?:Test|Val|Validation|Eval) set: (?:Average |Avg )?loss: (?P<loss>{VALUE})(?:, Accuracy: \d{{1,9}}/\d{{1,9}} \((?P<accuracy>{VALUE})%\))?"
)


class PyTorchExample(LineFormat):
    """Samples seen within the epoch, and the loss."""

    needles: ClassVar[tuple[bytes, ...]] = (b"epoch: ", b" set: ")

    def fields(self, line: str) -> list[Field] | None:
        """Either line."""
        row = ROW.search(line)
        if row is not None:
            return [
                Field("epoch", *row.span("epoch")),
                Field("epoch_step", *row.span("at")),
                Field("epoch_steps", *row.span("of")),
                Field("loss", *row.span("loss")),
            ]
        test = TEST.search(line)
        if test is None:
            return None
        fields = [Field("eval_loss", *test.span("loss"))]
        return fields + ([Field("eval_accuracy", *test.span("accuracy"), 0.01)] if test["accuracy"] else [])
