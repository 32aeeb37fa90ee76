"""Regular expressions that are compiled at their first use.

The readers hold some two hundred patterns, of which one run needs a handful; compiling all of them would cost more than reading a
short log.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Lazy:
    """Stands for a pattern until an attribute of it is asked for."""

    __slots__ = ("_compiled", "_flags", "_source")

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags
        self._compiled: re.Pattern[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return getattr(self._compiled, name)


def pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile(source, flags)`, put off until the pattern is first used."""
    return cast("re.Pattern[AnyStr]", _Lazy(source, flags))
