"""A file as a table of rows, and what the checks and figures say of it."""

from __future__ import annotations

from collections.abc import Iterable

from tuneclinic.probes.data.checks import checks
from tuneclinic.probes.data.layouts import Converter, recognise
from tuneclinic.probes.data.row import Table, shown
from tuneclinic.probes.data.rows import load
from tuneclinic.probes.data.statistics import statistics
from tuneclinic.probes.reading import SourceFile
from tuneclinic.sections import Data, RowSet, Sample

LAYOUT_ROWS = 50
FIRST_SAMPLES = 64
MOST_SAMPLES = 256


def table_of(file: SourceFile) -> Table:
    """Every row of `file` in one shape."""
    raw = load(file)
    layout = recognise(row for _, row in raw.rows[:LAYOUT_ROWS])
    table = Table(layout, file.name, [], list(raw.bad), raw.bad_text, raw.whole)
    if not layout:
        return table
    convert = Converter(layout)
    for number, value in raw.rows:
        row = convert.row(number, value)
        if row is not None and _sound(row.input_ids, row.labels):
            table.rows.append(row)
        else:
            table.malformed.append(number)
            table.malformed_example = table.malformed_example or shown(_quoted(value))
    table.malformed.sort()
    return table


def data_of(table: Table) -> Data:
    """What the checks and figures say of a table."""
    checked = {"malformed-row"}
    defects = []
    if table.malformed:
        defects.append(RowSet("malformed-row", tuple(table.malformed), table.source, shown(table.malformed_example)))
    for check in checks():
        for name, (rows, example) in check.find(table).items():
            checked.add(name)
            if rows:
                defects.append(RowSet(name, tuple(rows), table.source, example))
    total = len(table.rows) + len(table.malformed)
    return Data(
        layout=table.layout,
        rows=len(table.rows),
        total=total if table.whole else None,
        samples=_samples(table, defects),
        checked=frozenset(checked),
        defects=tuple(defects),
        sources=(table.source,),
        statistics=statistics(table),
    )


def _samples(table: Table, defects: Iterable[RowSet]) -> tuple[Sample, ...]:
    """The first rows, the first of every defect and the one with the greatest token id, in order."""
    wanted = {defect.rows[0] for defect in defects}
    if table.layout == "tokenised":
        wanted.add(max(table.rows, key=lambda row: max((*(row.input_ids or ()), *(row.labels or ())), default=0)).number)
    kept = [row for index, row in enumerate(table.rows) if index < FIRST_SAMPLES or row.number in wanted]
    return tuple(row.sample(table.source) for row in kept[:MOST_SAMPLES])


def _sound(ids: tuple[int, ...] | None, labels: tuple[int, ...] | None) -> bool:
    return ids is None or labels is None or len(ids) == len(labels)


def _quoted(value: object) -> str:
    """A damaged row, short, whatever it is."""
    try:
        return str(value)[:400]
    except (RecursionError, ValueError):
        return "?"
