"""The diagnosis as Markdown, to paste into an issue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tuneclinic.diagnosis import Diagnosis
from tuneclinic.patterns import pattern
from tuneclinic.report.story import Fact, Story, Told, tell
from tuneclinic.words import Language

_SPECIAL = pattern(r"([\\`*_{}\[\]<>#|~!@])")


def render(diagnoses: Sequence[Diagnosis], language: Language = "en") -> str:
    """All diagnoses as one Markdown text; quotations from the run are code or escaped."""
    return "\n".join(line for diagnosis in diagnoses for line in _lines(tell(diagnosis, language)))


def _lines(story: Story) -> Iterator[str]:
    words = story.words
    yield f"## {escape(story.run)}"
    yield ""
    yield f"**{escape(story.headline)}**"
    yield ""
    if story.symptoms:
        yield f"### {words['symptoms']}"
        for symptom in story.symptoms:
            yield f"- **{escape(symptom.title)}** (`{symptom.id}`)"
            yield from (f"  - {_fact(fact)}" for fact in symptom.facts)
        yield ""
    for heading, group in (("confirmed", story.confirmed), ("benign", story.benign), ("suspects", story.suspects)):
        if group:
            yield f"### {words[heading]}"
            for told in group:
                yield from _finding(told, story)
    for heading, lines in (("read", story.read), ("unread", story.unread)):
        if lines:
            yield f"<details><summary>{words[heading]}</summary>"
            yield ""
            yield from (f"- {escape(line)}" for line in lines)
            yield ""
            yield "</details>"
            yield ""
    if story.next:
        yield f"**{words['next']}**: {escape(story.next)}"
        yield ""
    yield escape(story.rest) + "  "
    yield escape(story.not_looked)
    yield ""


def _finding(told: Told, story: Story) -> Iterator[str]:
    words = story.words
    odds = f" — {told.odds}" if told.verdict == "suspected" else ""
    yield f"#### {escape(told.title)} (`{told.id}`){odds}"
    if told.note:
        yield f"_{escape(told.note)}_"
        yield ""
    for fact in told.seen:
        heading = words["against"] if fact.weight < 0 else words["seen"]
        yield f"- **{heading}** {_fact(fact)}"
    yield f"- **{words['why']}** {escape(told.why)}"
    yield f"- **{words['do']}** {escape(told.remedy)}"
    yield from (f"- **{words['paste']}** {code(line)} ({framework})" for framework, line in told.pastes)
    yield f"- **{words['verify']}** {escape(told.verify)}"
    yield f"- **{words['prevent']}** {escape(told.prevention)}"
    yield ""


def _fact(fact: Fact) -> str:
    place = f"{code(fact.where)} " if fact.where else ""
    return f"{place}{escape(fact.text)}"


def escape(text: str) -> str:
    """`text` with every character that Markdown or HTML would act on made literal; an @ would call a person."""
    return _SPECIAL.sub(r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\@", "@\u200b")


def code(text: str) -> str:
    """`text` as inline code, fenced by more backticks than it holds."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
