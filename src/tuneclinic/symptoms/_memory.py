"""When a card ran full, and the numbers of the error text."""

from __future__ import annotations

from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import CrashError
from tuneclinic.symptoms._series import curve
from tuneclinic.words import Text

FIRST_ROWS = 2
"""Logged rows that still count as the start: "before or within the first logged rows" is how runs out of memory are labelled."""

FIRST_STEPS = 5
"""Optimizer steps that still count as the start, where the log tells the step: the optimizer's states exist after the first, and
allocator and kernels have settled within five."""


def happened_late(seen: Evidence, error: CrashError | None) -> bool:
    """Whether memory ran out after the run had got going, or in evaluation."""
    if error is not None and error.phase in {"evaluation", "save"}:
        return True
    loss = curve(seen)
    rows = 0 if loss is None else len(loss)
    step = error.step if error is not None else None
    if step is not None:
        return step > FIRST_STEPS
    return rows > FIRST_ROWS or (loss is not None and rows > 0 and float(loss.steps[-1]) > FIRST_STEPS and not _counted(seen))


def _counted(seen: Evidence) -> bool:
    """Whether the steps of the log are only counted rows."""
    return seen.metrics is not None and seen.metrics.rows_are_steps


def parts(error: CrashError | None) -> tuple[Exhibit, ...]:
    """The sizes in an out-of-memory text: what was asked for, what the card has, what was free."""
    memory = error.memory if error is not None else None
    if error is None or memory is None:
        return ()
    names = (
        ("asked for", "要申请", memory.asked),
        ("card", "显卡总量", memory.capacity),
        ("free", "空闲", memory.free),
        ("allocated by torch", "torch 已分配", memory.allocated),
        ("reserved but unallocated", "已保留未分配", memory.reserved_unallocated),
        ("other processes", "其他进程占用", memory.other_processes),
    )
    known = [(en, zh, f"{value:.4g} GiB") for en, zh, value in names if value is not None]
    if not known:
        return ()
    text = Text(", ".join(f"{en} {size}" for en, _, size in known), "，".join(f"{zh} {size}" for _, zh, size in known))
    return (Exhibit(text, error.where, error.source, section="crash"),)
