"""Patterns that are compiled when they are first needed.

The formats and facts hold some eighty patterns, of which one log needs a handful; compiling all of them would cost a quarter
of the time that reading a short log may take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property


class Lazy:
    """A regular expression, compiled at its first use."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern itself."""
        return re.compile(self._source, self._flags)

    def search(self, text: str, start: int = 0, end: int | None = None) -> re.Match[str] | None:
        """As `re.Pattern.search`."""
        return self.compiled.search(text, start) if end is None else self.compiled.search(text, start, end)

    def match(self, text: str) -> re.Match[str] | None:
        """As `re.Pattern.match`."""
        return self.compiled.match(text)

    def finditer(self, text: str, start: int = 0, end: int | None = None) -> Iterator[re.Match[str]]:
        """As `re.Pattern.finditer`."""
        return self.compiled.finditer(text, start) if end is None else self.compiled.finditer(text, start, end)

    def findall(self, text: str) -> list[str]:
        """As `re.Pattern.findall`."""
        return self.compiled.findall(text)
