"""Whether a vision-language model's answers depend on the picture."""

from __future__ import annotations

from collections import Counter, defaultdict

from tuneclinic.casebook.learning._facts import say
from tuneclinic.evidence import Evidence, Exhibit

ENOUGH = 3
"""Generations of one prompt with different expected answers from which one and the same text is no accident."""


def blind(seen: Evidence) -> Exhibit | None:
    """An exhibit for (or, negative, against) answers that ignore the picture; None where the outputs cannot tell.

    Judged by prompts that were asked several times with different expected answers: only the picture can tell those apart.
    """
    asked: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for item in seen.outputs.items if seen.outputs is not None else ():
        if item.reference is not None:
            asked[item.prompt].append((item.reference.strip(), item.text.strip()))
    groups = [pairs for pairs in asked.values() if len({reference for reference, _ in pairs}) >= ENOUGH]
    if not groups:
        return None
    largest = max(groups, key=len)
    text, count = Counter(answer for _, answer in largest).most_common(1)[0]
    expected = len({reference for reference, _ in largest})
    same = count >= 0.9 * len(largest)
    shown = text if len(text) <= 40 else f"{text[:39]}…"
    return say(
        f"one prompt, {expected} different expected answers, and {count} of {len(largest)} outputs are {shown!r}",
        f"同一个问题有 {expected} 种参考答案，{len(largest)} 个输出里 {count} 个都是“{shown}”",
        5.0 if same else -6.0,
        section="outputs",
        private=True,
    )
