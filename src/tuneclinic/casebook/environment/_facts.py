"""What the cases of this folder ask of the evidence: how the run ended, whether it trained, which symptom shows."""

from __future__ import annotations

import re
from collections.abc import Callable

from tuneclinic.casebook.learning._facts import say, shape_of
from tuneclinic.curves import Shape
from tuneclinic.evidence import Evidence, Exhibit, from_error
from tuneclinic.patterns import pattern
from tuneclinic.sections import CrashError
from tuneclinic.signature import matches

LAUNCHER = pattern(r"childfailederror|calledprocesserror|processexitedexception|processraisedexception|failed \(exitcode")
"""What a launcher says of a rank's error: never the cause."""
MESSAGE = 4000
"""Characters of an error message that are searched: compilers quote whole graphs after their first lines."""
LINE_DIGITS = 15
"""Digits of a line number that is one."""
FEWEST_ROWS = 3
"""Logged rows from which a run has trained: a first row may stand before the first step."""


def end(seen: Evidence) -> CrashError | None:
    """The error that ended the run: the first that is no launcher's report and that no training followed; None without one."""
    if seen.crash is None or (seen.metrics is not None and seen.metrics.finished):
        return None
    return next(
        (error for error in seen.crash.errors if not LAUNCHER.search(error.kind.lower()) and not _survived(seen, error)), None
    )


def _survived(seen: Evidence, error: CrashError) -> bool:
    """Whether losses were logged after the error in the same file: it was caught, as an optional import is."""
    loss = seen.metrics.get("loss") if seen.metrics is not None else None
    line = error.where.rpartition(":")[2]
    if loss is None or loss.lines is None or loss.source != error.source or not line.isdecimal() or len(line) > LINE_DIGITS:
        return False
    return int((loss.lines > int(line)).sum()) >= FEWEST_ROWS


def ended_with(seen: Evidence, patterns: tuple[str, ...], weight: float) -> tuple[Exhibit, ...]:
    """The error that ended the run, where its class, message or frames match one of `patterns` (lower case)."""
    error = end(seen)
    if error is None:
        return ()
    text = error.quote[:MESSAGE].lower() + "\n" + "\n".join(error.frames).lower()
    return (from_error(error, weight),) if any(re.search(pattern, text, re.MULTILINE) for pattern in patterns) else ()


def named(seen: Evidence, patterns: tuple[str, ...], weight: float) -> tuple[Exhibit, ...]:
    """The error that ended the run, else the log lines, that match one of `patterns`."""
    return ended_with(seen, patterns, weight) or tuple(matches(Evidence(log=seen.log), patterns, weight))


def other_end(seen: Evidence, weight: float = -4.0) -> tuple[Exhibit, ...]:
    """The run's own error as an exhibit against a case that it does not name."""
    error = end(seen)
    return (from_error(error, weight),) if error is not None else ()


def trained(seen: Evidence, weight: float = -5.0) -> tuple[Exhibit, ...]:
    """An exhibit that the run got as far as training, which a fault of loading or importing does not let it."""
    loss = seen.metrics.get("loss") if seen.metrics is not None else None
    if loss is None or len(loss) < FEWEST_ROWS:
        return ()
    return (say(f"the run trained: {len(loss)} losses were logged", f"训练跑起来了：记录了 {len(loss)} 个 loss", weight),)


def shows(seen: Evidence, symptom: str) -> bool | None:
    """Whether the evidence shows a symptom, by its id; None where it holds nothing that could tell."""
    if symptom == "crashes":
        return None if seen.crash is None and seen.metrics is None else end(seen) is not None
    form = shape_of(seen)
    if not form.points:
        return None
    return _SHOWN[symptom](form) if symptom in _SHOWN else None


def slows(seen: Evidence) -> tuple[Exhibit, ...]:
    """An exhibit that the pace falls during the run."""
    form = shape_of(seen)
    factor = form.throughput_decays
    if factor is None:
        return ()
    where = "" if form.throughput_dropped_from is None else f"step {form.throughput_dropped_from:g}"
    return (say(f"steps get {factor:.1f} times slower over the run", f"训练过程中每步慢了 {factor:.1f} 倍", 1.5, where=where),)


def _nan_later(form: Shape) -> bool:
    return form.nan_from is not None and not form.nan_at_start


_SHOWN: dict[str, Callable[[Shape], bool | None]] = {
    "loss-diverges": lambda form: form.diverged_from is not None,
    "nan-at-start": lambda form: form.nan_at_start,
    "nan-mid-run": _nan_later,
    "loss-not-falling": lambda form: form.no_learning,
    "loss-at-uniform": lambda form: form.at_uniform,
    "loss-oscillates": lambda form: form.oscillates,
    "loss-near-zero": lambda form: form.near_zero_from is not None,
    "overfits": lambda form: form.overfits_from is not None,
    "resume-jumps": lambda form: form.resume_jump is not None,
    "slow": lambda form: form.throughput_decays is not None or None,
}
"""A pace that is even may still be slow: that symptom is seen or open, never absent."""
