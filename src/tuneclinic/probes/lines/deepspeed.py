"""DeepSpeed's engine: loss-scale overflows, and its own step lines."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import VALUE, Field, LineFormat
from tuneclinic.probes.lines._lazy import Lazy

OVERFLOW = Lazy(
    rf"OVERFLOW!.{{0,120}}[Aa]ttempted loss scale: {VALUE}, {{0,2}}(?:reducing to|but hysteresis is \d{{1,9}}\. Reducing hysteresis to) (?P<to>{VALUE})"
)
HYSTERESIS = Lazy(rf"[Aa]ttempted loss scale: (?P<to>{VALUE}), but hysteresis")
STEP = Lazy(rf"\bstep=(?P<step>\d{{1,12}}), skipped=(?P<skipped>\d{{1,12}}), lr=\[(?P<lr>{VALUE})")
ENGINE = Lazy(rf"\bsteps: (?P<step>\d{{1,12}}) loss: (?P<loss>{VALUE}) iter time \(s\): (?P<time>{VALUE})")


class DeepSpeed(LineFormat):
    """The loss scale after an overflow has no step of its own: it belongs to the last step before it."""

    needles: ClassVar[tuple[bytes, ...]] = (b"ttempted loss scale", b"skipped=", b"iter time (s)")
    aliases: ClassVar[dict[str, str]] = {"skipped": "skipped_steps"}

    def fields(self, line: str) -> list[Field] | None:
        """One of the three lines."""
        waiting = HYSTERESIS.search(line)
        if waiting is not None:
            return [Field("loss_scale", *waiting.span("to"))]
        row = OVERFLOW.search(line)
        if row is not None:
            return [Field("loss_scale", *row.span("to"))]
        row = STEP.search(line)
        if row is not None:
            return [Field(name, *row.span(name)) for name in ("step", "skipped", "lr")]
        row = ENGINE.search(line)
        return [Field(name, *row.span(name)) for name in ("step", "loss", "time")] if row is not None else None
