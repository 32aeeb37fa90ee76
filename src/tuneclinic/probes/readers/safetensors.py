"""Safetensors files: the header, and the values streamed in bounded memory."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._checkpoints import step_of
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import WeightFile, Weights
from tuneclinic.values import dataclass
from tuneclinic.words import Text, Words

HEADER_BYTES = 100_000_000
"""The format's own limit for a header."""
VALUES_BYTES = 2 << 30
"""Up to this size every value is read: all adapters and models of 1B parameters in 16 bit, in about two seconds."""
SAMPLE_BYTES = 256 << 20
"""Of larger files the beginning of each tensor is looked at, so much in all: a model that has gone to NaN has NaN everywhere."""
CHUNK = 1 << 20
NAMES_KEPT = 4096
BAD_KEPT = 1024
LORA_B = pattern(r"(?:^|\.)lora_(?:B|up|embedding_B)(?:\.|$)")
ENDS = pattern(r"lm_head|embed_tokens|embed_out|\bwte\b|word_embeddings")
"""The two ends of the model: whether both are in the file tells a tied head from a lost one."""

FLOATS: Mapping[str, tuple[str, int, int]] = {
    "F64": ("<u8", 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000),
    "F32": ("<u4", 0x7FFFFFFF, 0x7F800000),
    "F16": ("<u2", 0x7FFF, 0x7C00),
    "BF16": ("<u2", 0x7FFF, 0x7F80),
    "F8_E5M2": ("<u1", 0x7F, 0x7C),
    "F8_E4M3": ("<u1", 0x7F, 0x7F),
}
"""Integer type, mask without the sign, and the smallest masked integer that is infinite or NaN (IEEE 754; OCP FP8 for 8 bit)."""
BYTES: Mapping[str, int] = {
    **{name: int(kind[2:]) for name, (kind, _, _) in FLOATS.items()},
    **dict.fromkeys(("I64", "U64", "C64"), 8),
    **dict.fromkeys(("I32", "U32"), 4),
    **dict.fromkeys(("I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E8M0"), 1),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of the header; offsets count from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsReader(Reader):
    """Reads headers and values of `*.safetensors` and the map of `*.safetensors.index.json`."""

    kind = "safetensors"

    def claims(self, file: SourceFile) -> float:
        """By name; by the shape of the first bytes where the name says nothing."""
        if file.base.endswith((".safetensors", ".safetensors.index.json")):
            return 1.0
        length = int.from_bytes(file.head[:8], "little")
        return 0.9 if 2 <= length <= HEADER_BYTES and file.head[8:10] == b'{"' else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """One checkpoint file; a damaged one keeps its name and size, and the note says what is wrong."""
        bare = WeightFile(file.name, file.size, step=step_of(file.name))
        try:
            if file.base.endswith(".index.json"):
                return [_index(file, bare)]
            with file.path.open("rb") as stream:
                return [_read(stream, file, bare)]
        except (OSError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            return [_damaged(bare, f"{type(error).__name__}: {str(error)[:120]}")]


def _damaged(bare: WeightFile, reason: str) -> Reading:
    note = Text(f"the header could not be read ({reason})", f"文件头读不出来（{reason}）")
    return Reading(Evidence(weights=Weights((_with(bare, unread=reason),))), note=note)


def _with(file: WeightFile, **changes: Any) -> WeightFile:
    from dataclasses import replace  # noqa: PLC0415 - used once a file

    return replace(file, **changes)


def _read(stream: BinaryIO, file: SourceFile, bare: WeightFile) -> Reading:
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= min(HEADER_BYTES, max(0, file.size - 8)):
        return _damaged(bare, f"it claims {length} bytes of a file of {file.size}")
    header = json.loads(stream.read(length).decode("utf-8", errors="replace"))
    if not isinstance(header, dict):
        return _damaged(bare, "it is no JSON object")
    tensors, skipped = _tensors(header, 8 + length, file.size)
    found = _scan(stream, tensors) if tensors else _Found(complete=True)
    held = _with(
        bare,
        tensors=len(tensors) + sum(skipped.values()),
        names=_names(tensors),
        dtypes=dict(Counter(tensor.dtype for tensor in tensors)),
        nonfinite=tuple(found.nonfinite[:BAD_KEPT]),
        empty=tuple(tensor.name for tensor in tensors if 0 in tensor.shape)[:BAD_KEPT],
        lora_b=sum(LORA_B.search(tensor.name) is not None for tensor in tensors),
        zero_lora_b=found.zero_lora_b,
        values_read=found.complete and not skipped,
        metadata=_metadata(header.get("__metadata__")),
    )
    return Reading(
        Evidence(weights=Weights((held,))), {"tensors": len(tensors)} if tensors else {}, skipped, _note(found, skipped, tensors)
    )


def _note(found: _Found, skipped: Mapping[str, int], tensors: list[Tensor]) -> Words:
    if skipped.get("tensors beyond the end of the file"):
        return Text("the file is cut off: data of some tensors are missing", "文件不完整：部分张量的数据缺失")
    if not tensors:
        return Text("the header lists no tensor", "文件头里没有任何张量")
    if not found.complete:
        return Text(
            f"only the beginning of each tensor was looked at (the file is larger than {VALUES_BYTES >> 30} GiB)",
            f"文件超过 {VALUES_BYTES >> 30} GiB，每个张量只抽查了开头",
        )
    return ""


def _tensors(header: Mapping[str, Any], start: int, size: int) -> tuple[list[Tensor], dict[str, int]]:
    tensors: list[Tensor] = []
    skipped: Counter[str] = Counter()
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor = _tensor(name, entry, start)
        if tensor is None:
            skipped["malformed header entries"] += 1
        elif tensor.end > size:
            skipped["tensors beyond the end of the file"] += 1
        else:
            tensors.append(tensor)
    tensors.sort(key=lambda tensor: tensor.begin)
    return tensors, dict(skipped)


def _tensor(name: str, entry: Any, start: int) -> Tensor | None:
    if not isinstance(entry, dict):
        return None
    dtype, shape, offsets = entry.get("dtype"), _counts(entry.get("shape")), _counts(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        return None
    begin, end = offsets
    width = BYTES.get(dtype)
    if begin > end or len(shape) > 32 or (width is not None and math.prod(shape) * width != end - begin):
        return None
    return Tensor(name[:500], dtype[:20], tuple(shape), start + begin, start + end)


def _counts(value: Any) -> list[int] | None:
    """A list of whole numbers that fit 62 bits; None for anything else."""
    fits = isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 62 for item in value
    )
    return value if fits else None


def _names(tensors: list[Tensor]) -> tuple[str, ...]:
    kept = [tensor.name for tensor in tensors[:NAMES_KEPT]]
    ends = [tensor.name for tensor in tensors[NAMES_KEPT:] if ENDS.search(tensor.name)]
    return tuple(kept + ends[:16])


def _metadata(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(key)[:100]: str(item)[:500] for key, item in list(value.items())[:64]}


@dataclass(slots=True)
class _Found:
    complete: bool
    nonfinite: list[str]
    zero_lora_b: int

    def __init__(self, *, complete: bool) -> None:
        self.complete, self.nonfinite, self.zero_lora_b = complete, [], 0


def _scan(stream: BinaryIO, tensors: list[Tensor]) -> _Found:
    """Values of all tensors, or of the beginning of each where the file is over budget."""
    total = sum(tensor.end - tensor.begin for tensor in tensors)
    found = _Found(complete=total <= VALUES_BYTES)
    share = total if found.complete else max(4096, SAMPLE_BYTES // len(tensors))
    buffer = np.empty(CHUNK, dtype=np.uint8)
    budget = total if found.complete else SAMPLE_BYTES
    for tensor in tensors:
        length = min(tensor.end - tensor.begin, share, budget)
        whole = length == tensor.end - tensor.begin
        is_b = LORA_B.search(tensor.name) is not None
        if length == 0 or (tensor.dtype not in FLOATS and not is_b):
            continue
        budget -= length
        largest, bad = _largest(stream, tensor, length, buffer)
        if bad:
            found.nonfinite.append(tensor.name)
        elif whole and is_b and largest == 0:
            found.zero_lora_b += 1
    return found


def _largest(stream: BinaryIO, tensor: Tensor, length: int, buffer: np.ndarray[Any, np.dtype[np.uint8]]) -> tuple[int, bool]:
    """The largest value without its sign as an integer, and whether it is infinite or NaN.

    Floating-point numbers order as their bit patterns do (IEEE 754), so no value is converted and no signal raised.
    """
    kind, mask, limit = FLOATS.get(tensor.dtype, ("<u1", 0xFF, 0x100))
    width = int(kind[2:])
    masked = np.empty(CHUNK // width, dtype=kind)
    stream.seek(tensor.begin)
    largest, left = 0, length - length % width
    view = buffer.data
    while left > 0:
        got = stream.readinto(view[: min(CHUNK, left)])  # type: ignore[attr-defined]
        if not got:
            break
        count = got // width
        values = buffer[: count * width].view(kind)
        np.bitwise_and(values, np.array(mask, dtype=kind), out=masked[:count])
        largest = max(largest, int(masked[:count].max(initial=0)))
        if largest >= limit:
            return largest, True
        left -= got
    return largest, False


def _index(file: SourceFile, bare: WeightFile) -> Reading:
    index = json.loads(file.text())
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not names:
        return Reading(note=Text("there is no weight_map in it", "里面没有 weight_map"))
    shards = sorted({str(shard) for shard in names.values()})
    beside = [shard for shard in shards if "/" not in shard and "\\" not in shard and len(shard) < 255]
    missing = [shard for shard in beside if not (file.path.parent / shard).is_file()]
    held = _with(
        bare,
        form="safetensors-index",
        tensors=len(names),
        names=tuple(str(name)[:500] for name in list(names)[:NAMES_KEPT])
        + tuple(name[:500] for name in list(names)[NAMES_KEPT:] if ENDS.search(name))[:16],
        metadata={"shards": str(len(shards)), "missing": ", ".join(missing)[:500], **_metadata(index.get("metadata"))},
    )
    note: Words = ""
    if missing:
        note = Text(
            f"{len(missing)} of {len(shards)} shards are not beside it: {missing[0]}",
            f"{len(shards)} 个分片里有 {len(missing)} 个不在旁边：{missing[0]}",
        )
    return Reading(Evidence(weights=Weights((held,))), {"tensor names": len(names)}, note=note)
