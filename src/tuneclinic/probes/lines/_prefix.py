"""What stands in front of a row: ranks, process ids, labels of `srun`."""

from __future__ import annotations

import re

from tuneclinic.probes.lines import Field, Row
from tuneclinic.probes.lines._lazy import Lazy

RANK = Lazy(
    r"^\s{0,8}(?:\[(?:rank|Rank |default|RANK )(?P<rank>\d{1,6})\]:?|\((?:[\w.:<>]{1,80} )?pid=(?P<pid>\d{1,9})[^)\n]{0,100}\)|\[(?P<bare>\d{1,4})\]:)\s?"
)
LABEL = Lazy(r"^\s{0,4}(?P<rank>\d{1,4}): (?=\S| )")
"""`srun --label`; taken for a rank only where the head of the file has it on nearly every line."""


def without_rank(text: str, *, labelled: bool) -> tuple[str, Field | None]:
    """The line behind its rank prefix, and where the rank stands. Prefixes stack; the last counts."""
    at, rank = 0, None
    for _ in range(4):
        match = RANK.match(text[at : at + 200]) or (LABEL.match(text[at : at + 16]) if labelled else None)
        if match is None:
            break
        group = next(name for name, value in match.groupdict().items() if value is not None)
        if group != "pid" or rank is None:
            rank = Field("rank", at + match.start(group), at + match.end(group))
        at += match.end()
    return text[at:], rank


def labelled(head: list[bytes]) -> bool:
    filled = [raw for raw in head if raw.strip()]
    labels = [match[1] for raw in filled if (match := re.match(rb"\s{0,4}(\d{1,4}): ", raw))]
    return len(filled) >= 8 and len(labels) >= 0.8 * len(filled) and len(set(labels)) * 3 <= len(labels)


def shifted(row: Row, by: int, rank: Field | None) -> Row:
    """A row found behind a rank prefix, by its places in the whole line and with the rank as a column."""
    fields = tuple(one._replace(start=one.start + by, end=one.end + by) for one in row.fields)
    if rank is None:
        return Row(fields, row.start + by, row.end + by)
    return Row((rank, *fields), 0, row.end + by)
