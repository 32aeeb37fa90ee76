"""How a run was trained beside what is usual: rate, batch, epochs, rows, and the size of the change."""

from __future__ import annotations

import math

import numpy as np

from tuneclinic import usual
from tuneclinic.casebook.learning._facts import finite, number, say, series, text_of
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.words import Text

ANY_RATE = (5e-6, 2e-5, 3e-4)
"""Learning rates where no method was read: 10th percentile and median of full tuning, 90th percentile of LoRA, over recipes of 17
and 15 public repositories, weighed by repository."""
USUAL_EPOCHS = 3.0
"""90th percentile of epochs over the same recipes; the median is 1."""
USUAL_RANK = 16.0
"""Median LoRA rank over the same recipes."""
USUAL_RANK_HIGH = 64.0
"""90th percentile of the LoRA rank over the same recipes."""
FEW_ROWS = 500.0
"""Rows below which a set is small for supervised tuning: LIMA's thousand curated rows is the smallest set with published
success at full tuning, and half of it leaves room for doubt."""
NO_RATE = 1e-7
"""A rate at or below this moves nothing that a 16-bit weight can hold in a run of thousands of steps: a fiftieth of the
smallest 10th percentile in use for supervised tuning."""


def learning_rate(seen: Evidence) -> float | None:
    """The peak learning rate: what the log shows over the run, else what was set."""
    logged = finite(seen, "learning_rate")
    set_ = number(seen, "learning_rate")
    if logged.size and (set_ is None or len(logged) > 1):
        peak = float(logged.max())
        return peak if set_ is None or peak > 0 else set_
    return set_


def has_adapter(seen: Evidence) -> bool | None:
    """Whether an adapter is trained; None where nothing says."""
    method = text_of(seen, "method")
    if seen.model is not None and seen.model.adapter is not None:
        return True
    if "lora" in method or "lora_rank" in (seen.settings.values if seen.settings else ()):
        return True
    return False if method in {"full", "freeze"} else None


def method_of(seen: Evidence) -> str:
    """The row of the table of usual settings that this run belongs to; "" where nothing tells."""
    flags = [seen.settings.flag(name) for name in ("freeze_language", "freeze_projector")] if seen.settings is not None else []
    return "vlm-projector" if flags and flags[0] and not flags[1] else usual.method_of(seen)


def usual_rate(seen: Evidence) -> tuple[float, float, float]:
    """10th percentile, median and 90th percentile of the rate for this method and model size; the widest span where unknown."""
    band = usual.setting("learning_rate", method_of(seen), usual.size_of(seen))
    return ANY_RATE if band is None else (band.low, band.median, band.high)


def rate_place(seen: Evidence) -> tuple[str, str, str]:
    """Where the rate was read: place, source and section."""
    held = seen.settings.values.get("learning_rate") if seen.settings is not None else None
    if held is not None:
        return held.where, held.source, "settings"
    logged = series(seen, "learning_rate")
    return ("", logged.source, "metrics") if logged is not None else ("", "", "")


def rate_exhibit(seen: Evidence, weight: float) -> tuple[Exhibit, ...]:
    """This run's rate beside the usual band of its method."""
    rate = learning_rate(seen)
    if rate is None:
        return ()
    low, _, high = usual_rate(seen)
    where, source, section = rate_place(seen)
    method = method_of(seen)
    kind = Text(method or "any method", f"{method} " if method else "各种方法")
    return (
        say(
            f"learning rate {rate:g}; usual for {kind.en}: {low:g} to {high:g}",
            f"学习率 {rate:g}；{kind.zh}常用范围 {low:g} 到 {high:g}",
            weight,
            section=section,
            where=where,
            source=source,
        ),
    )


def batch(seen: Evidence) -> float | None:
    """Rows a weight update sees: set as a whole, or device × accumulation × processes as far as they were read."""
    whole = number(seen, "global_batch")
    if whole:
        return whole
    device = number(seen, "batch_per_device")
    if device is None:
        return None
    processes = number(seen, "processes") or (seen.environment.processes if seen.environment else None) or 1.0
    return device * (number(seen, "accumulation") or 1.0) * processes


def epochs(seen: Evidence) -> float | None:
    """Passes over the data: what the log reached, else what was set."""
    logged = finite(seen, "epoch")
    reached = float(logged.max()) if logged.size else None
    planned = number(seen, "epochs")
    return max((value for value in (reached, planned) if value is not None), default=None)


def rows(seen: Evidence) -> float | None:
    """Rows of the training set, where the whole of it was counted; None for an empty one."""
    return float(seen.data.total) if seen.data is not None and seen.data.total else None


def epoch_at(seen: Evidence, step: float) -> float | None:
    """The epoch that the log shows at `step`, or by proportion of the last step; None where it cannot be told."""
    logged, loss, total = series(seen, "epoch"), series(seen, "loss"), epochs(seen)
    if logged is not None:
        return float(np.interp(step, logged.steps, logged.values))
    if loss is None or total is None or not loss.steps[-1]:
        return None
    return float(total * step / loss.steps[-1])


def change_size(seen: Evidence) -> tuple[Exhibit, ...]:
    """The size of the change against the size of the data, as one exhibit: epochs × rate × rank against rows.

    In units of a usual recipe (1 epoch, the method's median rate, rank 16, 1,000 rows); its weight grows by one bit for each
    doubling beyond 8 and never speaks against.
    """
    passes, rate, count = epochs(seen), learning_rate(seen), rows(seen)
    if passes is None or count is None or count <= 0:
        return ()
    relative = (rate / usual_rate(seen)[1]) if rate else 1.0
    rank = number(seen, "lora_rank")
    size = passes * relative * ((rank / USUAL_RANK) if rank else 1.0) / (count / 1000)
    weight = min(4.0, max(0.0, math.log2(size / 8))) if size > 0 else 0.0
    shown = f"{passes:g} × {rate:g}" if rate else f"{passes:g}"
    ranked = f" × r {rank:g}" if rank else ""
    return (
        say(
            f"change against data: epochs × learning rate × rank = {shown}{ranked} on {count:,.0f} rows, {size:.2g} times a usual recipe",
            f"改动量与数据量：epoch × 学习率 × rank = {shown}{ranked}，数据 {count:,.0f} 条，约为常规配方的 {size:.2g} 倍",
            weight,
            section="data",
        ),
    )
