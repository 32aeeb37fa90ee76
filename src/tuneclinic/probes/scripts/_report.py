"""Collects what the checks of a script find."""

from __future__ import annotations

import ast

from tuneclinic.sections import Script, ScriptFact

FACTS_KEPT = 64
QUOTE_KEPT = 300


class Report:
    """Facts with the lines they stand on, and the names of the checks that applied."""

    def __init__(self, lines: list[str], source: str) -> None:
        self._lines = lines
        self._source = source
        self._facts: list[ScriptFact] = []
        self._checked: set[str] = set()

    def checked(self, *names: str) -> None:
        """The script has what these checks look at."""
        self._checked.update(names)

    def fact(self, name: str, node: ast.AST, detail: str = "") -> None:
        """A check found something; the source line of `node` is its quotation. One fact a name and line."""
        self._checked.add(name)
        line = getattr(node, "lineno", 1)
        quote = self._lines[line - 1].strip()[:QUOTE_KEPT] if 0 < line <= len(self._lines) else ""
        known = any(fact.name == name and fact.line == line for fact in self._facts)
        if not known and len(self._facts) < FACTS_KEPT:
            self._facts.append(ScriptFact(name, quote, line, self._source, detail[:QUOTE_KEPT]))

    def script(self) -> Script:
        """What was found, in order of the text."""
        facts = tuple(sorted(self._facts, key=lambda fact: fact.line))
        return Script(facts, frozenset(self._checked), (self._source,))
