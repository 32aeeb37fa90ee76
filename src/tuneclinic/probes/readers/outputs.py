"""Generated outputs: JSON lines or JSON with prompt and output under their usual names, and chat transcripts as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._jsonl import NO_ROWS
from tuneclinic.probes.readers._rows import (
    MANY_VALUES,
    damaged,
    document,
    head_rows,
    is_json_lines,
    joined,
    json_lines,
    nothing,
    number,
    objects_after,
    sure,
)
from tuneclinic.probes.readers._transcript import looks_like_transcript, read_transcript
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Output, Outputs
from tuneclinic.words import Text

MOST_ITEMS = 2000
"""Outputs kept of one file; what a case asks of them (endless, repeated, residue) shows in far fewer."""
TEXT_CHARS = 20_000
"""Characters kept of one text: more than 4,000 tokens of any script, beyond the usual max_new_tokens."""
MOST_CHARS = 24_000_000
"""Characters kept of one file."""

PROMPT = ("prompt", "question", "query", "instruction", "input", "problem", "user", "prompt_text", "source", "问题", "提示")
CLEAR = (
    "predict",
    "prediction",
    "predicted",
    "pred",
    "generated_text",
    "generated",
    "generation",
    "generated_output",
    "generated_answer",
    "model_output",
    "model_response",
    "model_answer",
    "model_completion",
    "tuned",
    "tuned_output",
    "tuned_response",
    "tuned_model",
    "finetuned",
    "finetuned_output",
    "finetuned_response",
    "fine_tuned",
    "fine_tuned_output",
    "sft_output",
    "lora_output",
    "after",
    "hypothesis",
    "output_text",
    "response_text",
    "模型输出",
    "微调后",
)
"""Columns that only a model's own words stand under."""
OPEN = ("response", "output", "completion", "reply", "answer", "text", "result", "outputs", "回答", "输出")
"""Columns that hold a model's words in outputs and the wanted answer in data sets."""
REFERENCE = (
    "label",
    "labels",
    "reference",
    "reference_answer",
    "target",
    "expected",
    "expected_output",
    "gold",
    "ground_truth",
    "answer",
    "参考答案",
)
BASE = (
    "base",
    "base_output",
    "base_response",
    "base_model",
    "base_model_output",
    "baseline",
    "untuned",
    "original_output",
    "before",
    "微调前",
)
FINISH = ("finish_reason", "stop_reason", "finish", "finished_by")
TOKENS = ("completion_tokens", "output_tokens", "generated_tokens", "num_generated_tokens", "n_tokens", "new_tokens")
LIMIT = ("max_new_tokens", "max_tokens", "max_completion_tokens")
GENERATED = frozenset(
    {*FINISH, *TOKENS, *LIMIT, "usage", "logprobs", "latency", "temperature", "generation_config", "sampling_params", "elapsed"}
)
"""Columns that speak of a generation: beside them an open column is the model's."""
NAMED = pattern(r"predict|generat|outputs?\b|outputs?_|completions|responses|transcript|samples_|infer|rollouts|replies")
"""File names that people give to what a model wrote."""
NAMED_DATA = pattern(r"(?:^|[_\-.])(?:train|dataset|data|sft|dpo|kto|alpaca|demo|corpus|pretrain)(?:[_\-.\d]|$)")
"""File names of data sets."""


class GeneratedOutputs(Reader):
    """Reads what a model wrote."""

    kind: ClassVar[str] = "outputs"
    precedence: ClassVar[int] = 50

    def claims(self, file: SourceFile) -> float:
        """By columns that only generations have, by the file's name where columns could be a data set's, by turns of a chat."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """All outputs, at most `MOST_ITEMS`, each with its line or row."""
        head = file.head_text.lstrip("\ufeff \t\r\n")
        if not head.startswith(("{", "[")):
            return read_transcript(file, MOST_ITEMS, TEXT_CHARS)
        return [_read_rows(file)]


def _claim(file: SourceFile) -> float:
    if file.binary:
        return 0.0
    rows = head_rows(file, 5)
    if not rows:
        return 0.55 if looks_like_transcript(file) else 0.0
    named = bool(NAMED.search(file.base)) and not NAMED_DATA.search(file.base)
    best = 0.0
    for row in rows:
        output, clear = _output_of(row)
        if output is None or _number_only(output):
            continue
        if clear:
            best = max(best, 0.93 if named else 0.91)
        elif _has_prompt(row) and (row.keys() & GENERATED or "choices" in row):
            best = max(best, 0.92)
        elif named and _has_prompt(row):
            best = max(best, 0.55)
    return best


def _number_only(text: str) -> bool:
    """A class id or a score under `prediction` is a classifier's, not a generation; an empty one may be."""
    return bool(text.strip()) and number(text) is not None


def _has_prompt(row: Mapping[str, Any]) -> bool:
    return any(name in row for name in PROMPT) or isinstance(row.get("messages"), list)


def _read_rows(file: SourceFile) -> Reading:
    damage: list[str] = []
    skipped: Counter[str] = Counter()
    items: list[Output] = []
    limit: float | None = None
    kept = 0
    for line, row in _rows(file, damage):
        output = _output(row, f"{file.name}:{line}", file.name) if isinstance(row, dict) else None
        if output is None:
            skipped["rows without an output"] += 1
        elif len(items) >= MOST_ITEMS or kept >= MOST_CHARS:
            skipped["outputs beyond the limit"] += 1
        else:
            items.append(output)
            kept += len(output.text) + len(output.prompt) + len(output.reference or "") + len(output.base or "")
            limit = limit if limit is not None else _limit(row)
    note = damaged(damage)
    if not items:
        return nothing(
            joined(note, Text("no row with an output was found", "没有找到带模型输出的行") if damage or skipped else NO_ROWS),
            skipped,
        )[0]
    return Reading(Evidence(outputs=Outputs(tuple(items), limit)), {"outputs": len(items)}, skipped, joined(note))


def _rows(file: SourceFile, damage: list[str]) -> Iterator[tuple[int, Any]]:
    """Rows of JSON lines with their line, or of one document with their number from 1."""
    head = file.head_text.lstrip("\ufeff \t\r\n")
    if is_json_lines(head):
        yield from json_lines(file, damage)
        return
    value, text, problem = document(file)
    if problem.startswith(MANY_VALUES) and text.startswith("{"):
        yield from json_lines(file, damage)
        return
    if problem:
        damage.append(problem)
        value, _ = objects_after(text, text.find("[") + 1) if "[" in text else ([], False)
    if isinstance(value, dict) and _output_of(value)[0] is not None:
        value = [value]
    elif isinstance(value, dict):
        lists = [held for held in value.values() if isinstance(held, list)]
        value = max(lists, key=len) if lists else [value]
    yield from enumerate(value if isinstance(value, list) else [], 1)


def _output(row: Mapping[str, Any], where: str, source: str) -> Output | None:
    text, _ = _output_of(row)
    if text is None:
        return None
    used = _name_of_output(row)
    nested = [held for held in (row.get("usage"), row.get("meta"), row.get("metadata"), _choice(row)) if isinstance(held, dict)]
    finish = _first((row, *nested), FINISH)
    tokens = number(_first((row, *nested), TOKENS))
    return Output(
        prompt=_prompt(row, used)[:TEXT_CHARS],
        text=text[:TEXT_CHARS],
        where=where,
        source=source,
        reference=_text(row, REFERENCE, used),
        base=_text(row, BASE, used),
        finish=finish[:100] if isinstance(finish, str) else None,
        tokens=int(tokens) if tokens is not None and 0 <= tokens < 1e9 else None,
    )


def _name_of_output(row: Mapping[str, Any]) -> str:
    return next(
        (name for name in (*CLEAR, *OPEN) if isinstance(row.get(name), (str, list)) and _plain(row[name]) is not None), ""
    )


def _output_of(row: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The model's words in a row, and whether the column can hold nothing else."""
    name = _name_of_output(row)
    if name:
        return _plain(row[name]), name in CLEAR
    choice = _choice(row)
    if choice is not None:
        message = choice.get("message")
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        return (text, True) if isinstance(text, str) else (None, False)
    answered = row.get("resps", row.get("filtered_resps"))  # lm-eval's samples: a list of lists of texts
    if isinstance(answered, list):
        return _plain(answered), True
    if row.keys() & GENERATED and (turns := _turns(row)) and turns[-1][0] == "assistant":
        return turns[-1][1], False
    return None, False


def _choice(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first choice of a completion as OpenAI's interface returns it, also below `response` or `body`."""
    for _ in range(3):
        choices = row.get("choices")
        if isinstance(choices, list):
            return choices[0] if choices and isinstance(choices[0], dict) else None
        below = row.get("response", row.get("body"))
        if not isinstance(below, dict):
            return None
        row = below
    return None


def _plain(value: Any) -> str | None:
    """A text, or the first text in a list or under `text` of its first entry (vLLM's and lm-eval's layouts)."""
    for _ in range(4):
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict):
            value = value.get("text", value.get("generated_text", value.get("content")))
        else:
            return None
    return None


def _prompt(row: Mapping[str, Any], used: str) -> str:
    text = _text(row, PROMPT, used)
    extra = row.get("input") if "instruction" in row and used != "input" else None
    if text is not None:
        return f"{text}\n{extra}" if isinstance(extra, str) and extra and extra != text else text
    users = [words for role, words in _turns(row) if role == "user"]
    return users[-1] if users else ""


def _turns(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    turns = row.get("messages", row.get("conversation", row.get("prompt")))
    if not isinstance(turns, list):
        return []
    return [
        (str(turn.get("role")), str(turn.get("content"))[:TEXT_CHARS])
        for turn in turns[:200]
        if isinstance(turn, dict) and isinstance(turn.get("content"), str)
    ]


def _text(row: Mapping[str, Any], names: tuple[str, ...], used: str) -> str | None:
    for name in names:
        value = row.get(name)
        if name != used and isinstance(value, str):
            return value[:TEXT_CHARS]
    return None


def _first(mappings: tuple[Mapping[str, Any], ...], names: tuple[str, ...]) -> Any:
    return next((held[name] for held in mappings for name in names if held.get(name) is not None), None)


def _limit(row: Mapping[str, Any]) -> float | None:
    nested = [row.get(name) for name in ("generation_config", "sampling_params", "params", "config", "meta", "metadata")]
    limit = number(_first((row, *(held for held in nested if isinstance(held, dict))), LIMIT))
    return limit if limit is not None and 0 < limit < 1e9 else None
