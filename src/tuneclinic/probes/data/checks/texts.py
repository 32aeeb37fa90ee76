"""Damage and leftovers inside texts: unfilled fields, wrong code pages, control tokens, endless repetition."""

from __future__ import annotations

import re
from itertools import islice

from tuneclinic.patterns import pattern
from tuneclinic.probes.data.checks import Check, Found
from tuneclinic.probes.data.row import Table, shown

FIELD = pattern(
    r"\{\{\s?([A-Za-z_][A-Za-z_ ]{0,30}?)\s?\}\}|<(?!IMG|IMAGE|VIDEO|AUDIO|SPEECH|FRAME)([A-Z][A-Z_]{2,24})>|(?<![\w\\$}^{])\{([a-z_]{3,24})\}(?!\})"
)
"""A field's name in double braces, in angle brackets and capitals, or in single braces."""
WHOLE = pattern(
    r"(?:<?no ?input>?|<(?:input|output|instruction)>|\{\{?(?:input|output|instruction)\}\}?|TODO\b.{0,40}|TBD|XXX+)", re.DOTALL
)
"""Messages that are nothing but a field or a note."""
CODE = pattern(
    r"```|\{%|</?(?:div|span|html|a|p|script|template|body)\b|\bdef |\bimport |\bfunction\b|=>|\$\{|;\s*\n|\\(?:text|frac|begin)\b"
)
"""Signs of code, markup or LaTeX, where braces are the author's own."""
SINGLE_SHARE = 0.5
"""Single braces are set theory, regular expressions, prose; a field that was never filled stands in every row of its source."""
FIELDS = 50
"""The most fields looked at in one message."""
FIELD_ROWS = 3
"""An unfilled field comes from a template and so recurs; one mention is prose about a template."""
CONTROL = pattern(
    r"<\|(?:im_(?:start|end|sep)|endoftext|eot_id|eom_id|start_header_id|end_header_id|begin_of_text|end_of_text|end|user|assistant|"
    r"system|observation|pad|sep|startoftext|end_of_turn|start_of_role|end_of_role|START_OF_TURN_TOKEN|END_OF_TURN_TOKEN|fim_\w+)\|>"
    r"|<｜[^｜<>\n]{1,40}｜>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|^<s>(?!.*</s>.)|</s>\s*\Z|<(?:bos|eos|pad)>"
)
"""Turn marks and special tokens of the chat templates in use (ChatML, Llama 2/3, Gemma, Phi, DeepSeek, GLM, Cohere, Granite)."""
RENDERED_SHARE = 0.9
"""From this share of rows on, a prompt column holds text that its author rendered on purpose; the marks belong there."""
LATIN_READ = pattern(r"\ufffd|â€[\x80-\x9f™œ˜“”\u009d¢¦]|Ã[\x80-\xbf¡-¿©]|Â[\xa0-\xbf]|ï»¿|å[\x80-\x9f][\x80-\xbf]|锟斤拷|烫烫烫")
"""UTF-8 read as Latin-1 or Windows-1252, replacement characters, and what two wrong decodings through GBK leave."""
LATIN_SIGNS = ("\ufffd", "â€", "Ã", "Â", "ï»", "å", "锟", "烫")
"""One of these stands in every match of the pattern; looking for them first is ten times faster on Chinese text."""
GBK_SIGNS = ("锛", "銆", "鈥", "鐨", "涓", "鍙", "鏄")
"""First characters of common Chinese punctuation and words after UTF-8 was read as GBK; each alone is a rare real character."""
GBK_COUNT = 3
PERIODS = 20
REPEATED_CHARS = 400
REPEATED_SHARE = 0.3
"""A piece repeated 20 times in a row over 400 characters and a third of the text: in 48 real sets two rows do, a laugh without end and a thousand zeros."""
WORD = pattern(r"\w")


def _found(pairs: list[tuple[int, str]]) -> tuple[list[int], str]:
    return list(dict.fromkeys(number for number, _ in pairs)), shown(pairs[0][1]) if pairs else ""


class Placeholder(Check):
    """Fields of a template that nobody filled in."""

    names = ("placeholder",)

    def find(self, table: Table) -> Found:
        """Rows with a field that recurs, or with a message that is nothing but one."""
        if table.layout == "tokenised":
            return {}
        fields: dict[str, dict[int, str]] = {}
        bare: list[tuple[int, str]] = []
        for number, role, text in table.texts:
            if len(text) <= 60 and role != "tool" and WHOLE.fullmatch(text.strip()):
                bare.append((number, text))
            elif "{" in text or "<" in text:
                for match in islice(FIELD.finditer(text), FIELDS):
                    fields.setdefault(match.group(), {}).setdefault(number, text[max(0, match.start() - 60) : match.end() + 60])
        pairs = bare + [
            pair for field, held in fields.items() if _unfilled(field, held, len(table.rows)) for pair in held.items()
        ]
        pairs.sort(key=lambda pair: pair[0])
        return {"placeholder": _found([pair for pair in pairs if not CODE.search(pair[1])])}


def _unfilled(field: str, held: dict[int, str], rows: int) -> bool:
    numbers = {number for number, text in held.items() if not CODE.search(text)}
    if field.startswith("{") and not field.startswith("{{"):
        return len(numbers) >= max(FIELD_ROWS, SINGLE_SHARE * rows)
    return len(numbers) >= FIELD_ROWS


class ControlToken(Check):
    """Special tokens of a chat template inside a message's text."""

    names = ("control-token-in-text",)

    def find(self, table: Table) -> Found:
        """Rows with a control token in a message; not asked of text that is rendered already."""
        if not table.spoken or not table.rows:
            return {}
        pairs = []
        for number, _, text in table.texts:
            if ("<" in text or "[" in text) and (match := CONTROL.search(text)):
                pairs.append((number, text[max(0, match.start() - 60) : match.end() + 60]))
        numbers, example = _found(pairs)
        if len(numbers) >= RENDERED_SHARE * len(table.rows) and table.layout not in ("messages", "sharegpt"):
            return {}
        return {"control-token-in-text": (numbers, example)}


class Mojibake(Check):
    """Text that was decoded with the wrong code page."""

    names = ("mojibake",)

    def find(self, table: Table) -> Found:
        """Rows in which any text shows the traces of it."""
        if table.layout == "tokenised":
            return {}
        pairs = []
        for number, _, text in table.texts:
            if text.isascii():
                continue
            match = LATIN_READ.search(text) if any(sign in text for sign in LATIN_SIGNS) else None
            if match is None and _gbk_read(text):
                match = re.search("[" + "".join(GBK_SIGNS) + "]", text)
            if match:
                pairs.append((number, text[max(0, match.start() - 40) : match.end() + 60]))
        return {"mojibake": _found(pairs)}


def _gbk_read(text: str) -> bool:
    """Whether the text has the signs and turns into sound UTF-8 when it is put back through GBK."""
    if sum(text.count(sign) for sign in GBK_SIGNS if sign in text) < GBK_COUNT:
        return False
    back = text[:2000].encode("gb18030", "ignore").decode("utf-8", "replace")
    return back.count("\ufffd") <= len(back) // 5


class AbsurdRepeat(Check):
    """A text that says one thing over and over."""

    names = ("absurd-repeat",)

    def find(self, table: Table) -> Found:
        """Rows in which a message is mostly one piece repeated."""
        if table.layout == "tokenised":
            return {}
        pairs = [(number, piece) for number, _, text in table.texts if (piece := repeated(text))]
        return {"absurd-repeat": _found(pairs)}


def repeated(text: str) -> str:
    """A stretch of `text` that repeats one piece at least 20 times, "" where there is none."""
    size = len(text)
    if size < REPEATED_CHARS:
        return ""
    for at in (size // 2, size * 4 // 5):
        probe = text[at : at + 8]
        period = text.find(probe, at + 1) - at
        if 0 < period <= size // PERIODS and text.count(probe) >= PERIODS:
            unit = text[at : at + period]
            stretch = unit * max(PERIODS, int(max(REPEATED_CHARS, REPEATED_SHARE * size)) // period)
            if WORD.search(unit) and stretch in text:
                return stretch[:80]
    return ""
