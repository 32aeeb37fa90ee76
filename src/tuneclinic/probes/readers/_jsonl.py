"""From collected rows to readings: the notes and counts that all metric readers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._rows import damaged, joined, nothing
from tuneclinic.probes.reading import Reading
from tuneclinic.words import Text, Words

NO_ROWS = Text("no row with a number was understood: no loss could be read", "没有读懂任何一行数值，读不到 loss")


def readings_of(
    collector: Collector,
    skipped: Mapping[str, int],
    damage: list[str],
    note: Words = "",
    *,
    ended: bool | None = None,
    split: bool = True,
) -> list[Reading]:
    """A reading a run. `ended` says whether the last run came to its planned end, where the log tells."""
    parts = collector.parts(split=split)
    left = Counter(skipped)
    left.update(collector.skipped)
    said = joined(note, damaged(damage))
    if not parts:
        return nothing(joined(said, NO_ROWS), left)
    readings = []
    for at, part in enumerate(parts, 1):
        last = at == len(parts)
        metrics = part.metrics
        if last and metrics.finished is None and ended is not None:
            metrics = replace(metrics, finished=ended)
        name = f"run {at}" if len(parts) > 1 else ""
        readings.append(Reading(Evidence(metrics=metrics), part.shapes, left if last else {}, said, name))
    return readings
