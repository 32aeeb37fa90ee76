"""`tokenizer.json` and `tokenizer.model`: the few facts of a large vocabulary file that matter, read without loading it."""

from __future__ import annotations

import json
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._settings import stand_in
from tuneclinic.probes.readers.tokenizer_config import added, reading
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Tokenizer
from tuneclinic.words import Text

BYTES = 64 << 20
"""The most of the file that is read; the largest public ones (Gemma, 262,144 tokens) have 34 MB."""
PART = 4 << 20
"""Bytes of the list of added tokens, or of the post-processor, that are parsed: 10,000 tokens."""
PIECES = 2_000_000
"""How many pieces of a SentencePiece file are counted."""
CONTROL_PIECES = 1000
"""How many pieces are looked into: control pieces stand before the ordinary ones."""
_LAST_ID = pattern(rb":\s*(\d{1,9})\s*\}")
NOTHING = Text("Neither added tokens nor a vocabulary was found in this file.", "这个文件里没有找到 added tokens，也没有词表。")


class TokenizerJson(Reader):
    """`tokenizer.json` of the tokenizers library, and SentencePiece's `tokenizer.model`."""

    kind = "tokenizer"
    precedence = 45

    def claims(self, file: SourceFile) -> float:
        """By name; SentencePiece files by their first piece too."""
        if file.base.endswith("tokenizer.json"):
            return 0.0 if file.binary else 0.9
        if file.base.endswith(("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", ".spm")):
            return 0.9 if file.head[:1] == b"\n" or stand_in(file.head_text[:500]) else 0.3
        return 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """Added tokens with ids, vocabulary size, and whether a BOS is put in front."""
        try:
            content = file.read_bytes(BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=type(error).__name__)]
        pointer = stand_in(content[:1000].decode(errors="replace"))
        if pointer:
            return [Reading(note=pointer)]
        if file.base.endswith(".json"):
            return [_tokenizer_json(content, file.name)]
        return [_sentencepiece(content, file.name)]


def _tokenizer_json(content: bytes, file: str) -> Reading:
    ids, plain = added(_part(content, b'"added_tokens"'))
    processor = _part(content, b'"post_processor"')
    size = _vocabulary(content)
    vocabulary = max([size, *(number + 1 for number in ids.values())]) if size else None
    adds = _adds_bos(processor) if b'"post_processor"' in content[:PART] else None
    tokenizer = Tokenizer(ids=ids, vocabulary=vocabulary, adds_bos=adds, not_special=plain, sources=(file,))
    return reading(tokenizer, {"added tokens": len(ids), "vocabulary": vocabulary or 0}, "" if ids or vocabulary else NOTHING)


def _part(content: bytes, key: bytes) -> Any:
    """The value of a top-level key that stands before the vocabulary; None where it is absent or damaged."""
    at = content.find(key, 0, PART)
    if at < 0:
        return None
    text = content[at + len(key) : at + PART].decode(errors="replace").lstrip(" \r\n\t:")
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _vocabulary(content: bytes) -> int | None:
    """One more than the last id of a BPE or WordPiece vocabulary, which is written in order of ids."""
    start = content.find(b'"vocab"')
    if start < 0 or content[start : start + 40].split(b":", 1)[-1].lstrip()[:1] != b"{":
        return None
    end = content.find(b'"merges"', start)
    tail = content[max(start, end - 400) : end + 1] if end > 0 else content[max(start, len(content) - 400) :]
    found = list(_LAST_ID.finditer(tail))
    return int(found[-1][1]) + 1 if found else None


def _adds_bos(processor: Any) -> bool:
    """Whether the template of a single text begins with a special token."""
    stack = [processor]
    for _ in range(50):
        if not stack:
            break
        item = stack.pop()
        if not isinstance(item, dict):
            continue
        single = item.get("single")
        if item.get("type") == "TemplateProcessing" and isinstance(single, list) and single:
            return isinstance(single[0], dict) and "SpecialToken" in single[0]
        if item.get("type") in {"BertProcessing", "RobertaProcessing"}:
            return True
        inner = item.get("processors")
        stack.extend(inner[:20] if isinstance(inner, list) else [])
    return False


def _sentencepiece(content: bytes, file: str) -> Reading:
    """SentencePiece's protocol buffer: pieces in order of ids, of kind 2 (unknown) or 3 (control)."""
    ids: dict[str, int] = {}
    unknown = None
    at = count = 0
    while count < PIECES and content[at : at + 1] == b"\n":
        size = content[at + 1] if at + 1 < len(content) else 0
        start = at + 2
        if size >= 0x80:
            size, start = _varint(content, at + 1)
        if start + size > len(content):
            break
        if count < CONTROL_PIECES:
            text, kind = _piece(content[start : start + size])
            if kind in {2, 3}:
                ids[text] = count
                unknown = text if kind == 2 else unknown
        at = start + size
        count += 1
    tokenizer = Tokenizer(
        bos="<s>" if "<s>" in ids else None,
        eos="</s>" if "</s>" in ids else None,
        unk=unknown,
        ids=ids,
        vocabulary=count or None,
        sources=(file,),
    )
    return reading(tokenizer, {"vocabulary": count, "special tokens": len(ids)}, "" if count else NOTHING)


def _piece(body: bytes) -> tuple[str, int]:
    """Text and kind of one piece: field 1 is the text, 2 the score (a float), 3 the kind (1, an ordinary one, if absent)."""
    length, start = _varint(body, 1)
    tail = body[start + length :]
    tail = tail[5:] if tail[:1] == b"\x15" else tail
    kind = tail[1] if tail[:1] == b"\x18" and len(tail) > 1 else 1
    return body[start : start + length].decode(errors="replace"), kind


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 35:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            break
    return value, at
