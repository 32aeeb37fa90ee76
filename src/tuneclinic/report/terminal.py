"""The diagnosis on a terminal, at most 80 columns wide, Chinese wrapped right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from tuneclinic.diagnosis import Diagnosis
from tuneclinic.report.phrases import SAME_AS
from tuneclinic.report.story import Fact, Seen, Story, Told, tell
from tuneclinic.report.wrap import wrap
from tuneclinic.words import Language, say

WIDTH = 80
INDENT = 11
"""Cells of the column that holds the words seen, why, do, verify."""
SHOWN_UNREAD = 6
SHOWN_SOURCES = 3
MARKS = {"fault": ("✗", "bold red"), "no_fault": ("○", "bold green"), "not_enough_evidence": ("?", "bold yellow")}


def render_all(diagnoses: Sequence[Diagnosis], language: Language = "en", *, colour: bool = False) -> str:
    """Several runs one after another; what was confirmed in an earlier run is not told twice."""
    texts: list[str] = []
    told: dict[str, str] = {}
    for diagnosis in diagnoses:
        confirmed = [finding.case for finding in diagnosis.having("confirmed")]
        earlier = next((told[case] for case in confirmed if case in told), "")
        texts.append(render(diagnosis, language, colour=colour, told=frozenset(told), earlier=earlier))
        told.update({case: diagnosis.run for case in confirmed if case not in told})
    return "\n".join(texts)


def render(
    diagnosis: Diagnosis,
    language: Language = "en",
    width: int = WIDTH,
    *,
    colour: bool = False,
    told: frozenset[str] = frozenset(),
    earlier: str = "",
) -> str:
    """The report as text; `colour` adds terminal colours; cases in `told` were told in the run `earlier` and are only named."""
    width = max(40, min(width, WIDTH))
    return "".join(line.drawn(colour=colour) + "\n" for line in _lines(tell(diagnosis, language), width, told, earlier))


STYLES = {"": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Line:
    """One line in styled pieces. Drawn by hand: a library for terminals costs as much to load as a diagnosis to make."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self._pieces = [(text, style)]

    def append(self, text: str, style: str = "") -> Line:
        """This line with one more piece."""
        self._pieces.append((text, style))
        return self

    def drawn(self, *, colour: bool) -> str:
        """The line as text, with SGR codes (ECMA-48) where `colour` is set."""
        if not colour:
            return "".join(text for text, _ in self._pieces).rstrip()
        return "".join(_styled(text, style) for text, style in self._pieces)


def _styled(text: str, style: str) -> str:
    codes = ";".join(STYLES[one] for one in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _lines(story: Story, width: int, already: frozenset[str], earlier: str) -> Iterator[Line]:
    mark, style = MARKS[story.conclusion]
    yield Line(f"── {story.run} ".ljust(2) + "─" * max(0, width - cell_len(story.run) - 4), style="dim")
    for number, line in enumerate(wrap(story.headline, width - 2)):
        yield Line(f"{mark} {line}" if number == 0 else f"  {line}", style=style)
    yield Line()
    if story.read:
        yield from _block(story.words["read"], story.summary, width, "dim")
        yield Line()
    if story.symptoms:
        yield from _heading(story.words["symptoms"])
        for symptom in story.symptoms:
            yield from _symptom(symptom, story, width)
    for heading, group in (("confirmed", story.confirmed), ("benign", story.benign), ("suspects", story.suspects)):
        again = [told for told in group if told.id in already] if heading != "suspects" else []
        if group:
            yield from _heading(story.words[heading])
        if again:
            titles = ("、" if story.language == "zh" else ", ").join(told.title for told in again)
            for line in wrap(say(SAME_AS, story.language).format(run=earlier, titles=titles), width - 2):
                yield Line(f"  {line}")
            yield Line()
        if group:
            for place, told in enumerate(one for one in group if one not in again):
                yield from _finding(told, story, width, whole=heading != "suspects" or (place == 0 and not story.confirmed))
            if heading == "suspects" and group[-1].by_prior:
                yield from _block("", story.words["by_prior"], width, "dim")
                yield Line()
    yield from _closing(story, width)


def _heading(text: str) -> Iterator[Line]:
    yield Line(text, style="bold")


def _unread(story: Story, width: int) -> Iterator[Line]:
    for number, line in enumerate(story.unread[:SHOWN_UNREAD]):
        yield from _block(story.words["unread"] if number == 0 else "", line, width, "yellow")
    if len(story.unread) > SHOWN_UNREAD:
        yield from _block("", f"… +{len(story.unread) - SHOWN_UNREAD}", width, "yellow")


def _symptom(symptom: Seen, story: Story, width: int) -> Iterator[Line]:
    for line in wrap(f"{symptom.title}  [{symptom.id}]", width - 2):
        yield Line(f"  {line}", style="cyan")
    for fact in symptom.facts[:3]:
        yield from _fact(story.words["seen"] if fact is symptom.facts[0] else "", fact, width)
    yield Line()


def _finding(told: Told, story: Story, width: int, *, whole: bool) -> Iterator[Line]:
    odds = f"{told.odds:>5}  " if told.verdict == "suspected" else ""
    style = "bold red" if told.verdict == "confirmed" and told.kind == "fault" else "bold"
    for line in wrap(f"{odds}{told.title}  [{told.id}]", width - 2):
        yield Line(f"  {line}", style=style)
    if told.by_prior and not whole:
        return
    if told.note:
        yield from _block("", told.note, width, "dim")
    for_, against = [fact for fact in told.seen if fact.weight >= 0], [fact for fact in told.seen if fact.weight < 0]
    for heading, facts in (("seen", for_), ("against", against)):
        for fact in facts[: 5 if whole else 2]:
            yield from _fact(story.words[heading] if fact is facts[0] else "", fact, width)
    if whole:
        yield from _block(story.words["why"], told.why, width)
        yield from _block(story.words["do"], told.remedy, width)
        for framework, line in told.pastes:
            yield from _block(
                story.words["paste"] if (framework, line) == told.pastes[0] else "", f"{line}    # {framework}", width, "green"
            )
        yield from _block(story.words["verify"], told.verify, width)
        yield from _block(story.words["prevent"], told.prevention, width, "dim")
    else:
        yield from _block(story.words["do"], told.remedy, width)
    yield Line()


def _fact(heading: str, fact: Fact, width: int) -> Iterator[Line]:
    weight = f"  ({fact.weight:+.0f} bit)" if abs(fact.weight) >= 1 else ""
    place = f"{fact.where}: " if fact.where and fact.where not in fact.text else ""
    yield from _block(heading, f"{place}{fact.text}{weight}", width)


def _block(heading: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    for number, line in enumerate(wrap(text, width - INDENT)):
        label = f"  {heading}" if number == 0 and heading else ""
        start = Line(label + " " * max(1, INDENT - cell_len(label)), style="dim")
        yield start.append(line, style=style)


def _closing(story: Story, width: int) -> Iterator[Line]:
    yield from _usual(story, width)
    yield from _unread(story, width)
    if story.next:
        yield from _block(story.words["next"], story.next + (f"  {story.command}" if story.command else ""), width, "bold")
    for text in (story.rest, story.not_looked):
        for line in wrap(text, width):
            yield Line(line, style="dim")


def _usual(story: Story, width: int) -> Iterator[Line]:
    """The table of this run's numbers beside the usual ones, and the sources of the bands below it."""
    if not story.usual:
        return
    yield from _heading(story.words["usual"])
    column = width - 26
    yield Line(" " * (column + 2) + f"{story.words['this_run']:>9}  {story.words['band']}", style="dim")
    for measure, value, band, _ in story.usual:
        lines = wrap(measure, column - 2)
        for line in lines[:-1]:
            yield Line(f"  {line}", style="dim")
        padded = lines[-1] + " " * (column - cell_len(lines[-1]))
        yield Line(f"  {padded}{value:>9}  {band}", style="dim")
    sources = list(dict.fromkeys(one.strip() for _, _, _, source in story.usual for one in source.split(",")))
    more = f" … +{len(sources) - SHOWN_SOURCES}" if len(sources) > SHOWN_SOURCES else ""
    yield from _block(story.words["source"], ", ".join(sources[:SHOWN_SOURCES]) + more, width, "dim")
    yield Line()
