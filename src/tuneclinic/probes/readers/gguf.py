"""GGUF headers: the chat template, token ids, context and quantisation that llama.cpp and Ollama will use."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from tuneclinic.evidence import Evidence
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Serving
from tuneclinic.words import Text, Words

MAGIC = b"GGUF"
HEADER_BYTES = 32 << 20
"""How much of the file is read for its key-value header: the largest vocabularies (256k tokens with merges) take 15 MB."""
KEYS_KEPT = 4096
TEXT_KEPT = 1 << 20
ENTRIES_READ = 2 << 20
"""Entries of all arrays together: vocabulary and merges, and no vocabulary has a million tokens."""
STRING, ARRAY = 8, 9
TOKENS = "tokenizer.ggml.tokens"
SCALARS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""Value types of the GGUF specification."""
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S",
    15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
"""`general.file_type` of the GGUF specification."""
ENDS = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "<end_of_utterance>", "<|end_of_text|>",
        "<｜end▁of▁sentence｜>",
    }
)  # fmt: skip
"""Tokens that llama.cpp takes for an end of generation by their text, whatever the header's eos id is."""
END_SIZES = frozenset(len(token.encode()) for token in ENDS)


class GgufReader(Reader):
    """Reads the key-value header; tensors are not read."""

    kind = "gguf"

    def claims(self, file: SourceFile) -> float:
        """By the first four bytes, or the name."""
        return 1.0 if file.head.startswith(MAGIC) or file.base.endswith(".gguf") else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """What this file makes a server do."""
        try:
            content = file.read_bytes(HEADER_BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=str(error)[:200])]
        values, note = _values(content)
        if not values:
            return [Reading(note=note)]
        return [Reading(Evidence(serving=_serving(values, file.name)), {"header entries": len(values)}, note=note)]


class _Strings:
    """An array of strings by where they begin: a vocabulary has 150,000, of which a handful is looked at."""

    def __init__(self, content: bytes, starts: list[int], near: list[int]) -> None:
        self.content = content
        self.starts = starts
        self.near = [index for index in near if self[index] in ENDS]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> str:
        at = self.starts[index]
        length = int.from_bytes(self.content[at : at + 8], "little")
        return self.content[at + 8 : at + 8 + length].decode("utf-8", errors="replace")


class _Cursor:
    """Reads values one after another; `IndexError` and `struct.error` at the end of what was read."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 4
        self.left = ENTRIES_READ
        if self.scalar("<I") < 2:
            raise KeyError("version 1 counts in 32 bits and has not been written since 2023")

    def scalar(self, form: str) -> Any:
        value = struct.unpack_from(form, self.content, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self) -> str:
        length = int(self.scalar("<Q"))
        if self.at + length > len(self.content):
            raise IndexError
        raw = self.content[self.at : self.at + min(length, TEXT_KEPT)]
        self.at += length
        return raw.decode("utf-8", errors="replace")

    def value(self, kind: int, key: str) -> Any:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.scalar(SCALARS[kind])
        inner, length = int(self.scalar("<I")), int(self.scalar("<Q"))
        if inner in SCALARS:  # scores and token types: passed over
            self.at += length * struct.calcsize(SCALARS[inner])
            return None
        self.left -= length
        if inner != STRING or self.left < 0:
            raise IndexError
        return self.strings(length, kept=key == TOKENS)

    def strings(self, length: int, *, kept: bool) -> _Strings | None:
        """Passes over an array of strings; where they are `kept`, notes where each begins and which are as long as an end token."""
        content, at, unpack = self.content, self.at, struct.Struct("<Q").unpack_from
        starts: list[int] = []
        near: list[int] = []
        if kept:
            for index in range(length):
                size = unpack(content, at)[0]
                starts.append(at)
                if size in END_SIZES:
                    near.append(index)
                at += size + 8
        else:
            for _ in range(length):
                at += unpack(content, at)[0] + 8
        if at > len(content):
            raise IndexError
        self.at = at
        return _Strings(content, starts, near) if kept else None


def _values(content: bytes) -> tuple[dict[str, Any], Words]:
    values: dict[str, Any] = {}
    if not content.startswith(MAGIC):
        return values, Text("the file does not begin with GGUF", "文件不是以 GGUF 开头")
    try:
        cursor = _Cursor(content)
        cursor.scalar("<Q")
        for _ in range(min(int(cursor.scalar("<Q")), KEYS_KEPT)):
            key = cursor.text()[:200]
            values[key] = cursor.value(int(cursor.scalar("<I")), key)
    except (IndexError, KeyError, struct.error, MemoryError, OverflowError):
        return values, Text("the header is cut off or damaged", "文件头不完整或已损坏")
    return values, "" if values else Text("the header has no entries", "文件头里没有任何条目")


def _serving(values: Mapping[str, Any], name: str) -> Serving:
    architecture = values.get("general.architecture")
    listed = values.get(TOKENS)
    tokens = listed if isinstance(listed, _Strings) else None
    named = [_whole(values.get(f"tokenizer.ggml.{kind}_token_id")) for kind in ("eos", "eot", "eom")]
    ids = [number for number in named if number is not None] + (tokens.near if tokens else [])
    stop_ids = list(dict.fromkeys(ids))
    return Serving(
        engine="gguf",
        model=_text(values.get("general.name")),
        template=_text(values.get("tokenizer.chat_template")),
        stops=tuple(tokens[number] for number in stop_ids if tokens and number < len(tokens)),
        stop_ids=tuple(stop_ids),
        eos_id=_whole(values.get("tokenizer.ggml.eos_token_id")),
        bos_id=_whole(values.get("tokenizer.ggml.bos_token_id")),
        adds_bos=value if isinstance(value := values.get("tokenizer.ggml.add_bos_token"), bool) else None,
        context=_whole(values.get(f"{architecture}.context_length")),
        quantization=_type(values.get("general.file_type")),
        places={key: f"{name}: {field}" for key, field in PLACES.items() if field in values},
        sources=(name,),
    )


PLACES = {
    "template": "tokenizer.chat_template",
    "eos_id": "tokenizer.ggml.eos_token_id",
    "bos_id": "tokenizer.ggml.bos_token_id",
    "adds_bos": "tokenizer.ggml.add_bos_token",
    "quantization": "general.file_type",
}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _type(value: Any) -> str | None:
    return FILE_TYPES.get(value, f"file type {value}") if _whole(value) is not None else None
