"""What generated texts show: loops, control tokens, missing ends, refusal to look at a picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Output
from tuneclinic.words import Text, Words

MOST = 400
"""Answers looked at: enough for shares within five percentage points, and read within a tenth of a second."""

LONGEST = 20_000
"""Characters of an answer in which marks are searched: five times the usual limit of 1,024 tokens."""

TAIL = 2000
"""Characters at the end of an answer in which a loop is looked for; a loop does not stop once begun."""

LONGEST_UNIT = 300
"""Longest repeated unit in characters: two long sentences."""

LOOP_REPEATS = 4
"""Times a unit must follow itself. Refrains and counted lists repeat a line up to three times."""

LOOP_CHARACTERS = {False: 80, True: 32}
"""Characters a loop must cover, by whether it is Chinese: two lines of text in either script."""

REPEATED_4_GRAMS = 0.5
"""Share of word 4-grams that repeat an earlier one (seq-rep-4 of Welleck et al. 2019): human text below 0.02, greedy decoding of a
plain language model 0.44 on average. More than half is a text that mostly repeats itself."""

ENOUGH_WORDS = 60
"""Words, or Chinese characters, below which a repetition rate says little."""

CONTROL = (
    r"(?m)<\|(?:im_start|im_end|im_sep|endoftext|eot_id|eom_id|begin_of_text|end_of_text|start_header_id|end_header_id|system|user|assistant"
    r"|end|observation|turn|tool_response|vision_start|vision_end|image_pad)\|>"
    r"|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|</?s>(?![a-z])|<｜[^｜\n]{1,40}｜>|<\|(?:start_of_role|end_of_role|START_OF_TURN_TOKEN"
    r"|END_OF_TURN_TOKEN|CHATBOT_TOKEN|USER_TOKEN)\|>|^### ?(?:Instruction|Response|Input|Human|Assistant):|\{%-? |\{\{ ?(?:content|message)"
)
"""Control tokens and headers of the usual chat templates: ChatML, Llama 2 and 3, Mistral, Gemma, DeepSeek, Granite, Cohere, GLM, Alpaca."""

NEXT_TURN = (
    r"(?m)<\|im_start\|> ?user|<\|user\|>|\[INST\]|<start_of_turn>user|<\|start_header_id\|> ?user|<｜User｜>"
    r"|^(?:### ?(?:Instruction|Human|User|Input):|(?:Human|User|USER|用户|问)[:：])"
)
"""The beginning of the user's next turn, which a model writes only if it has run past its own end."""

CUT = frozenset({"length", "max_tokens", "max_length", "max_new_tokens"})
"""Finish reasons of the usual servers for an answer that was cut at the limit."""

STOPPED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "eos_token_id"})
"""Finish reasons for an answer that ended by itself."""

_CHINESE = r"[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]"
_WORD = r"[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W_]+"
_LETTER = r"[^\W\d_]"


def items(seen: Evidence) -> tuple[Output, ...]:
    """The generated outputs that were read, the first `MOST` of them."""
    return seen.outputs.items[:MOST] if seen.outputs is not None else ()


def quoted(output: Output, text: Words = "", show: str = "") -> Exhibit:
    """An answer as an exhibit: `text`, or the part `show` of it."""
    if text:
        return Exhibit(text, output.where, output.source, section="outputs", private=False)
    return Exhibit(short(show or output.text), output.where, output.source, section="outputs", private=True)


def short(text: str, length: int = 80) -> str:
    """One line of at most `length` characters."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def loop(text: str) -> tuple[str, int] | None:
    """The unit that an answer repeats to its end, and how often; None where it does not."""
    tail = text.rstrip()[-TAIL:]
    for length in range(1, min(LONGEST_UNIT, len(tail) // LOOP_REPEATS) + 1):
        unit = tail[-length:]
        if tail[-2 * length : -length] != unit or not re.search(_LETTER, unit):
            continue
        count = 1
        while tail[-(count + 1) * length : -count * length or None] == unit:
            count += 1
        if count >= LOOP_REPEATS and count * length >= LOOP_CHARACTERS[bool(re.search(_CHINESE, unit))]:
            return unit.strip() or unit, count
    return None


def repeated_share(text: str) -> float | None:
    """Share of word 4-grams that occurred before in the same text (Chinese by character); None for a short text."""
    words = re.findall(_WORD, text[:LONGEST])
    if len(words) < ENOUGH_WORDS:
        return None
    grams = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    return 1 - len(set(grams)) / len(grams)


def repeats(text: str) -> bool:
    """Whether a text mostly repeats itself."""
    if loop(text) is not None:
        return True
    share = repeated_share(text)
    return share is not None and share > REPEATED_4_GRAMS


def residue(output: Output) -> str | None:
    """The first control token in an answer that neither the reference nor a question about it explains.

    An end token as the very last thing, once or again and again, is left out: it is what decoding without skip_special_tokens
    prints of an answer and of a batch's padding.
    """
    text = output.text[:LONGEST].strip()
    known = f"{output.reference or ''}\n{'' if re.match(CONTROL, output.prompt.strip()) else output.prompt}"
    for match in re.finditer(CONTROL, text):
        token = match.group()
        if token.strip() not in known and text[match.end() :].replace(token, "").strip():
            return token
        if token.strip() not in known and match.start() == 0:
            return token
    return None


def ended(output: Output, limit: float | None) -> bool | None:
    """Whether an answer ended by itself: False where it was cut or ran into the next turn, None where that is not known."""
    following = re.search(NEXT_TURN, output.text[:LONGEST])
    if following is not None and following.start() > 0 and following.group() not in (output.reference or ""):
        return False
    finish = (output.finish or "").lower()
    if finish in CUT:
        return False
    if finish in STOPPED:
        return True
    if output.tokens is not None and limit:
        return output.tokens < limit
    return None


def alike(outputs: Iterable[Output], length: int) -> tuple[str, int, int]:
    """The commonest opening of `length` characters among the answers, its count, and how many answers are that long."""
    openings = Counter(output.text.strip()[:length] for output in outputs if len(output.text.strip()) >= length)
    if not openings:
        return "", 0, 0
    opening, count = openings.most_common(1)[0]
    return opening, count, sum(openings.values())


def counted(count: int, total: int, en: str, zh: str) -> Text:
    """`3 of 12 answers …` in both languages."""
    return Text(f"{count} of {total} answers {en}", f"{total} 条回答里有 {count} 条{zh}")
