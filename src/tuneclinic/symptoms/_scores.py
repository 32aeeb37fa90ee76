"""Evaluation scores compared: how far one fell from another, in relative terms."""

from __future__ import annotations

import math
import re

from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Score
from tuneclinic.words import Text

NOISE = 0.03
"""Relative change below which a score is taken as unchanged. The standard error of a benchmark of 1,000 questions answered 60 %
right is 2.6 % of the score."""

MERGED = r"(?i)merge|quanti[sz]|awq|gptq|gguf|int[48]|[48][-_ ]?bit|nf4|fp8|q[2-8]_[k01]|w[48]a(?:8|16)|合并|量化"
"""Names by which a table marks a merged or quantised variant."""


def scores(seen: Evidence) -> tuple[Score, ...]:
    """The scores that were read."""
    return seen.scores.items if seen.scores is not None else ()


def change(before: float | None, after: float | None, *, lower: bool = False) -> float | None:
    """Relative change from `before` to `after`, positive for better; None where either is missing or not finite."""
    if before is None or after is None or not math.isfinite(before) or not math.isfinite(after) or before == 0:
        return None
    moved = (after - before) / abs(before)
    return -moved if lower else moved


def tuning(score: Score) -> float | None:
    """Relative change from the base model to the tuned one, positive for better."""
    return change(score.base, score.tuned, lower=score.lower)


def told(score: Score, before: float, after: float, names: tuple[str, str], namen: tuple[str, str]) -> Exhibit:
    """One score before and after, `names` in English and `namen` in Chinese."""
    what = f"{score.task} {score.metric}".strip()
    text = Text(
        f"{what}: {before:.4g} ({names[0]}) → {after:.4g} ({names[1]})",
        f"{what}：{before:.4g}（{namen[0]}）→ {after:.4g}（{namen[1]}）",
    )
    return Exhibit(text, score.where, score.where.split(":")[0].split(" row")[0], section="scores")


def told_tuning(score: Score) -> Exhibit:
    """A score of the base model and of the tuned one."""
    return told(score, score.base or 0.0, score.tuned or 0.0, ("base", "tuned"), ("base", "微调后"))


def variants(seen: Evidence) -> list[tuple[Score, Score]]:
    """Pairs of the same score without and with a merge or quantisation in its name or place."""
    marked = [score for score in scores(seen) if re.search(MERGED, f"{score.task} {score.metric} {score.where}")]
    plain = {_key(score): score for score in scores(seen) if score not in marked}
    return [(plain[_key(score)], score) for score in marked if _key(score) in plain]


def _key(score: Score) -> tuple[str, str]:
    """Task and metric without what marks a variant."""
    bare = re.sub(MERGED, "", score.task).lower()
    return re.sub(r"[^a-z0-9\u4e00-\u9fff]+", "", re.sub(r"(?:\(.*?\)|d\b|zed\b|zation\b|sed\b)", "", bare)), score.metric.lower()
