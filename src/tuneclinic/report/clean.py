"""Making text that was read from a run safe to show: it is untrusted."""

from __future__ import annotations

import re

from tuneclinic.patterns import pattern

LONGEST = 600
"""Characters of one quotation: an error message of a trainer fits, a dumped tensor does not."""

# C0 and C1 controls (terminal escapes among them), bidirectional overrides, zero-width and line separators
_UNSAFE = pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\uffff\ud800-\udfff]")
_LAYOUT = pattern(r"[\t\n\r\x0b\x0c]")
_ESCAPE = pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)


def clean(text: str, longest: int = LONGEST) -> str:
    """`text` on one line without escapes and control characters, cut in the middle where it is longer than `longest`."""
    if len(text) > longest * 8:
        text = text[: longest * 4] + text[-longest * 4 :]
    text = _UNSAFE.sub("·", _LAYOUT.sub(" ", _ESCAPE.sub("", text)))
    if len(text) <= longest:
        return text.strip()
    return f"{text[: longest * 2 // 3]} … {text[-longest // 3 :]}".strip()
