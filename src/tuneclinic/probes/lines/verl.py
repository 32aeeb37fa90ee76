"""verl: `step:10 - actor/pg_loss:np.float64(0.0351) - actor/grad_norm:0.4 - critic/rewards/mean:-13.5`."""

from __future__ import annotations

from typing import ClassVar

from tuneclinic.probes.lines import NUMBER, Field, LineFormat
from tuneclinic.probes.lines._lazy import Lazy

ROW = Lazy(r"\bstep:(?P<step>\d{1,12}) - ")
PAIR = Lazy(rf" - (?P<name>[A-Za-z_][^\s:]{{0,120}}):(?:np\.\w{{1,12}}\()?(?P<value>{NUMBER})")
MOST_COLUMNS = 200
"""verl prints 60 to 150; the pattern that is learned from a row grows with them."""


class Verl(LineFormat):
    """A step's metrics, validation among them."""

    framework: ClassVar[str] = "verl"
    needles: ClassVar[tuple[bytes, ...]] = (b"step:",)

    def fields(self, line: str) -> list[Field] | None:
        """The step and its numbers; `train/lr(1e-3)` is printed in thousandths."""
        row = ROW.search(line)
        if row is None:
            return None
        fields = [Field("step", *row.span("step"))]
        for pair in PAIR.finditer(line, row.end() - 3):
            scale = 1e-3 if pair["name"].endswith("(1e-3)") else 1.0
            fields.append(Field(pair["name"], *pair.span("value"), scale))
        return fields[:MOST_COLUMNS] if len(fields) > 1 else None
