"""Shell scripts as commands with flags: words and variables only, nothing is run and nothing is expanded by a shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from tuneclinic.patterns import pattern
from tuneclinic.values import dataclass

SCRIPT_BYTES = 1 << 18
"""The most of a script that is read."""
LINES = 20_000
"""How many lines of a script are read."""
LINE = 20_000
"""Characters of a line that are read: a longer one is data."""
EXPANSIONS = 8
"""How often variables inside variables are replaced: enough for any script, and an end for `A=$A$A`."""

_WORD = pattern(r"""(?:\$\([^()]*\)|[^\s"'\\;|&<>()]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+|[;|&<>()]+""")
_ASSIGNMENT = pattern(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = pattern(r"\$(?:\{([A-Za-z_]\w*)(?:(:?[-=])([^{}]*))?\}|([A-Za-z_]\w*))")


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command with quotes removed and known variables replaced; `raw` is as written."""

    text: str
    raw: str
    line: int

    @property
    def open(self) -> bool:
        """Whether a variable in it could not be replaced, so that its value is not known."""
        return "'" not in self.raw[:1] and ("$" in self.text or "`" in self.text)


@dataclass(slots=True)
class Command:
    """One command line with the assignments that stand before it."""

    words: list[Word] = field(default_factory=list)
    environment: dict[str, Word] = field(default_factory=dict)


def commands(text: str) -> Iterator[tuple[Command, dict[str, Word]]]:
    """Every command of a script with the variables that were assigned up to it."""
    variables: dict[str, Word] = {}
    for words in _lines(text[:SCRIPT_BYTES]):
        command = Command()
        for raw, line in words:
            if raw[0] in ";|&()":
                yield from _finished(command, variables)
                command = Command()
                continue
            word = Word(_expand(_unquoted(raw), variables) if not raw.startswith("'") else _unquoted(raw), raw, line)
            assigned = _ASSIGNMENT.fullmatch(raw) if not command.words else None
            if assigned:
                value = assigned[2]
                plain = _unquoted(value) if value.startswith("'") else _expand(_unquoted(value), variables)
                command.environment[assigned[1]] = Word(plain, raw, line)
            elif not (raw == "export" and not command.words):
                command.words.append(word)
        yield from _finished(command, variables)


def _finished(command: Command, variables: dict[str, Word]) -> Iterator[tuple[Command, dict[str, Word]]]:
    if command.words:
        yield command, dict(variables)
    elif len(variables) < 1000:
        variables.update(command.environment)


def _lines(text: str) -> Iterator[list[tuple[str, int]]]:
    """The words of each logical line; a backslash or an open pipe at its end continues it."""
    held: list[tuple[str, int]] = []
    for number, line in enumerate(text.split("\n", LINES)[:LINES], 1):
        body = line[:LINE].rstrip("\r\n ")
        continued = body.endswith("\\") and not body.endswith("\\\\")
        body = body[:-1] if continued else body
        held.extend((match.group(), number) for match in _WORD.finditer(_without_comment(body)))
        if not continued:
            if held:
                yield held
            held = []
    if held:
        yield held


def _without_comment(line: str) -> str:
    if "#" not in line:
        return line
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (index == 0 or line[index - 1] in " \t;"):
            return line[:index]
    return line


def _unquoted(raw: str) -> str:
    def bare(match: re.Match[str]) -> str:
        part = match.group()
        if part[0] in "\"'":
            return part[1:-1]
        return part[1:]

    return re.sub(r""""(?:[^"\\]|\\.)*"|'[^']*'|\\.""", bare, raw)


def _expand(text: str, variables: dict[str, Word]) -> str:
    def value(match: re.Match[str]) -> str:
        known = variables.get(match[1] or match[4])
        if known is not None:
            return known.text
        return match[3] if match[2] and match[3] is not None else match.group()

    for _ in range(EXPANSIONS):
        if "$" not in text or len(text) > LINE:
            break
        replaced = _VARIABLE.sub(value, text)
        if replaced == text:
            break
        text = replaced
    return text[:LINE]
