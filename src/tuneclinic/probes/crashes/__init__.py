"""Crashes: the errors of a run in order, the cause first.

`crash_of` takes the lines of a log, of a pasted traceback or of a launcher's output. It follows every rank's own traceback,
puts what launchers and the other ranks say of it behind, and tells a run that failed from one that was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuneclinic.probes.crashes._collect import Collector
from tuneclinic.probes.crashes.out_of_memory import out_of_memory
from tuneclinic.probes.crashes.signals import suspect
from tuneclinic.sections import Crash

__all__ = ["crash_of", "out_of_memory", "suspect"]


def crash_of(lines: Sequence[tuple[int, str]], source: str, step: float | None = None) -> Crash | None:
    """All errors that numbered lines show, the cause first; None where they show none.

    Args:
        lines: Line numbers from 1 with the raw text, colours and rank prefixes included, in order.
        source: How reports cite the file.
        step: The last training step seen before the lines.
    """
    collector = Collector(source, step)
    for number, text in lines:
        collector.feed(number, text)
    return collector.crash()
