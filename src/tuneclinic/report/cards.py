"""Cards and lists of the handbook on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len

from tuneclinic.case import Case
from tuneclinic.report import phrases
from tuneclinic.report.story import ALL_FRAMEWORKS
from tuneclinic.report.wrap import wrap
from tuneclinic.symptom import Symptom
from tuneclinic.vocabulary import paste
from tuneclinic.words import Language, Text, say

WIDTH = 80
INDENT = 12

LABELS = {
    "title": Text("title", "标题"),
    "sign": Text("sign", "表现"),
    "cause": Text("cause", "病因"),
    "remedy": Text("do", "处理"),
    "paste": Text("paste", "写法"),
    "verify": Text("verify", "验证"),
    "prevention": Text("prevent", "预防"),
    "question": Text("ask", "自问"),
    "quiz": Text("quiz", "自测"),
    "symptoms": Text("shows as", "现象"),
    "seen": Text("seen", "所见"),
    "check": Text("check first", "先查"),
    "treatment": Text("treatment", "先试"),
    "suspects": Text("suspects", "嫌疑"),
}


def case_card(case: Case, language: Language) -> str:
    """The card of a case: sign, cause, remedy with the lines to paste, how to verify, prevention, quiz."""
    card = case.card(language)
    lines = [f"{card.title}  [{case.id}]", ""]
    for part in ("sign", "cause", "remedy"):
        lines += _block(say(LABELS[part], language), getattr(card, part))
    for name, value in case.change.items():
        for framework in ALL_FRAMEWORKS:
            line = paste(name, value, framework)
            if line:
                lines += _block(
                    say(LABELS["paste"], language) if framework == ALL_FRAMEWORKS[0] else "", f"{line}    # {framework}"
                )
    for part in ("verify", "prevention", "question", "quiz"):
        lines += _block(say(LABELS[part], language), getattr(card, part))
    lines += _block(
        say(LABELS["symptoms"], language), ", ".join(f"{symptom} ({prior:.2f})" for symptom, prior in case.symptoms.items())
    )
    return "\n".join(lines)


def symptom_card(symptom: Symptom, book: Sequence[Case], language: Language) -> str:
    """The card of a symptom with its suspects ranked by their priors."""
    card = symptom.card(language)
    lines = [f"{card.title}  [{symptom.id}]", ""]
    for part in ("seen", "check", "treatment", "prevention"):
        lines += _block(say(LABELS[part], language), getattr(card, part))
    for number, (prior, case) in enumerate(suspects(symptom.id, book)):
        label = say(LABELS["suspects"], language) if number == 0 else ""
        mark = f"{100 * prior:3.0f} %" if case.kind == "fault" else say(phrases.HARMLESS, language)
        lines += _block(label, f"{mark}  {case.card(language).title}  [{case.id}]")
    return "\n".join(lines)


def suspects(symptom: str, book: Iterable[Case]) -> list[tuple[float, Case]]:
    """The cases that name a symptom with their priors within it, likeliest first."""
    return sorted(((case.symptoms[symptom], case) for case in book if symptom in case.symptoms), key=lambda pair: -pair[0])


def listing(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Lines of an id and a title, the titles in one column."""
    rows = list(rows)
    wide = max((len(one) for one, _ in rows), default=0) + 2
    for one, title in rows:
        for number, line in enumerate(wrap(title, WIDTH - wide)):
            yield f"{one if number == 0 else '':<{wide}}{line}"


def _block(label: str, text: str) -> list[str]:
    head = f"{label}{' ' * max(1, INDENT - cell_len(label))}"
    return [f"{head if number == 0 else ' ' * INDENT}{line}" for number, line in enumerate(wrap(text, WIDTH - INDENT))]
