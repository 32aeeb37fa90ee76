"""What every reader is given and gives back.

A reader is offered a `SourceFile` and says by its name and head whether the file is its own. Files are hostile: nothing is
executed or unpickled, sizes and line lengths are bounded, and text is decoded without failing.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, ClassVar, cast

from tuneclinic.evidence import Evidence
from tuneclinic.values import dataclass
from tuneclinic.words import Words

HEAD_BYTES = 1 << 16
"""How much of a file a reader may look at to claim it: enough for any format's first rows."""
LINE_BYTES = 1 << 20
"""Where a line is cut: no trainer prints a longer one, and a file of one line must not fill the memory."""
TEXT_BYTES = 64 << 20
"""The most that a reader of whole documents (JSON, YAML, a script) takes in: the largest real trainer_state.json of a long
run is a tenth of it."""


@dataclass(frozen=True)
class SourceFile:
    """One file of a run. `name` is how reports cite it, relative to the run's folder, with `/`.

    `columns` maps roles ("loss", "step" …) to column names where the user said which is which.
    """

    path: Path
    name: str
    columns: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size

    @property
    def base(self) -> str:
        """The file's own name, lower case, without a trailing `.gz`."""
        base = self.name.rsplit("/", 1)[-1].lower()
        return base.removesuffix(".gz")

    @cached_property
    def zipped(self) -> bool:
        """Whether the content is gzip, by its first bytes."""
        with self.path.open("rb") as raw:
            return raw.read(2) == b"\x1f\x8b"

    def open(self) -> BinaryIO:
        """The content as bytes, unzipped on the way where it is gzip."""
        if self.zipped:
            return cast("BinaryIO", gzip.open(self.path, "rb"))
        return self.path.open("rb")

    @cached_property
    def head(self) -> bytes:
        """The first `HEAD_BYTES` of the content."""
        try:
            with self.open() as stream:
                return stream.read(HEAD_BYTES)
        except (OSError, EOFError):
            return b""

    @cached_property
    def head_text(self) -> str:
        """`head` as text."""
        return decode(self.head)

    @cached_property
    def binary(self) -> bool:
        """Whether the head looks like no text in any usual encoding."""
        sample = self.head[:4096]
        if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
            return False
        control = sum(byte < 9 or 13 < byte < 27 for byte in sample)
        return control > len(sample) // 20

    def read_bytes(self, limit: int = TEXT_BYTES) -> bytes:
        """At most `limit` bytes of the content."""
        with self.open() as stream:
            return stream.read(limit)

    def text(self, limit: int = TEXT_BYTES) -> str:
        """At most `limit` bytes of the content as text."""
        return decode(self.read_bytes(limit))

    def lines(self, limit: int = LINE_BYTES) -> Iterator[tuple[int, str]]:
        """Numbered lines from 1, split at line feeds, each cut after `limit` bytes."""
        with self.open() as stream:
            buffered = (
                io.BufferedReader(cast("io.RawIOBase", stream), 1 << 16) if not isinstance(stream, io.BufferedReader) else stream
            )
            number, start = 0, True
            while piece := buffered.readline(limit):
                if start:
                    number += 1
                    yield number, decode(piece).rstrip("\r\n")
                start = piece.endswith(b"\n")


def decode(content: bytes) -> str:
    """Bytes as text, never failing: by byte-order mark, else UTF-8, else GB 18030 where it fits, else Latin-1."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    body = content.removeprefix(b"\xef\xbb\xbf")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start >= len(body) - 4:  # a character cut by the size limit, not another encoding
            return body.decode("utf-8", errors="ignore")
    try:
        return body.decode("gb18030")
    except UnicodeDecodeError:
        return body.decode("utf-8", errors="replace")


@dataclass(frozen=True, eq=False)
class Reading:
    """What a reader made of one file, or of one run in a file that holds several (`run` tells them apart, "" else).

    `understood` counts rows or lines by shape ("train rows", "settings", "tensors" …), `skipped` by reason. A reader that
    understood nothing returns an empty `understood` and says why in `note`.
    """

    evidence: Evidence = field(default_factory=Evidence)
    understood: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    note: Words = ""
    run: str = ""


class Reader:
    """Reads one format. Subclasses set `kind` and write `claims` and `read`; a file below `probes/readers` registers them.

    precedence: of two files that set the same thing, the one whose reader has the lower number is believed.
    also: reads beside the reader that claims the file, not instead of it.
    """

    kind: ClassVar[str] = ""
    precedence: ClassVar[int] = 50
    also: ClassVar[bool] = False

    def claims(self, file: SourceFile) -> float:
        """How sure this reader is that the file is its own, by name and head: 0 no, 1 certain. Cheap; never raises."""
        raise NotImplementedError

    def read(self, file: SourceFile) -> list[Reading]:
        """What the file says: one `Reading`, or one a run. Raises nothing for damaged content; says it in `note`."""
        raise NotImplementedError
