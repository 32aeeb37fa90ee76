"""Rows after the chat template: is every turn there, whole, once, in order, and ended?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import field

from tuneclinic.patterns import pattern
from tuneclinic.probes.data.row import shown
from tuneclinic.sections import Sample, Tokenizer
from tuneclinic.values import dataclass

NAMES = ("system-repeated", "answer-split", "turn-lost", "roles-disordered", "end-token-missing", "double-bos", "double-eos")
SYSTEM_CHARS = 12
"""A shorter system text ("Be brief.") may recur by chance inside a message."""
TURN_CHARS = 2
PIECE_CHARS = 16
"""How much of a text's beginning and end is looked for where the whole is not found."""
REASONED = ("</think>", "</thinking>", "</thought>", "</reasoning>", "[/THINK]")
"""Ends of what templates of reasoning models take out of answers of past turns."""
PREFIX_CHARS = 4000
"""How much of the text before the first turn is looked at for a default system text: one sentence of it is enough."""
SENTENCE = pattern(r"[\w,.' ]{20,}")
"""A run of prose in what a template puts before the first turn: its own default system text."""


@dataclass
class Faults:
    """What was found: rows and an example by name of check."""

    found: dict[str, tuple[list[int], str]] = field(default_factory=dict)

    def add(self, name: str, sample: Sample, example: str) -> None:
        """One row with one fault."""
        rows = self.found.setdefault(name, ([], shown(example)))[0]
        if not rows or rows[-1] != sample.row:
            rows.append(sample.row)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands in the rendered one."""

    start: int
    end: int


def forms(text: str) -> Iterator[str]:
    """`text` in the ways in which templates write it: trimmed, without its reasoning, escaped as JSON."""
    stripped = text.strip()
    yield stripped
    after = without_reasoning(stripped)
    if after and after != stripped:
        yield after
    if '"' in stripped or "\\" in stripped or "\n" in stripped:
        yield json.dumps(stripped, ensure_ascii=False)[1:-1]


def without_reasoning(text: str) -> str:
    """What follows the last end of reasoning in `text`."""
    cut = max(at + len(mark) if (at := text.rfind(mark)) >= 0 else 0 for mark in REASONED)
    return text[cut:].strip()


def locate(text: str, rendered: str, start: int = 0) -> Place | None:
    """The first place at or after `start` where `text` stands in one piece; None where it does not.

    Changed white space is no change: templates trim, and some fold blank lines.
    """
    for form in forms(text):
        at = rendered.find(form, start)
        if at >= 0:
            return Place(at, at + len(form))
    words = text.split()
    if len(words) > 1 and " ".join(words) in " ".join(rendered[start:].split()):
        return Place(start, start)
    return None


def ends_of(text: str) -> tuple[str, str]:
    """A short piece of the first line of `text` and one of the last, which survive where the text is cut in between."""
    said = without_reasoning(text.strip()) or text.strip()
    lines = said.splitlines()
    size = max(TURN_CHARS, min(PIECE_CHARS, len(said) // 3))
    return (lines[0].strip()[:size], lines[-1].strip()[-size:]) if lines else ("", "")


def broken(text: str, rendered: str) -> bool:
    """Whether a text that does not stand in one piece is there in pieces: its beginning or its end is found."""
    return any(len(piece) >= 2 * TURN_CHARS and piece in rendered for piece in ends_of(text))


def examine(sample: Sample, rendered: str, tokenizer: Tokenizer, faults: Faults) -> float:
    """Checks one rendered row; returns 1.0 where its system text is missing (Mistral's templates drop it by design)."""
    if any(role not in ("system", "user", "assistant") for role, _ in sample.messages):
        return 0.0
    lost = _turns(sample, rendered, faults)
    _system(sample, rendered, faults)
    _end(sample, rendered, tokenizer, faults)
    bos = tokenizer.bos
    if bos and bos != tokenizer.eos and rendered.startswith(bos * 2):
        faults.add("double-bos", sample, rendered[:120])
    return lost


def _turns(sample: Sample, rendered: str, faults: Faults) -> float:
    position, system_lost = 0, 0.0
    disordered = False
    for role, text in sample.messages:
        if len(text.strip()) < TURN_CHARS:
            continue
        place = locate(text, rendered, position if role != "system" else 0)
        if place is None and role != "system":
            elsewhere = locate(text, rendered)
            disordered = disordered or (elsewhere is not None and _once(text, sample))
            if elsewhere is not None:
                continue
        if place is not None:
            position = place.end if role != "system" else position
        elif role == "system":
            system_lost = 1.0
        elif not broken(text, rendered):
            faults.add("turn-lost", sample, text)
        elif role == "assistant":
            faults.add("answer-split", sample, _around(text, rendered))
    if disordered:
        faults.add("roles-disordered", sample, rendered[:400])
    return system_lost


def _once(text: str, sample: Sample) -> bool:
    """Whether no other message of the row holds the text, so that its place says something about order."""
    return sum(other.count(text.strip()) for _, other in sample.messages) == 1


def _around(text: str, rendered: str) -> str:
    """The rendered text around the place where the answer is cut."""
    stripped = text.strip()
    at = rendered.find(ends_of(text)[0])
    if at < 0:
        return stripped
    shared = 0
    while shared < len(stripped) and at + shared < len(rendered) and stripped[shared] == rendered[at + shared]:
        shared += 1
    return rendered[at + max(0, shared - 60) : at + shared + 80]


def _system(sample: Sample, rendered: str, faults: Faults) -> None:
    """The system text, the row's or the template's own, more often than the messages say it."""
    systems = [text.strip() for role, text in sample.messages if role == "system"]
    said = "\n".join(text for _, text in sample.messages)
    if systems:
        texts = [text for text in systems if len(text) >= SYSTEM_CHARS]
    else:
        first = next((text for _, text in sample.messages if text.strip()), "")
        place = locate(first, rendered)
        prefix = rendered[: place.start] if place else ""
        texts = [run.strip() for run in SENTENCE.findall(prefix[:PREFIX_CHARS]) if " " in run.strip()]
    for text in texts[:20]:
        if len(text) >= SYSTEM_CHARS and rendered.count(text) > max(1, said.count(text)):
            faults.add("system-repeated", sample, f"{rendered.count(text)} × {text}")
            return


def _end(sample: Sample, rendered: str, tokenizer: Tokenizer, faults: Faults) -> None:
    """What follows the last answer: nothing at all, or the end token twice."""
    role, text = sample.messages[-1] if sample.messages else ("", "")
    eos = tokenizer.eos
    if eos and eos != tokenizer.bos and any(not between.strip() for between in rendered.split(eos)[1:-1]):
        faults.add("double-eos", sample, rendered[-120:])
    if role != "assistant" or len(text.strip()) < TURN_CHARS or not ends_known(tokenizer):
        return
    form = next((form for form in forms(text) if form in rendered), None)
    if form is None or (eos and form.endswith(eos)):
        return
    if not rendered[rendered.rfind(form) + len(form) :].strip():
        faults.add("end-token-missing", sample, rendered[-120:])


def ends_known(tokenizer: Tokenizer) -> bool:
    """Whether the end that the template would write is known: its `eos_token` is empty where no tokenizer file was read."""
    return bool(tokenizer.eos) or "eos_token" not in (tokenizer.template or "")


def made(samples: Sequence[Sample], tokenizer: Tokenizer) -> frozenset[str]:
    """Which checks a rendering of `samples` makes."""
    names = {"system-repeated", "answer-split", "turn-lost", "roles-disordered"} if samples else set()
    if samples and ends_known(tokenizer):
        names.add("end-token-missing")
    if samples and tokenizer.bos:
        names.add("double-bos")
    if samples and tokenizer.eos:
        names.add("double-eos")
    return frozenset(names)
