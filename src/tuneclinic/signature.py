"""Finding the lines of a log or a crash that name a case.

Patterns are written in lower case and searched in lower-cased text without flags: Python's engine then skips to literal
prefixes, which keeps a whole casebook of patterns over a log's kept lines within milliseconds.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, lru_cache

from tuneclinic.evidence import Evidence, Exhibit, from_error, from_line
from tuneclinic.patterns import pattern
from tuneclinic.sections import Log, LogLine

_TIMES = r"(?:[*+?]|\{[^}]*\})?\??"
_BACK = pattern(r"\\[1-9]")
"""A reference back to a group: what it stands for is not in the pattern's text."""
_GROUPS = pattern(rf"\\.{_TIMES}|\[\^?\]?[^\]]*\]{_TIMES}|\([^()]*\){_TIMES}|.(?:[*?]|\{{[^}}]*\}})\??", re.DOTALL)
_LITERAL = pattern(r"[a-z0-9 _':,/=<>-]{3,}")


def matches(seen: Evidence, patterns: tuple[str, ...], weight: float = 0.0) -> Iterator[Exhibit]:
    """Exhibits for the errors and log lines that match one of `patterns`, errors first, each line once.

    An error is searched in its class, message and frames. Patterns may use groups; `^` and `$` match at line borders.
    """
    quoted: set[str] = set()
    for error in seen.crash.errors if seen.crash else ():
        text = "\n".join((error.quote, *error.frames)).lower()
        if any(likely(one, text) and _compiled(one).search(text) for one in patterns) and error.where not in quoted:
            quoted.add(error.where)
            yield from_error(error, weight)
    if seen.log is not None:
        for one in patterns:
            line = first_line(seen.log, one)
            if line is not None and line.where not in quoted:
                quoted.add(line.where)
                yield from_line(line, weight)


def first_line(log: Log, signature: str) -> LogLine | None:
    """The first kept line that matches `signature` (lower case)."""
    text, starts = _haystack(log)
    match = _compiled(signature).search(text) if likely(signature, text) else None
    if match is None:
        return None
    return log.lines[_index(starts, match.start())]


def likely(signature: str, text: str) -> bool:
    """Whether `text` holds what a match of `signature` must hold; saves compiling most patterns."""
    needed = needed_by(signature)
    return not needed or any(one in text for one in needed)


@cache
def needed_by(signature: str) -> tuple[str, ...]:
    """Texts one of which every match of `signature` holds: the longest plain run of each alternative; empty where one has none."""
    if _BACK.search(signature):
        return ()
    plain, before = signature, ""
    while plain != before:
        plain, before = _GROUPS.sub("\0", plain), plain
    if "(" in plain or ")" in plain:
        return ()
    longest = tuple(max(_LITERAL.findall(part), key=len, default="") for part in plain.split("|"))
    return longest if all(longest) else ()


@cache
def _compiled(signature: str) -> re.Pattern[str]:
    return re.compile(signature, re.MULTILINE)


@lru_cache(maxsize=16)
def _haystack(log: Log) -> tuple[str, tuple[int, ...]]:
    starts, at, pieces = [], 0, []
    for line in log.lines:
        piece = line.text.replace("\n", " ").lower()
        starts.append(at)
        pieces.append(piece)
        at += len(piece) + 1
    return "\n".join(pieces), tuple(starts)


def _index(starts: tuple[int, ...], position: int) -> int:
    return bisect_right(starts, position) - 1
