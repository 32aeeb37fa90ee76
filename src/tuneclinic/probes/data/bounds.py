"""How large a value a chat template may make, and how long it may take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from jinja2.utils import Namespace

from tuneclinic.patterns import pattern

TEXT_CHARS = 1 << 21
"""The longest text that a template may make: a row of half a million tokens."""
MADE_CHARS = 1 << 26
"""Characters of all texts made on the way, by operators, filters, calls and blocks together."""
ITEMS = 20_000
"""The longest range, and the most values inside one list or mapping, those of nested ones counted each time they occur."""
STEPS = 200_000
"""Loop turns and calls of one rendering; a chat of a thousand messages takes some ten thousand."""
SECONDS = 0.2
"""CPU time of one rendering; ordinary ones take a few milliseconds at most."""
NUMBER = 1 << 62
WIDTH = pattern(r"\d{5}|\*|\{[^{}]*\{")
"""A format's width of five digits, from an argument, or from a nested field."""


class Refused(TemplateError):  # noqa: N818 - says what happened, as jinja2's own names do
    """The template itself refused the conversation with `raise_exception`."""


class Stopped(TemplateError):  # noqa: N818 - as above
    """The template was stopped because it would take too much time or memory."""


class Budget:
    """What is left of one rendering's steps and time."""

    def __init__(self) -> None:
        self.steps, self.chars = STEPS, MADE_CHARS
        self.deadline = time.thread_time() + SECONDS

    def step(self) -> None:
        """Counts one loop turn or call.

        Raises:
            Stopped: when steps or time are used up.
        """
        self.steps -= 1
        if self.steps < 0 or (self.steps % 8 == 0 and time.thread_time() > self.deadline):  # the clock costs more than a step
            raise Stopped("the template runs too long")

    def spend(self, value: Any) -> Any:
        """`value`, counted where it is a text.

        Raises:
            Stopped: when all texts together are too long.
        """
        if isinstance(value, str):
            self.chars -= len(value)
            if self.chars < 0:
                raise Stopped("the template makes too much text")
        return value


class Counted:
    """An iterable whose every turn counts; has a length where the inner one has."""

    def __init__(self, inner: Any, budget: Budget) -> None:
        self.inner, self.budget = inner, budget

    def __iter__(self) -> Iterator[Any]:
        for item in self.inner:
            self.budget.step()
            yield item

    def __len__(self) -> int:
        return len(self.inner)


Known = Mapping[int, tuple[int, int]]
"""Items and characters of values that were weighed already, by `id`: the conversation itself, which templates pass about."""


def weigh(value: Any, known: Known | None = None) -> Any:
    """`value`, if it is no larger than a template may make it.

    Raises:
        Stopped: where it is larger, nested values counted each time they occur.
    """
    if isinstance(value, str):
        if len(value) > TEXT_CHARS:
            raise Stopped("the template makes too much text")
        return value
    items, chars = weight_of(value, known or {})
    if items > ITEMS or chars > TEXT_CHARS:
        raise Stopped("the template makes too large a value")
    return value


def weight_of(value: Any, known: Known) -> tuple[int, int]:
    """Items and characters of a value, both cut off where they pass their bounds."""
    items, chars = 0, 0
    stack = [value]
    while stack and items <= ITEMS and chars <= TEXT_CHARS and len(stack) <= 2 * ITEMS:
        item = stack.pop()
        items += 1
        if isinstance(item, str):
            chars += len(item)
        elif (held := known.get(id(item))) is not None:
            items += held[0]
            chars += held[1]
        elif isinstance(item, (dict, Mapping)):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            stack.extend(item)
        elif isinstance(item, Counted) and isinstance(item.inner, Sequence):
            stack.append(item.inner)
        elif isinstance(item, Namespace):
            stack.extend(getattr(item, "_Namespace__attrs", {}).values())
        elif isinstance(item, int) and abs(item) > NUMBER:
            items = ITEMS + 1
    return (ITEMS + 1, chars) if len(stack) > 2 * ITEMS else (items, chars)


def joined(pieces: Iterable[str]) -> str:
    """What the compiled template joins its output with."""
    held = list(pieces)
    if sum(map(len, held)) > TEXT_CHARS:
        raise Stopped("the template makes too much text")
    return "".join(held)


def first_of(values: Any) -> Iterator[Any]:
    """The items of `values`, which may be endless. Raises `Stopped` where there are too many."""
    for index, value in enumerate(values):
        if index > ITEMS:
            raise Stopped("the template makes too large a list")
        yield value


def modest(arguments: Iterable[Any], named: Mapping[str, Any]) -> None:
    """Refuses numbers that would make a large text (`center`, `indent`, `zfill` …)."""
    for value in (*arguments, *named.values()):
        if isinstance(value, (int, float)) and abs(value) > ITEMS:
            raise Stopped("the template calls a function with too large a number")


def replaceable(text: Any, old: Any, new: Any) -> None:
    """Raises `Stopped` where replacing `old` by `new` would make too long a text."""
    size = len(str(text))
    if size + len(str(new)) * (str(text).count(str(old)) if old else size + 1) > TEXT_CHARS:
        raise Stopped("the template makes too much text")


def joinable(values: Any, separator: Any = "") -> None:
    """Raises `Stopped` where joining `values` would make too long a text."""
    if isinstance(values, (list, tuple)):
        weigh([*values, *[separator] * len(values)])


def formattable(pattern: Any) -> None:
    """Raises `Stopped` where a format asks for a huge or a computed width."""
    if WIDTH.search(str(pattern)):
        raise Stopped("the template formats with too large a width")


def most_of(value: Any) -> int:
    """How many items a sequence of this type may have."""
    return TEXT_CHARS if isinstance(value, str) else ITEMS


def small(value: Any, limit: int) -> bool:
    """Whether `value` is a number within `limit`."""
    return isinstance(value, (int, float)) and abs(value) <= limit


def printed(value: Any) -> Any:
    """What `{{ value }}` prints: any value whose text is bounded."""
    return value if isinstance(value, str) else weigh(value)


def concatenated(values: list[Any]) -> str:
    """The operands of `~` as one text."""
    pieces = [value if isinstance(value, str) else str(weigh(value)) for value in values]
    return joined(pieces)
