"""What several attempts at one run show together: rates that make no difference."""

from __future__ import annotations

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Series
from tuneclinic.symptoms._series import number
from tuneclinic.words import Text

ATTEMPTS = 3
"""Rates tried, this run's own among them, before their making no difference is a sign: two may end alike by chance."""
SPREAD = 3.0
"""Times from the lowest to the highest rate tried: below that, equal ends are what one expects."""
ALIKE = 0.06
"""Relative spread of the last losses that counts as the same end: three times the run-to-run noise of small fine-tunes (about 2 %)."""
STALLED = 0.04
"""Relative fall from the middle of the run to its end below which it has stalled. A quarter of 20 healthy public runs fall no more than that
(quartile 0.048), so stalling alone says nothing: three rates must agree beside it."""


def rates_make_no_difference(seen: Evidence, loss: Series) -> Exhibit | None:
    """Several learning rates tried, all of which end at the same loss while the run has stalled; None where that is not so."""
    rate = _number(seen.settings.get("learning_rate")) if seen.settings else None
    finite = loss.values[np.isfinite(loss.values)]
    if seen.attempts is None or rate is None or len(finite) < 10:
        return None
    early, end = (
        float(median(finite[len(finite) // 3 : len(finite) // 2 + 1])),
        float(median(finite[-max(3, len(finite) // 20) :])),
    )
    tried = [(rate, end)]
    for attempt in seen.attempts.items:
        other = _number(attempt.settings.get("learning_rate"))
        if other is not None and attempt.last_loss is not None:
            tried.append((other, attempt.last_loss))
    rates, ends = [one for one, _ in tried], [one for _, one in tried]
    if len(set(rates)) < ATTEMPTS or max(rates) < SPREAD * min(rates) or early <= 0:
        return None
    if (early - end) / early > STALLED or max(ends) - min(ends) > ALIKE * float(median(ends)):
        return None
    low, high = number(min(ends)), number(max(ends))
    text = Text(
        f"{len(set(rates))} learning rates from {min(rates):g} to {max(rates):g} were tried and all end at {low} to {high}: the learning rate is not the cause",
        f"试过 {len(set(rates))} 个学习率（{min(rates):g} 到 {max(rates):g}），最后都停在 {low}～{high}：问题不在学习率",
    )
    return Exhibit(text, loss.where(len(loss) - 1), loss.source, section="attempts")


def _number(value: object) -> float | None:
    try:
        held = float(str(value))
    except ValueError:
        return None
    return held if np.isfinite(held) and held > 0 else None
