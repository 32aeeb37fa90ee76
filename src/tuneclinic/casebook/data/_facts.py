"""What the cases of this folder ask of the rows of a data set, each question once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tuneclinic.case import Case
from tuneclinic.casebook.data._names import NAMES, RENDERED, TOKENISED
from tuneclinic.casebook.learning._facts import PROOF, as_number, conclude, lines, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.sections import Output, RowSet, Sample
from tuneclinic.words import Text

LISTED = 5
"""Row numbers named in a place; the exhibit holds them all."""
EXAMPLE_CHARS = 160
"""Characters of a quoted row: two lines of a terminal."""
CLEAN = -7.0
"""Bits of a row check that was made over the rows and found nothing: the checks are exact, what was not read is a head's rest."""
IGNORED = -100
OWN_LABELS = frozenset({"llama-factory", "axolotl", "ms-swift", "torchtune", "xtuner"})
"""Frameworks that write the labels themselves and pad them with -100, whatever the pad token is."""
OUTPUTS = 200
"""Outputs looked at: shares within seven percentage points."""
CUT = frozenset({"length", "max_tokens", "max_length", "max_new_tokens"})
STOPPED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "eos_token_id"})
ENOUGH_OUTPUTS = 3
"""A judgement, not measured: of two answers one may run on by chance."""
MOSTLY = 0.5
"""A judgement, not measured: more than half of the answers make a habit of it."""


def looked(seen: Evidence, name: str) -> int:
    """How many rows a check looked at: all rows, or the kept samples for checks of rendered and tokenised rows."""
    if seen.data is None:
        return 0
    if name in TOKENISED:
        return max(1, sum(sample.input_ids is not None for sample in seen.data.samples))
    if name in RENDERED:
        return max(1, int(statistic(seen, "rendered_rows") or 0) or len(seen.data.samples) or seen.data.rows)
    return max(1, seen.data.rows)


def counted(seen: Evidence, *names: str) -> int:
    """Rows with any of the named defects."""
    if seen.data is None:
        return 0
    return len({(found.source, row) for name in names for found in seen.data.defect(name) for row in found.rows})


def share(seen: Evidence, *names: str) -> float:
    """Share of the looked-at rows that have any of the named defects, at most 1."""
    return min(1.0, counted(seen, *names) / min((looked(seen, name) for name in names), default=1))


def rows(seen: Evidence, *names: str, weight: float = PROOF) -> tuple[Exhibit, ...]:
    """For each row set with one of the named defects: how many rows, and the first one's text."""
    return tuple(_told(seen, names, weight))


def _told(seen: Evidence, names: Iterable[str], weight: float) -> Iterator[Exhibit]:
    for name in names:
        for found in seen.data.defect(name) if seen.data else ():
            label = NAMES[name]
            count, total = len(found.rows), looked(seen, name)
            text = Text(f"{count:,} of {total:,} rows: {label.en}", f"{total:,} 条里有 {count:,} 条：{label.zh}")
            yield Exhibit(text, place(found), found.source, found.rows, weight=weight, section="data")
            if found.example:
                quoted = found.example[:EXAMPLE_CHARS]
                where = f"{found.source} row {found.rows[0]}" if found.rows else found.source
                yield Exhibit(quoted, where, found.source, found.rows[:1], private=True, section="data")
            weight = 0.0


def place(found: RowSet) -> str:
    """`train.jsonl rows 3, 17, 21 …`."""
    listed = ", ".join(str(row) for row in found.rows[:LISTED])
    return f"{found.source} rows {listed}{' …' if len(found.rows) > LISTED else ''}"


def checked(seen: Evidence, *names: str) -> bool:
    """Whether any of the named row checks was made."""
    return seen.data is not None and bool(set(names) & seen.data.checked)


def clean(seen: Evidence, *names: str, weight: float = CLEAN) -> tuple[Exhibit, ...]:
    """One exhibit against, where the named checks were made and found no row."""
    if seen.data is None or counted(seen, *names) or not checked(seen, *names):
        return ()
    made = [name for name in names if name in seen.data.checked]
    total = looked(seen, made[0])
    source = next(iter(seen.data.sources), "")
    en = "; ".join(NAMES[name].en for name in made)
    zh = "；".join(NAMES[name].zh for name in made)
    text = Text(f"none of {total:,} rows: {en}", f"{total:,} 条样本里一条也没有：{zh}")
    return (Exhibit(text, source, source, weight=weight, section="data"),)


def by_share(
    case: Case, seen: Evidence, *names: str, proof: float, least: int = 1, minor: float = 1.0, extra: tuple[Exhibit, ...] = ()
) -> Finding:
    """The verdict of a row check alone: confirmed from `least` rows and a share of `proof` on, a lean below, ruled out when clean."""
    if seen.data is None or not (checked(seen, *names) or counted(seen, *names)):
        return case.not_checked("data", exhibits=extra)
    if counted(seen, *names) >= least and share(seen, *names) >= proof:
        return case.confirmed(*rows(seen, *names), *extra)
    held = rows(seen, *names, weight=minor) or clean(seen, *names)
    return conclude(case, (*held, *extra), missing=("outputs",))


def statistic(seen: Evidence, name: str) -> float | None:
    """A figure over the whole set, None where it was not made or is not finite."""
    return as_number(seen.data.statistics.get(name)) if seen.data is not None else None


def samples(seen: Evidence) -> tuple[Sample, ...]:
    """The kept samples."""
    return seen.data.samples if seen.data is not None else ()


def tokenised(seen: Evidence) -> list[tuple[Sample, tuple[int, ...], tuple[int, ...]]]:
    """Samples that carry ids and labels of one length, with both."""
    return [
        (sample, sample.input_ids, sample.labels)
        for sample in samples(seen)
        if sample.input_ids and sample.labels and len(sample.input_ids) == len(sample.labels)
    ]


def from_rows(en: str, zh: str, held: Iterable[Sample], weight: float) -> Exhibit:
    """An exhibit over samples, with their row numbers."""
    listed = tuple(held)
    source = listed[0].source if listed else ""
    numbers = tuple(sample.row for sample in listed if sample.source == source)
    return Exhibit(Text(en, zh), place(RowSet("", numbers, source)), source, numbers, weight=weight, section="data")


def outputs(seen: Evidence) -> tuple[Output, ...]:
    """The generated outputs, the first of them."""
    return seen.outputs.items[:OUTPUTS] if seen.outputs is not None else ()


def ends(seen: Evidence, weight: float = 3.0) -> tuple[Exhibit, ...]:
    """Whether the generated answers end by themselves: for `weight` where most do not, against where most do."""
    limit = seen.outputs.max_new_tokens if seen.outputs is not None else None
    known = [(output, ended) for output in outputs(seen) if (ended := _ended(output, limit)) is not None]
    if len(known) < ENOUGH_OUTPUTS:
        return ()
    running = [output for output, ended in known if not ended]
    if len(running) >= MOSTLY * len(known):
        return (
            say(
                f"{len(running)} of {len(known)} answers run to the token limit",
                f"{len(known)} 条回答里有 {len(running)} 条写到了长度上限",
                weight,
                section="outputs",
                where=running[0].where,
                source=running[0].source,
            ),
        )
    stopped = len(known) - len(running)
    return (
        say(
            f"{stopped} of {len(known)} answers end by themselves",
            f"{len(known)} 条回答里有 {stopped} 条自己停住了",
            -5.0,
            section="outputs",
            where=known[0][0].where,
        ),
    )


def _ended(output: Output, limit: float | None) -> bool | None:
    finish = (output.finish or "").lower()
    if finish in CUT:
        return False
    if finish in STOPPED:
        return True
    return output.tokens < limit if output.tokens is not None and limit else None


def line_count(seen: Evidence, *patterns: str) -> int:
    """How often log lines that match one of `patterns` (lower case) were printed; 0 at once where no line does."""
    if seen.log is None or not lines(Evidence(log=seen.log), *patterns):
        return 0
    wanted = pattern("|".join(patterns))
    return sum(line.count for line in seen.log.lines if wanted.search(line.text.lower()))


def own_labels(seen: Evidence) -> tuple[Exhibit, ...]:
    """One exhibit against, where the framework writes and shifts the labels and no script of the user's has a hand in it."""
    framework = seen.settings.framework if seen.settings is not None else ""
    if framework not in OWN_LABELS or (seen.script is not None and seen.script.facts):
        return ()
    return (
        say(
            f"{framework} makes the labels itself and pads them with -100",
            f"labels 由 {framework} 自己生成，补齐部分一律是 -100",
            -6.0,
            section="settings",
        ),
    )


def quote(text: str, where: str, source: str, weight: float = 0.0, section: str = "outputs") -> Exhibit:
    """A piece of the user's own text, private."""
    shown = " ".join(text[: 4 * EXAMPLE_CHARS].split())
    return Exhibit(shown[:EXAMPLE_CHARS], where, source, weight=weight, private=True, section=section)
