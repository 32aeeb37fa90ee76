"""Which family of chat template a text, a name or a server uses: told by the markers it emits, not by its syntax.

Ollama writes templates in Go's language and everybody else in Jinja, so that two texts of one template never look alike.
What reaches the model are the markers, and those can be compared.
"""

from __future__ import annotations

import re

from tuneclinic.casebook.learning._facts import say
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.sections import Serving
from tuneclinic.values import dataclass

MARKERS: dict[str, str] = {
    "ChatML": r"<\|im_start\|>",
    "Llama 3": r"<\|start_header_id\|>",
    "Llama 4": r"<\|header_start\|>",
    "[INST]": r"\[/?INST\]",
    "Gemma": r"<start_of_turn>",
    "DeepSeek": r"<｜(?:User|Assistant)｜>",
    "<|user|>": r"<\|(?:user|assistant)\|>|['\"]<\|['\"] ?\+",
    "Granite": r"<\|start_of_role\|>",
    "Cohere": r"<\|START_OF_TURN_TOKEN\|>",
    "Harmony": r"<\|start\|>.{0,200}<\|message\|>",
    "Alpaca": r"### ?(?:Instruction|Response)\b",
    "ChatGLM 2": r"\[Round (?:\d|\{)",
}
"""One marker that a family writes before a turn and no other does."""
PLAIN = r"(?m)(?:^|[\n'\">}])\s*(?:USER|ASSISTANT|Human|Assistant): ?"
"""Role names in plain words (Vicuna, LLaMA-Factory's `default`); they count only where no marker stands."""
RAW = pattern(r"\s*\{\{-?\s*\.Prompt\s*-?\}\}\s*")
"""Ollama's template that passes the prompt on as it is."""
NAMES: tuple[tuple[str, str], ...] = (
    ("ChatML", r"^(?:chatml|qwen(?:[123][\w.-]*)?|qwq|hermes|smollm)\b|chatml"),
    ("Llama 3", r"^llama[-_]?3"),
    ("Llama 4", r"^llama[-_]?4"),
    ("[INST]", r"^(?:llama[-_]?2|mistral|mixtral)"),
    ("Gemma", r"^gemma(?:[-_]?[23])?(?:n|[-_]?it)?$"),
    ("DeepSeek", r"^deepseek[-_]?(?:3|v3|r1)"),
    ("<|user|>", r"^(?:phi[-_]?3|zephyr|(?:chat)?glm[-_]?[34]|tulu)"),
    ("Granite", r"^granite"),
    ("Cohere", r"^(?:cohere|command)"),
    ("Alpaca", r"alpaca"),
    ("ChatGLM 2", r"^chatglm[-_]?2"),
    ("plain roles", r"^vicuna"),
)
"""Names under which LLaMA-Factory, ms-swift, axolotl, vLLM and llama.cpp keep these templates."""
ENDS: dict[str, str] = {
    "ChatML": "<|im_end|>",
    "Llama 3": "<|eot_id|>",
    "Llama 4": "<|eot|>",
    "Gemma": "<end_of_turn>",
    "[INST]": "</s>",
    "Cohere": "<|END_OF_TURN_TOKEN|>",
}
"""The token that closes a turn, where a family has one only."""
SYSTEM = r"You are [^'\"\\{}<>\n]{3,120}"
"""A default system text as templates write it."""
MOST = 100_000
"""Characters of a template that are searched; the longest public one has 14,000."""
READS_TOKENIZER = ("vllm", "sglang", "transformers", "tgi", "lmdeploy")
"""Engines that take the chat template of the tokenizer's files unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side's template: its families, the text where it was read, and the exhibit that shows it."""

    families: frozenset[str]
    exhibit: Exhibit
    text: str = ""


def families(text: str) -> frozenset[str]:
    """The families whose markers a text holds; plain role names only where no marker stands."""
    head = text[:MOST]
    if RAW.fullmatch(head):
        return frozenset({"no template"})
    found = frozenset(name for name, pattern in MARKERS.items() if re.search(pattern, head))
    if found:
        return found
    return frozenset({"plain roles"}) if re.search(PLAIN, head) else frozenset()


def named(name: str) -> frozenset[str]:
    """The family of a template's name or file name; empty for one that is not known."""
    base = re.split(r"[/\\]", name.strip().lower())[-1]
    base = re.sub(r"^(?:template_|tool_chat_template_)|(?:\.jinja2?|\.json|_template|\.txt)$", "", base)
    return next((frozenset({family}) for family, pattern in NAMES if re.search(pattern, base)), frozenset())


def is_text(template: str) -> bool:
    """Whether a setting holds the template itself rather than its name or path."""
    return "{{" in template or "{%" in template or "\n" in template


def trained(seen: Evidence) -> Side | None:
    """The template of training: of plain text rows first, then as configured, then the tokenizer's own."""
    return _of_data(seen) or _of_settings(seen) or _of_tokenizer(seen)


def served(seen: Evidence) -> Side | None:
    """The template that the server applies, where its configuration tells."""
    serving = seen.serving
    if serving is None:
        return None
    where, source = serving.places.get("template", ""), next(iter(serving.sources), "")
    text = serving.template or ""
    own = _own_file(seen)
    if own:
        text = own
    elif not text:
        return _by_default(seen)
    held = families(text) if is_text(text) else named(text)
    if not held:
        return None
    shown = ", ".join(sorted(held))
    exhibit = say(f"the server's template: {shown}", f"推理端模板：{shown}", section="serving", where=where, source=source)
    return Side(held, exhibit, text if is_text(text) else "")


def _own_file(seen: Evidence) -> str:
    """The text of the file that the server is told to use, where it is the one that was read."""
    place = seen.tokenizer.places.get("template", "") if seen.tokenizer is not None else ""
    given = seen.serving.template if seen.serving is not None else None
    if seen.tokenizer is None or not place or not given or is_text(given):
        return ""
    same = re.split(r"[/\\]", given)[-1] == re.split(r"[/\\]", place.rsplit(":", 1)[0])[-1]
    return (seen.tokenizer.template or "") if same else ""


def _by_default(seen: Evidence) -> Side | None:
    """The tokenizer's own template, which engines of transformers' kin take when they are told nothing."""
    serving: Serving | None = seen.serving
    if serving is None or serving.engine not in READS_TOKENIZER or seen.tokenizer is None or not seen.tokenizer.template:
        return None
    held = families(seen.tokenizer.template)
    if not held:
        return None
    shown = ", ".join(sorted(held))
    return Side(
        held,
        say(
            f"{serving.engine} takes the tokenizer's own template: {shown}",
            f"{serving.engine} 默认用 tokenizer 自带的模板：{shown}",
            section="serving",
            where=seen.tokenizer.places.get("template", ""),
        ),
        seen.tokenizer.template,
    )


def _of_data(seen: Evidence) -> Side | None:
    if seen.data is None or seen.data.layout != "text" or not seen.data.samples:
        return None
    found = [families(" ".join(text for _, text in sample.messages)) for sample in seen.data.samples]
    common = max(set(found), key=found.count)
    if not common or found.count(common) * 2 <= len(found):
        return None
    shown = ", ".join(sorted(common))
    sample = seen.data.samples[found.index(common)]
    exhibit = say(
        f"the training text is written in {shown}",
        f"训练文本用的是 {shown} 格式",
        section="data",
        where=sample.where,
        source=sample.source,
    )
    return Side(common, exhibit)


def _of_settings(seen: Evidence) -> Side | None:
    setting = seen.settings.values.get("template") if seen.settings is not None else None
    if setting is None or not isinstance(setting.value, str) or setting.default or _own_file(seen):
        return None
    value = setting.value
    held = families(value) if is_text(value) else named(value)
    if not held and value.strip().lower() == "default" and seen.settings is not None:
        held = frozenset({"plain roles"}) if seen.settings.framework == "llama-factory" else held
    if not held:
        return None
    shown = ", ".join(sorted(held))
    exhibit = say(
        f"the training template: {shown} ({setting.quote[:60]})",
        f"训练模板：{shown}（{setting.quote[:60]}）",
        section="settings",
        where=setting.where,
        source=setting.source,
    )
    return Side(held, exhibit, value if is_text(value) else "")


def _of_tokenizer(seen: Evidence) -> Side | None:
    if seen.tokenizer is None or not seen.tokenizer.template or _own_file(seen):
        return None
    held = families(seen.tokenizer.template)
    if not held:
        return None
    shown = ", ".join(sorted(held))
    where = seen.tokenizer.places.get("template", "")
    exhibit = say(
        f"the tokenizer's template: {shown}",
        f"tokenizer 自带模板：{shown}",
        section="tokenizer",
        where=where,
        source=where.rsplit(":", 1)[0],
    )
    return Side(held, exhibit, seen.tokenizer.template)


def turn_end(side: Side) -> str | None:
    """The token that closes a turn in this template, where it is one and known; SmolVLM's ChatML ends on another, for one."""
    ends = {ENDS[family] for family in side.families if family in ENDS}
    if side.text and "eos_token" not in side.text:
        ends = {end for end in ends if end in side.text}
    return ends.pop() if len(ends) == 1 and len(side.families) == 1 else None


def systems(text: str) -> frozenset[str]:
    """Default system texts that a template writes by itself."""
    return frozenset(" ".join(found.split()).rstrip(". ") for found in re.findall(SYSTEM, text[:MOST]))
