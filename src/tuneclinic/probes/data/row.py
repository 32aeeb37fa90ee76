"""One training row in one shape, whatever the layout of its file was."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from tuneclinic.sections import Sample
from tuneclinic.values import dataclass


@dataclass(slots=True)
class Row:
    """A row after its layout was understood.

    `messages` are (role, text) in order with the roles "system", "user", "assistant", "tool", or "text" for plain text.
    `images` counts pictures that come with the row, `marks` the placeholders for them in its text; `media` is a hash of every
    attachment, so that two rows with one text and two pictures are two rows. `calls` says that an assistant turn calls a
    tool and may have no text. `group` is the value of a source or label column. `scores` are those of chosen and rejected.
    """

    number: int
    messages: tuple[tuple[str, str], ...] = ()
    rejected: str | None = None
    images: int = 0
    marks: int = 0
    media: int = 0
    calls: bool = False
    group: str | None = None
    scores: tuple[float, float] | None = None
    nonfinite: bool = False
    input_ids: tuple[int, ...] | None = None
    labels: tuple[int, ...] | None = None
    mask: tuple[int, ...] | None = None

    @property
    def answer(self) -> str | None:
        """The text of the last assistant turn, None where there is none."""
        for role, text in reversed(self.messages):
            if role == "assistant":
                return text
        return None

    @property
    def prompt(self) -> tuple[tuple[str, str], ...]:
        """Every message before the last assistant turn."""
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index][0] == "assistant":
                return self.messages[:index]
        return self.messages

    def sample(self, source: str) -> Sample:
        """This row as the evidence keeps it."""
        return Sample(
            self.number,
            source,
            self.messages,
            images=self.images,
            rejected=self.rejected,
            input_ids=self.input_ids,
            labels=self.labels,
        )


@dataclass
class Table:
    """All rows of one file, in order, and the numbers of those that could not be understood."""

    layout: str
    source: str
    rows: list[Row]
    malformed: list[int] = field(default_factory=list)
    malformed_example: str = ""
    whole: bool = True

    @cached_property
    def answers(self) -> list[tuple[Row, str]]:
        """Every row with an assistant turn, and the text of its last one."""
        pairs = [(row, row.answer) for row in self.rows]
        return [(row, answer) for row, answer in pairs if answer is not None]

    @cached_property
    def texts(self) -> list[tuple[int, str, str]]:
        """Row number, role and text of every message that is not empty, rejected answers among them."""
        texts = [(row.number, role, text) for row in self.rows for role, text in row.messages if text]
        texts.extend((row.number, "assistant", row.rejected) for row in self.rows if row.rejected)
        return texts

    @cached_property
    def sizes(self) -> list[int]:
        """Characters of all messages of each row, or its token ids."""
        return [size_of(row) for row in self.rows]

    @cached_property
    def keys(self) -> list[int]:
        """A hash of each row: equal for rows that train the same."""
        return [key_of(row) for row in self.rows]

    @property
    def spoken(self) -> bool:
        """Whether the rows are conversations, not plain text or token ids."""
        return self.layout not in ("text", "tokenised")


def size_of(row: Row) -> int:
    """Characters of all messages, or token ids."""
    if row.input_ids is not None:
        return len(row.input_ids)
    size = len(row.rejected) if row.rejected else 0
    for _, text in row.messages:
        size += len(text)
    return size


def key_of(row: Row) -> int:
    """A hash of everything in a row that is trained on; space around a text does not count."""
    if row.input_ids is not None:
        return hash((row.input_ids, row.labels))
    parts: list[object] = [row.rejected, row.media]
    for role, text in row.messages:
        parts += (role, text.strip())
    return hash(tuple(parts))


def prompt_key(row: Row) -> int:
    """A hash of everything before a row's last answer."""
    return hash((tuple((role, text.strip()) for role, text in row.prompt), row.media))


def shown(text: str, limit: int = 160) -> str:
    """A short quotation of `text` on one line."""
    flat = " ".join(text[: limit * 2].split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
