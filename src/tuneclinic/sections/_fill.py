"""Merging two views of one subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

Section = TypeVar("Section")


def filled(mine: Section, other: Section) -> Section:
    """`mine` with every empty field taken from `other`; mappings are united, `sources` are joined."""
    mine_: Any = mine
    changes: dict[str, Any] = {}
    for name in mine_.__dataclass_fields__:
        have, more = getattr(mine, name), getattr(other, name)
        if isinstance(have, Mapping):
            changes[name] = {**more, **have}
        elif name == "sources":
            changes[name] = have + tuple(source for source in more if source not in have)
        elif have is None or have in ("", ()):
            changes[name] = more
    return cast("Section", replace(mine_, **changes))
