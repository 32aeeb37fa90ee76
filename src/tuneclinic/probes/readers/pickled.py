"""Pickled checkpoint files: never loaded, since loading a pickle runs code. Name, size and the archive's directory only."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._checkpoints import step_of
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import WeightFile, Weights
from tuneclinic.words import Text

ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".distcp")
ZIP = b"PK\x03\x04"
PICKLE = pattern(rb"\x80[\x02-\x05]")
STORAGE = pattern(r"(?:^|/)data/\d+$")
"""A tensor's storage in torch's zip format."""
DIRECTORY_BYTES = 32 << 20
"""The largest archive directory that is listed: 300,000 entries."""
FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("arguments", pattern(r"^training_args\.bin$")),
    ("optimizer", pattern(r"optim")),
    ("scheduler", pattern(r"^(?:lr_)?scheduler")),
    ("rng", pattern(r"^(?:rng_state|random_states)")),
    ("scaler", pattern(r"^scaler")),
)
"""What a pickled file beside the weights holds, by its usual name; every other one is taken for weights ("pickle")."""
NOTE = Text(
    "not loaded: it is a pickle, and loading a pickle runs code. Save as safetensors to have the values checked",
    "没有加载：这是 pickle 文件，加载它等于执行其中的代码。另存为 safetensors 后才能检查数值",
)


class PickledReader(Reader):
    """Names and sizes of `*.bin`, `*.pt`, `*.pth`, `*.ckpt`."""

    kind = "pickled checkpoint"

    def claims(self, file: SourceFile) -> float:
        """By name and first bytes."""
        if not file.base.endswith(ENDINGS):
            return 0.0
        head = file.head
        if head.startswith(ZIP) or PICKLE.match(head):
            return 1.0
        return 0.6 if file.binary or not head else 0.1

    def read(self, file: SourceFile) -> list[Reading]:
        """The file's name, size and, for torch's zip format, the sizes of the stored tensors."""
        sizes = _directory(file)
        storages = {name: size for name, size in sizes.items() if STORAGE.search(name)}
        form = form_of(file.base)
        held = WeightFile(
            file.name,
            file.size,
            form=form,
            tensors=len(storages),
            empty=tuple(name for name, size in storages.items() if size == 0)[:1024] if form == "pickle" else (),
            unread="pickle",
            step=step_of(file.name),
            metadata={"stored_bytes": str(sum(storages.values()))} if storages else {},
        )
        understood = {"archive entries": len(sizes)} if sizes else {}
        return [Reading(Evidence(weights=Weights((held,))), understood, note=NOTE)]


def form_of(base: str) -> str:
    """What a pickled file holds by its name."""
    return next((form for form, pattern in FORMS if pattern.search(base)), "pickle")


def _directory(file: SourceFile) -> Mapping[str, int]:
    """Names and sizes of a zip archive's entries; empty where it is none, damaged, or its directory is too large."""
    if not file.head.startswith(ZIP):
        return {}
    import zipfile  # noqa: PLC0415 - 15 ms that runs without such a file do not pay

    try:
        with file.path.open("rb") as stream:
            stream.seek(max(0, file.size - (1 << 16) - 98))
            if _directory_bytes(stream.read()) > DIRECTORY_BYTES:
                return {}
            with zipfile.ZipFile(stream) as archive:
                return {entry.filename[:300]: entry.file_size for entry in archive.infolist()}
    except (OSError, ValueError, zipfile.BadZipFile, struct.error, NotImplementedError, OverflowError, RuntimeError, IndexError):
        return {}


def _directory_bytes(tail: bytes) -> int:
    at = tail.rfind(b"PK\x05\x06")
    if at < 0:
        raise ValueError("no end of a zip directory")
    size = int(struct.unpack_from("<I", tail, at + 12)[0])
    wide = tail.rfind(b"PK\x06\x06")
    return int(struct.unpack_from("<Q", tail, wide + 40)[0]) if size == 0xFFFFFFFF and wide >= 0 else size
