"""Chat transcripts as plain text: `User: …` and `Assistant: …`."""

from __future__ import annotations

from collections import Counter

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._rows import bounded_lines, damaged, joined, nothing
from tuneclinic.probes.reading import Reading, SourceFile
from tuneclinic.sections import Output, Outputs
from tuneclinic.words import Text

_TURN = pattern(r"\s{0,8}[#>*\-\[]{0,4}\s?([a-z]{2,11}|[\u4e00-\u9fff]{1,2})\s?[*\]]{0,2}\s?[:：]\*{0,2}\s?")
_SIDES = {
    **dict.fromkeys(("user", "human", "me", "prompt", "question", "instruction", "用户", "提问", "问题", "问"), "user"),
    **dict.fromkeys(("assistant", "model", "bot", "ai", "response", "gpt", "output", "助手", "模型", "回答", "答"), "model"),
    **dict.fromkeys(("system", "系统"), "other"),
}
_LOG = ("'loss':", '"loss":', "Traceback", "it/s]", "s/it]", "[INFO", "INFO:", "WARNING:")
"""What stands in logs of training and in no chat."""
_ENDINGS = (".txt", ".md", ".log", ".out", ".chat", ".transcript")


def _turn(line: str) -> tuple[str, int]:
    """Whose turn a line opens ("user", "model" or "other", "" for none) and where its text begins."""
    found = _TURN.match(line[:80].lower())
    side = _SIDES.get(found.group(1), "") if found else ""
    return (side, found.end()) if found and side else ("", 0)


def looks_like_transcript(file: SourceFile) -> bool:
    """Whether the text opens with a turn, has both sides, and nothing of a training log."""
    if "." in file.base and not file.base.endswith(_ENDINGS):
        return False
    head = file.head_text
    lines = [line for line in head.splitlines()[:400] if line.strip()]
    opens = any(_turn(line)[0] for line in lines[:2])  # the first may be a title
    if not opens or any(sign in head[:20_000] for sign in _LOG):
        return False
    return {"user", "model"} <= {_turn(line)[0] for line in lines}


def read_transcript(file: SourceFile, most: int, characters: int) -> list[Reading]:
    """Each answer of the model with the user's turn before it; places are lines."""
    damage: list[str] = []
    skipped: Counter[str] = Counter()
    items: list[Output] = []
    side, began, prompt = "", 0, ""
    words: list[str] = []
    held = 0

    def close() -> str:
        text = "\n".join(words).strip("\n")[:characters]
        if side == "model" and len(items) < most:
            items.append(Output(prompt, text, f"{file.name}:{began}", file.name))
        elif side == "model":
            skipped["outputs beyond the limit"] += 1
        return text if side == "user" else prompt

    for line, text in bounded_lines(file, damage):
        turn, start = _turn(text)
        if turn:
            prompt = close()
            side, began, held = turn, line, 0
            words = [text[start:][:characters]]
        elif not side:
            skipped["lines outside of turns"] += 1
        elif held < characters:
            words.append(text[:characters])
        held += len(text)
    close()
    note = damaged(damage)
    if not items:
        return nothing(joined(note, Text("no turn of the model was found", "没有找到模型的回答")), skipped)
    return [Reading(Evidence(outputs=Outputs(tuple(items))), {"outputs": len(items)}, skipped, joined(note))]
