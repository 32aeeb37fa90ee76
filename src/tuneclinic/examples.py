"""Examples of cases and symptoms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from tuneclinic.evidence import Evidence


class Lazy(Sequence[Evidence]):
    """Examples that are built when they are first looked at: a diagnosis loads every case and looks at no example."""

    def __init__(self, build: Callable[[], Sequence[Evidence]]) -> None:
        self._build = build
        self._held: Sequence[Evidence] | None = None

    def _examples(self) -> Sequence[Evidence]:
        if self._held is None:
            self._held = self._build()
        return self._held

    @overload
    def __getitem__(self, index: int) -> Evidence: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Evidence]: ...

    def __getitem__(self, index: int | slice) -> Evidence | Sequence[Evidence]:
        return self._examples()[index]

    def __len__(self) -> int:
        return len(self._examples())
