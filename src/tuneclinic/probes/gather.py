"""Reading files: which reader takes a file, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from tuneclinic.diagnosis import Read
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.registry import found
from tuneclinic.values import dataclass
from tuneclinic.words import Text

CLAIM = 0.3
"""A reader less sure than this is not asked: its guess would be read as fact."""
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the file's name, its number from 1 and how many there are."""

LFS = b"version https://git-lfs.github.com/spec"
_LFS_NOTE = Text(
    "a Git LFS pointer: the file itself was never fetched (git lfs pull)",
    "这是 Git LFS 指针文件，真正的内容没有拉取（git lfs pull）",
)
_UNKNOWN_NOTE = Text("no reader knows this file", "没有读取器认识这个文件")
_NOTHING_NOTE = Text("nothing in it was understood", "没有读懂其中任何内容")
_EMPTY_NOTE = Text("the file is empty", "文件是空的")


@dataclass(frozen=True, eq=False)
class Gathered:
    """One reading of one file, with how it is reported."""

    file: SourceFile
    reader: Reader | None
    reading: Reading
    read: Read


def readers() -> tuple[Reader, ...]:
    """All readers."""
    return found("tuneclinic.probes.readers", Reader)


def gather(
    files: Iterable[SourceFile], progress: Progress | None = None, columns: Mapping[str, str] = MappingProxyType({})
) -> list[Gathered]:
    """Reads every file by the reader that claims it, in the readers' order of precedence.

    `columns` says which column of a table plays which role, where the user knows better than the guess.
    """
    files = [replace(file, columns=columns) for file in files] if columns else list(files)
    gathered: list[Gathered] = []
    for number, file in enumerate(files, 1):
        if progress is not None:
            progress(file.name, number, len(files))
        gathered.extend(read_file(file))
    return sorted(gathered, key=lambda one: one.reader.precedence if one.reader else 99)


def read_file(file: SourceFile) -> list[Gathered]:
    """What the readers make of one file; a file that no reader knows is said to be unknown."""
    if not file.head:
        return [_noted(file, "empty", _EMPTY_NOTE)]
    if file.head.startswith(LFS):
        return [_noted(file, "git-lfs-pointer", _LFS_NOTE)]
    taken: list[Gathered] = []
    for reader in choose(file):
        taken.extend(_asked(reader, file))
    return taken or [_noted(file, "unknown", _UNKNOWN_NOTE)]


def choose(file: SourceFile) -> list[Reader]:
    """The reader surest of the file, and all that read beside it (`also`)."""
    best: Reader | None = None
    surest, beside = CLAIM, []
    for reader in readers():
        try:
            claim = reader.claims(file)
        except Exception:  # noqa: BLE001, S112 - a reader that fails on a head does not know the file
            continue
        if reader.also:
            if claim >= CLAIM:
                beside.append(reader)
        elif claim > surest or (claim == surest and best is None):
            best, surest = reader, claim
    return ([best] if best else []) + beside


def _asked(reader: Reader, file: SourceFile) -> list[Gathered]:
    try:
        readings = reader.read(file)
    except Exception as error:  # noqa: BLE001 - a damaged file must not end the diagnosis of the others
        note = Text(f"could not be read: {type(error).__name__}: {error}", f"读取失败：{type(error).__name__}: {error}")
        return [_noted(file, reader.kind, note, reader)]
    return [Gathered(file, reader, reading, _reported(file, reader, reading)) for reading in readings]


def _reported(file: SourceFile, reader: Reader, reading: Reading) -> Read:
    source = f"{file.name} ({reading.run})" if reading.run else file.name
    note = reading.note or ("" if sum(reading.understood.values()) else _NOTHING_NOTE)
    return Read(source, reader.kind, reading.understood, reading.skipped, note)


def _noted(file: SourceFile, kind: str, note: Text, reader: Reader | None = None) -> Gathered:
    return Gathered(file, reader, Reading(), Read(file.name, kind, note=note))
