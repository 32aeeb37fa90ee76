"""The small files of a tokenizer: `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._json_file import load, place
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Tokenizer
from tuneclinic.words import Text, Words

BYTES = 16 << 20
"""The most of the file that is read; with a thousand reserved tokens a real one has 60 to 200 kB."""
TEMPLATE = 1 << 18
"""Characters of a chat template that are kept; the longest public ones have 14,000."""
IDS = 5000
"""How many added tokens are kept with their ids."""
MARKER = pattern(r"<\|[^|<>\s]{1,40}\|>|</?[A-Za-z_]\w{0,30}>|\[/?[A-Z_]{2,30}\]|<start_of_turn>|<end_of_turn>")
"""What looks like a control token of a template."""
NAMES = ("bos", "eos", "pad", "unk")
NOTHING = Text("No special token and no chat template is set in this file.", "这个文件里既没有特殊 token，也没有 chat template。")


class TokenizerConfig(Reader):
    """`tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`."""

    kind = "tokenizer configuration"
    precedence = 30

    def claims(self, file: SourceFile) -> float:
        """By name, or by the key that only a tokenizer's configuration has."""
        if not file.base.endswith(".json") or file.binary:
            return 0.0
        if file.base.endswith(("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")):
            return 0.9
        return 0.6 if b'"tokenizer_class"' in file.head and b'"model_max_length"' in file.head else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """Special tokens, their ids, the chat template, and what is added on its own."""
        config, text, problem = load(file, BYTES)
        if problem:
            return [Reading(note=problem)]
        if file.base.endswith("added_tokens.json"):
            return [_added_only(config, file.name)]
        tokens = {name: token(config.get(f"{name}_token")) for name in NAMES}
        ids, plain = added(config.get("added_tokens_decoder"))
        template, named = template_of(config.get("chat_template"))
        length = config.get("model_max_length")
        adds = config.get("add_bos_token")
        places = {key: place(text, key, file.name) for key in _PLACED if f'"{key}"' in text}
        tokenizer = Tokenizer(
            bos=tokens["bos"],
            eos=tokens["eos"],
            pad=tokens["pad"],
            unk=tokens["unk"],
            ids=ids,
            template=template,
            templates=named,
            model_max_length=float(length) if isinstance(length, (int, float)) and not isinstance(length, bool) else None,
            padding_side=config.get("padding_side") if config.get("padding_side") in {"left", "right"} else None,
            adds_bos=adds if isinstance(adds, bool) else None,
            not_special=plain,
            places={_PLACED[key]: where for key, where in places.items()},
            sources=(file.name,),
        )
        counts = {
            "special tokens": sum(value is not None for value in tokens.values()),
            "added tokens": len(ids),
            "chat templates": max(len(named), int(template is not None)),
            "tokenizer settings": sum(
                value is not None for value in (tokenizer.model_max_length, tokenizer.padding_side, tokenizer.adds_bos)
            ),
        }
        return [reading(tokenizer, counts)]


_PLACED = {
    "bos_token": "bos",
    "eos_token": "eos",
    "pad_token": "pad",
    "unk_token": "unk",
    "chat_template": "template",
    "model_max_length": "model_max_length",
    "padding_side": "padding_side",
    "add_bos_token": "adds_bos",
}


def reading(tokenizer: Tokenizer, counts: Mapping[str, int], note: Words = "") -> Reading:
    """A reading of a tokenizer, or one that says there was nothing in the file."""
    understood = {name: count for name, count in counts.items() if count}
    if not understood:
        return Reading(note=note or NOTHING)
    return Reading(Evidence(tokenizer=tokenizer), understood, note=note)


def token(value: Any) -> str | None:
    """The text of a special token, which may be written as a string or as an object with `content`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value[:200] if isinstance(value, str) and value else None


def added(decoder: Any) -> tuple[dict[str, int], tuple[str, ...]]:
    """Ids by text of `added_tokens_decoder` (or of a tokenizer.json's list), and markers in it that are not special."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(decoder, Mapping):
        pairs = list(decoder.items())
    elif isinstance(decoder, list):
        pairs = [(entry.get("id"), entry) for entry in decoder if isinstance(entry, Mapping)]
    ids: dict[str, int] = {}
    plain: list[str] = []
    for number, entry in pairs[:IDS]:
        text = token(entry)
        identity = (
            number if isinstance(number, int) else int(number) if str(number).isascii() and str(number)[:12].isdigit() else None
        )
        if text is None or identity is None or identity >= 1 << 31:
            continue
        ids[text] = identity
        if isinstance(entry, Mapping) and entry.get("special") is False and MARKER.fullmatch(text):
            plain.append(text)
    return ids, tuple(plain)


def template_of(value: Any) -> tuple[str | None, tuple[str, ...]]:
    """The chat template of a value that may be a string, a list of named ones or absent; and the names of a list."""
    if isinstance(value, str) and value.strip():
        return value[:TEMPLATE], ()
    entries: list[tuple[str, str]] = []
    if isinstance(value, list):
        entries = [
            (str(entry.get("name", ""))[:80], entry["template"])
            for entry in value[:50]
            if isinstance(entry, Mapping) and isinstance(entry.get("template"), str)
        ]
    elif isinstance(value, Mapping):
        entries = [(str(name)[:80], text) for name, text in list(value.items())[:50] if isinstance(text, str)]
    if not entries:
        return None, ()
    chosen = next((text for name, text in entries if name == "default"), entries[0][1])
    return chosen[:TEMPLATE], tuple(name for name, _ in entries)


def _added_only(config: Mapping[str, Any], file: str) -> Reading:
    ids = {
        text[:200]: number
        for text, number in list(config.items())[:IDS]
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 31
    }
    return reading(Tokenizer(ids=ids, sources=(file,)), {"added tokens": len(ids)})
