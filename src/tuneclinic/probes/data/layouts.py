"""Which layout a data set has, and each of its rows in one shape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.probes.data.row import Row
from tuneclinic.probes.data.turns import NotMessages, Turns, text_of, turns_of, without_prefix
from tuneclinic.values import dataclass

CONVERSATIONS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns")
INSTRUCTIONS = ("instruction", "instructions")
PROMPTS = ("prompt", "question", "query", "problem", "user", "human", "input", "source", "instruction")
CONTEXTS = ("input", "context", "inputs")
ANSWERS = ("completion", "response", "answer", "output", "outputs", "solution", "target", "assistant", "reply", "summary")
TEXTS = ("text", "content", "document", "code")
REJECTED = ("rejected", "rejected_response", "rejected_messages", "negative")
SYSTEMS = ("system", "system_prompt")
MEDIA = ("images", "image", "image_path", "img", "pixel_values", "videos", "video", "audios", "audio")
GROUPS = ("source", "dataset", "data_source", "category", "task", "task_type", "subset", "domain", "lang", "language", "topic")
SCORES = (("chosen_score", "rejected_score"), ("score_chosen", "score_rejected"), ("chosen_rating", "rejected_rating"))
NOT_DATA = pattern(r"predict|^pred$|generated_text|model_output|^generation|^hypothes|^resps$|^advantages?$|^rewards?$")
"""Columns that a model's outputs have and a training set has not: those files are read elsewhere."""
LOG_KEYS = frozenset({"level", "levelname", "timestamp", "logger", "record", "lineno", "epoch", "loss"})
MARKS = pattern(r"<image>|<IMG_CONTEXT>|<\|image_pad\|>|<\|image\|>|<image_soft_token>|\[IMG\]")
"""Placeholders for one picture: LLaVA and LLaMA-Factory, InternVL, Qwen-VL, Llama 3.2, Gemma 3, Pixtral."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which column plays which part in rows of one set of keys; "" where none does."""

    layout: str = ""
    turns: str = ""
    instruction: str = ""
    context: str = ""
    system: str = ""
    history: str = ""
    answer: str = ""
    chosen: str = ""
    rejected: str = ""
    group: str = ""
    media: tuple[str, ...] = ()
    scores: tuple[str, str] | None = None


def plan_of(row: Mapping[str, Any]) -> Plan:
    """How to read rows like `row`; the plan's layout is "" where it is no training row."""
    plain = without_prefix(dict(row))
    names = dict(zip(plain, row, strict=False)) if len(plain) == len(row) else {key: key for key in plain}

    def first(keys: Iterable[str], *types: type) -> str:
        return next((names[key] for key in keys if key in plain and (not types or isinstance(plain[key], types))), "")

    common: dict[str, Any] = {
        "system": first(SYSTEMS),
        "group": first(GROUPS, str),
        "media": tuple(names[key] for key in MEDIA if key in plain),
    }
    if isinstance(plain.get("input_ids"), list):
        return Plan("tokenised", **common)
    turns = next((names[key] for key in CONVERSATIONS if _is_messages(plain.get(key))), "")
    rejected, chosen = first(REJECTED, str, list, dict), first(("chosen",), str, list, dict)
    if rejected and (chosen or turns):
        scores = next((pair for pair in SCORES if pair[0] in plain and pair[1] in plain), None)
        prompt = "" if turns else first(PROMPTS, str, list)
        context = first(CONTEXTS) if prompt in INSTRUCTIONS else ""
        return Plan("preference", turns, prompt, context, chosen=chosen, rejected=rejected, scores=scores, **common)
    if turns:
        sharegpt = any("from" in item for item in plain[turns.lower()][:1]) if turns.lower() in plain else False
        return Plan("sharegpt" if sharegpt else "messages", turns, **common)
    return _written(plain, first, common)


def _written(plain: Mapping[str, Any], first: Any, common: dict[str, Any]) -> Plan:
    """Prompt and answer in columns of their own, or plain text."""
    answer = first(ANSWERS)
    instruction = first(INSTRUCTIONS, str)
    if instruction and answer:
        layout = "alpaca" if answer.lower().endswith(("output", "response", "answer")) else "prompt-completion"
        history = first(("history",))
        return Plan(layout, "", instruction, first(CONTEXTS), history=history, answer=answer, **common)
    if LOG_KEYS & set(plain):
        return Plan()
    prompt = first((key for key in PROMPTS if key in plain and plain[key] is not None), str, list)
    if prompt and answer and prompt != answer:
        context = "" if prompt.lower() in CONTEXTS else first(("context",))
        return Plan("prompt-completion", "", prompt, context, history=first(("history",)), answer=answer, **common)
    text = first(TEXTS, str)
    if text and "label" in plain and isinstance(plain["label"], (str, int)) and not isinstance(plain["label"], bool):
        return Plan("prompt-completion", "", text, answer=first(("label",)), **common)
    if text and text.lower().endswith("text"):
        return Plan("text", "", text, **common)
    if prompt and isinstance(plain.get("prompt", plain.get("question")), (str, list)):
        return Plan("prompt-completion", "", prompt, **common)
    if text and all(not isinstance(value, dict) for value in plain.values()) and "role" not in plain:
        return Plan("text", "", text, **common)
    return Plan()


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value[:2])


def recognise(rows: Iterable[Any]) -> str:
    """The layout that most of `rows` have; "" where most are no training rows."""
    votes = Counter(plan_of(row).layout if isinstance(row, dict) and not _generated(row) else "" for row in rows)
    return max(votes, key=lambda layout: (votes[layout], layout)) if votes else ""


def _generated(row: Mapping[str, Any]) -> bool:
    return any(NOT_DATA.search(key.lower()) for key in row)


class Converter:
    """Turns raw rows into `Row`s; plans are kept by set of keys, as a file has few."""

    def __init__(self, layout: str) -> None:
        self.layout = layout
        self.plans: dict[tuple[str, ...], Plan] = {}

    def row(self, number: int, raw: Any) -> Row | None:
        """One row, None where it does not fit the layout of its file."""
        if not isinstance(raw, dict):
            return None
        keys = tuple(raw)
        plan = self.plans.get(keys)
        if plan is None or not plan.layout:
            plan = plan_of(raw)
            if len(self.plans) < 4096:
                self.plans[keys] = plan
        if not plan.layout and not (plan := self._nearest(raw)).layout:
            return None
        try:
            return _tokenised(number, raw, plan) if plan.layout == "tokenised" else _spoken(number, raw, plan)
        except (NotMessages, RecursionError):
            return None

    def _nearest(self, raw: Mapping[str, Any]) -> Plan:
        """The plan of an earlier row of the file whose columns this row has, with other types in them (null for a text)."""
        return next((plan for keys, plan in self.plans.items() if plan.layout and set(keys) == set(raw)), Plan())


def _spoken(number: int, raw: Mapping[str, Any], plan: Plan) -> Row:
    turns = turns_of(raw[plan.turns]) if plan.turns else Turns()
    messages = turns.messages
    nonfinite = False
    if plan.system and isinstance(system := raw.get(plan.system), str) and system and not any(r == "system" for r, _ in messages):
        messages.insert(0, ("system", system))
    if plan.history:
        messages.extend(_history(raw.get(plan.history)))
    if plan.instruction:
        nonfinite |= _prompt(raw, plan, turns)
    if plan.answer:
        answer = raw.get(plan.answer)
        nonfinite |= _is_nonfinite(answer)
        messages.extend(_answer(answer, turns))
    rejected = None
    if plan.layout == "preference":
        rejected = _preference(raw, plan, turns)
    row = Row(number, tuple(messages), rejected, turns.images, calls=turns.calls, nonfinite=nonfinite)
    _attachments(row, raw, plan, turns)
    return row


def _prompt(raw: Mapping[str, Any], plan: Plan, turns: Turns) -> bool:
    """Adds the prompt's messages; says whether a NaN stands where its text should."""
    value = raw.get(plan.instruction)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        inner = turns_of(value)
        turns.messages.extend(inner.messages)
        turns.images += inner.images
        return False
    text = "" if _is_nonfinite(value) else text_of(value, turns)
    context = raw.get(plan.context) if plan.context else None
    if isinstance(context, str) and context.strip():
        text = f"{text}\n{context}" if text else context
    turns.messages.append(("text" if plan.layout == "text" else "user", text))
    return _is_nonfinite(value) or _is_nonfinite(context)


def _answer(value: Any, turns: Turns) -> list[tuple[str, str]]:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return turns_of(value).messages
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return [("assistant", item) for item in value[:1]] or [("assistant", "")]
    if isinstance(value, (int, float)) and not _is_nonfinite(value):
        return [("assistant", str(value)[:400])]
    return [("assistant", "" if _is_nonfinite(value) else text_of(value, turns))]


def _history(value: Any) -> list[tuple[str, str]]:
    pairs = value if isinstance(value, list) else []
    held: list[tuple[str, str]] = []
    for pair in pairs:
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair):
            held += [("user", pair[0]), ("assistant", pair[1])]
    return held


def _preference(raw: Mapping[str, Any], plan: Plan, turns: Turns) -> str:
    """Adds the chosen answer to the messages and returns the rejected one."""
    if plan.chosen:
        value = raw.get(plan.chosen)
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            chosen = turns_of(value).messages
            turns.messages[:] = chosen if len(chosen) > 1 and not turns.messages else turns.messages + chosen[-1:]
        else:
            turns.messages.append(("assistant", _side(value)))
    return _side(raw.get(plan.rejected))


def _side(value: Any) -> str:
    if isinstance(value, (list, dict)) and value:
        inner = turns_of(value).messages
        return inner[-1][1] if inner else ""
    return text_of(value, Turns())


def _attachments(row: Row, raw: Mapping[str, Any], plan: Plan, turns: Turns) -> None:
    media = turns.media
    for column in plan.media:
        value = raw.get(column)
        if not value:
            continue
        if column.lower().startswith(("image", "img")):
            row.images += len(value) if isinstance(value, list) else 1
        media.append(str(value)[:4000])
    if media:
        row.media = hash(tuple(media))
    if row.images or plan.media:
        row.marks = sum(len(MARKS.findall(text)) for _, text in row.messages if "<" in text or "[" in text)
    if plan.group and isinstance(group := raw.get(plan.group), str):
        row.group = group[:80]
    if plan.scores:
        first, second = (raw.get(name) for name in plan.scores)
        if isinstance(first, (int, float)) and isinstance(second, (int, float)):
            row.scores = (float(first), float(second)) if max(abs(first), abs(second)) < 1e9 else None


def _tokenised(number: int, raw: Mapping[str, Any], plan: Plan) -> Row | None:
    ids = _ids(raw.get("input_ids"))
    if ids is None:
        return None
    row = Row(number, input_ids=ids, labels=_ids(raw.get("labels")), mask=_ids(raw.get("attention_mask")))
    row.nonfinite = any(_holds_nonfinite(value) for key, value in raw.items() if key not in ("input_ids", "attention_mask"))
    if plan.group and isinstance(group := raw.get(plan.group), str):
        row.group = group[:80]
    return row


def _ids(value: Any) -> tuple[int, ...] | None:
    """A list of token ids, also where it is wrapped as a batch of one."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return tuple(value)


def _is_nonfinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _holds_nonfinite(value: Any, depth: int = 3) -> bool:
    """Whether a number or a list of numbers, nested a little, holds NaN or infinity."""
    if isinstance(value, list) and depth:
        return any(_holds_nonfinite(item, depth - 1) for item in value)
    return _is_nonfinite(value)
