"""Lists of messages: the spellings of roles, of texts and of pictures inside them."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from tuneclinic.values import dataclass

ROLES = {
    **dict.fromkeys(("user", "human", "customer", "prompter", "question", "instruction", "usr", "client"), "user"),
    **dict.fromkeys(("assistant", "gpt", "bot", "chatbot", "model", "ai", "chatgpt", "bing", "bard", "answer"), "assistant"),
    **dict.fromkeys(("function_call", "tool_call", "tool_calls"), "call"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "observation", "function", "function_response", "tool_response", "ipython", "environment"), "tool"),
    **dict.fromkeys(("pretrain", "text"), "text"),
}
"""What the frameworks' layouts call each role (LLaMA-Factory, ms-swift, axolotl, FastChat, OpenAI, InternLM)."""
ROLE_KEYS = ("role", "from", "speaker", "author")
TEXT_KEYS = ("content", "value", "text")
IMAGE_TYPES = frozenset({"image", "image_url", "input_image", "image_file"})
MEDIA_TYPES = frozenset({"video", "video_url", "audio", "audio_url", "input_audio"})
REASONING_TYPES = frozenset({"reasoning", "thinking", "tool_calls", "tool_call", "tool_use", "function_call"})
PAIR_USER = ("input", "human", "user", "question", "query", "prompt")
PAIR_ASSISTANT = ("output", "assistant", "answer", "response", "gpt", "bot")


class NotMessages(ValueError):  # noqa: N818 - names what the value is, as the rest of the reader speaks
    """A value that should be a list of messages and is none."""


@dataclass(slots=True)
class Turns:
    """A list of messages as far as it was understood."""

    messages: list[tuple[str, str]] = field(default_factory=list)
    images: int = 0
    media: list[str] = field(default_factory=list)
    calls: bool = False


def turns_of(value: Any) -> Turns:
    """`value`, a list of message objects, as (role, text) pairs.

    Raises:
        NotMessages: where it is no list of messages.
    """
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise NotMessages("not a list")
    turns = Turns()
    for item in value:
        if not isinstance(item, dict):
            raise NotMessages("a message is no object")
        _turn(item, turns)
    return turns


def _turn(item: dict[str, Any], turns: Turns) -> None:
    role = next((item[key] for key in ROLE_KEYS if isinstance(item.get(key), str)), None)
    if role is None:
        _pair(item, turns)
        return
    content = next((item[key] for key in TEXT_KEYS if key in item), None)
    text = text_of(content, turns)
    calls = item.get("tool_calls") or item.get("function_call")
    name = ROLES.get(role.strip().lower(), role.strip().lower()[:40])
    if name == "call" or calls:
        turns.calls = True
        name = "assistant"
        if calls and not text:
            text = _dumped(calls)
    turns.messages.append((name, text))


def _pair(item: dict[str, Any], turns: Turns) -> None:
    """One question and its answer in one object, as InternLM's and ms-swift's older layouts have it."""
    plain = without_prefix(item)
    user = next((plain[key] for key in PAIR_USER if isinstance(plain.get(key), str)), None)
    assistant = next((plain[key] for key in PAIR_ASSISTANT if isinstance(plain.get(key), str)), None)
    if user is None and assistant is None:
        raise NotMessages("a message has no role")
    system = plain.get("system")
    if isinstance(system, str) and system:
        turns.messages.append(("system", system))
    if user:
        turns.messages.append(("user", user))
    if assistant is not None:
        turns.messages.append(("assistant", assistant))


def without_prefix(item: dict[str, Any]) -> dict[str, Any]:
    """Keys in lower case, and without a prefix up to `_` that all of them share."""
    plain = {str(key).strip().lower(): value for key, value in item.items()}
    first = next(iter(plain), "")
    prefix = first[: first.find("_") + 1]
    if prefix and all(key.startswith(prefix) for key in plain):
        return {key[len(prefix) :]: value for key, value in plain.items()}
    return plain


def text_of(content: Any, turns: Turns) -> str:
    """The text of a message's content: a string, a list of parts, or nothing; pictures in it are counted in `turns`.

    Raises:
        NotMessages: where it is none of these.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise NotMessages("content is no text")
    pieces: list[str] = []
    for part in content:
        if isinstance(part, str):
            pieces.append(part)
        elif isinstance(part, dict):
            pieces.append(_part(part, turns))
        elif part is not None:
            raise NotMessages("a part of the content is no text")
    return "".join(pieces)


def _part(part: dict[str, Any], turns: Turns) -> str:
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text") or kind is None:
        text = part.get("text", part.get("value", part.get("content", "")))
        return text if isinstance(text, str) else ""
    if not isinstance(kind, str):
        raise NotMessages("a part's type is no text")
    if kind in IMAGE_TYPES:
        turns.images += 1
        turns.media.append(_dumped(part))
    elif kind in MEDIA_TYPES:
        turns.media.append(_dumped(part))
    elif kind in REASONING_TYPES:
        turns.calls = turns.calls or kind not in ("reasoning", "thinking")
    return ""


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:4000]
    except (ValueError, RecursionError):
        return "?"
