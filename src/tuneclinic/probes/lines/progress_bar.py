"""Progress bars that carry metrics: tqdm postfixes, Lightning's bar, Lightning's rich bar."""

from __future__ import annotations

import re
from typing import ClassVar

from tuneclinic.probes.lines import NUMBER, VALUE, Field, LineFormat, pairs
from tuneclinic.probes.lines._lazy import Lazy

TQDM = Lazy(r"\d{1,3}%\|[^|\n]{0,400}\| {0,4}(?P<at>\d{1,12})/(?P<of>\d{1,12}) \[[^\]\n]{0,2000}\]?")
RICH = Lazy(r"(?<![━╸╺])[━╸╺]{2,200}[^\n]{0,8} (?P<at>\d{1,12})/(?P<of>\d{1,12}) [^\n]{0,60}?it/s (?P<rest>[^\n]{1,2000})")
POSTFIX = Lazy(rf"[,\s](?P<name>[A-Za-z][\w/.]{{0,60}})[=:] ?(?P<value>{NUMBER})")
LABEL = Lazy(rf"(?P<name>(?:[a-z]{{2,12}}[_/ ])?loss)(?: |=|: ?)(?P<value>{VALUE})", re.IGNORECASE)
EPOCH = Lazy(r"\b[Ee]poch:? {0,2}\[?(?P<epoch>\d{1,9})(?:/(?P<of>\d{1,9}))?")
HELD_OUT = Lazy(r"\b(?:val|valid|validation|eval|evaluating|test|testing|predict|sanity)", re.IGNORECASE)


class ProgressBar(LineFormat):
    """A bar with a loss in its label or behind its rate. Bars of an evaluation are passed over."""

    needles: ClassVar[tuple[bytes, ...]] = (b"loss",)
    bar: ClassVar[bool] = True
    common: ClassVar[bool] = True

    def fields(self, line: str) -> list[Field] | None:
        """The last bar of the line."""
        bar = _last(line)
        if bar is None:
            return None
        label_start = max(0, bar.start() - 120)
        label = line[label_start : bar.start()].rsplit("]", 1)[-1] if bar.re is TQDM.compiled else line[: bar.start()]
        start = bar.start() - len(label)
        if HELD_OUT.match(label.strip()):
            return None
        numbers = [*pairs(LABEL, line, start, bar.start()), *pairs(POSTFIX, line, bar.end("of"), len(line))]
        numbers = [field for field in numbers if field.name != "v_num"]
        if not any("loss" in field.name.lower() for field in numbers):
            return None
        return numbers + _place(line, bar, start, {field.name for field in numbers})


def _last(line: str) -> re.Match[str] | None:
    last = None
    for last in TQDM.finditer(line):  # noqa: B007 - the last match is wanted
        pass
    return last or RICH.search(line)


def _place(line: str, bar: re.Match[str], start: int, names: set[str]) -> list[Field]:
    """Where the row stands: its own `step=`, else the place within the epoch that the label names, else within the run."""
    epoch = EPOCH.search(line, start, bar.start())
    fields = [] if epoch is None or "epoch" in names else [Field("epoch", *epoch.span("epoch"))]
    if epoch is not None and epoch["of"]:
        fields.append(Field("total_epochs", *epoch.span("of")))
    if names & {"step", "global_step"}:
        return fields
    inner = epoch is not None
    fields.append(Field("epoch_step" if inner else "step", *bar.span("at")))
    return [*fields, Field("epoch_steps" if inner else "total_steps", *bar.span("of"))]
