"""Scores and end-of-run numbers: `all_results.json`, lm-eval results, tables of base against tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers._comparison import Comparison, comparison_rows, names_base, read_comparison
from tuneclinic.probes.readers._metric_names import SUMMARY_NAMES, kind_of
from tuneclinic.probes.readers._rows import READ_ERRORS, document, flat, head_rows, joined, nothing, number, sure
from tuneclinic.probes.readers._score_names import is_domain, is_lower_better
from tuneclinic.probes.reading import TEXT_BYTES, Reader, Reading, SourceFile
from tuneclinic.sections import Metrics, Score, Scores
from tuneclinic.words import Text

TRAINER_FILES = frozenset(
    {"all_results.json", "train_results.json", "eval_results.json", "predict_results.json", "test_results.json"}
)
"""What a Trainer's `save_metrics` writes."""
MOST_SCORES = 2000
"""Scores kept of one file; MMLU's subtasks with all their metrics make a few hundred."""
_SPLITS = ("eval", "predict", "test", "train")
_NO_SCORE = ("runtime", "per_second", "epoch", "flos", "samples", "_loss", "_time", "tokens", "steps", "memory")
_HARNESS_NOT = ("stderr", "alias", "sample_len", "samples")


class Results(Reader):
    """Reads files of scores and end-of-run numbers."""

    kind: ClassVar[str] = "results"
    precedence: ClassVar[int] = 45

    def claims(self, file: SourceFile) -> float:
        """By the Trainer's file names, by lm-eval's keys, by a table with a base and a tuned column."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """Scores, and end-of-run numbers as `Metrics.summary`."""
        head = file.head_text.lstrip("\ufeff \t\r\n")
        if not head.startswith(("{", "[")):
            try:
                return [_compared(read_comparison(file.text(TEXT_BYTES), file), file)]
            except READ_ERRORS as error:
                return nothing(str(error) or type(error).__name__)
        value, _, problem = document(file)
        if problem:
            return nothing(Text(f"the JSON is damaged ({problem})", f"JSON 已损坏（{problem}）"))
        if isinstance(value, dict) and _harness(value):
            return [_harness_reading(value, file)]
        compared = comparison_rows(value, file.name)
        if compared.scores:
            return [_compared(compared, file)]
        return [_flat_reading(value if isinstance(value, dict) else {}, file)]


def _claim(file: SourceFile) -> float:
    if file.binary:
        return 0.0
    head = file.head_text.lstrip("\ufeff \t\r\n")
    if not head.startswith(("{", "[")):
        compared = (
            read_comparison(file.head_text, file) if file.base.endswith((".md", ".csv", ".tsv", ".txt", ".markdown")) else None
        )
        return 0.6 if compared and compared.scores else 0.0
    if file.base in TRAINER_FILES:
        return 0.95
    rows = head_rows(file, 3)
    first = rows[0] if rows else {}
    if _harness(first) or ('"results"' in head and '"higher_is_better"' in head) or ('"results"' in head and '"n-shot"' in head):
        return 0.93
    if comparison_rows(rows if len(rows) > 1 else first, file.name).scores:
        return 0.7
    plain = flat(first)
    numbers = sum(number(value) is not None for value in plain.values())
    named = any(word in file.base for word in ("result", "score", "metric", "eval", "bench"))
    return 0.6 if named and len(rows) == 1 and numbers and numbers >= len(plain) / 2 else 0.0


def _harness(value: Mapping[str, Any]) -> bool:
    """Whether a document is lm-eval's: results by task, with versions, shots or a configuration beside them."""
    results = value.get("results")
    beside = value.keys() & {"versions", "n-shot", "configs", "config", "higher_is_better", "config_general", "summary_general"}
    return isinstance(results, dict) and bool(beside) and any(isinstance(task, dict) for task in results.values())


def _harness_reading(value: Mapping[str, Any], file: SourceFile) -> Reading:
    higher = value.get("higher_is_better")
    scores: list[Score] = []
    for task, metrics in flat_tasks(value["results"]):
        for key, held in metrics.items():
            metric = str(key).partition(",")[0]
            found = number(held)
            if found is None or any(word in metric for word in _HARNESS_NOT) or len(scores) >= MOST_SCORES:
                continue
            told = higher.get(task) if isinstance(higher, dict) else None
            direction = told.get(metric) if isinstance(told, dict) else None
            lower = direction is False or (direction is None and is_lower_better(metric))
            scores.append(_score(task, metric, found, file, lower=lower))
    if not scores:
        return nothing(Text("no score was found below results", "results 下没有找到分数"))[0]
    return Reading(Evidence(scores=Scores(tuple(scores))), {"scores": len(scores)})


def flat_tasks(results: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Task names with their metrics; a group that holds tasks of its own is opened once."""
    tasks: list[tuple[str, Mapping[str, Any]]] = []
    for task, metrics in list(results.items())[:MOST_SCORES]:
        if not isinstance(metrics, dict):
            continue
        tasks.append((str(task)[:200], metrics))
        tasks.extend((f"{task}/{below}"[:200], inner) for below, inner in metrics.items() if isinstance(inner, dict))
    return tasks


def _score(task: str, metric: str, value: float, file: SourceFile, *, lower: bool) -> Score:
    base = names_base(file.name)
    return Score(
        task=task,
        metric=metric,
        tuned=None if base else value,
        base=value if base else None,
        lower=lower,
        domain=is_domain(task),
        where=f"{file.name}: {task}",
    )


def _compared(compared: Comparison, file: SourceFile) -> Reading:
    if not compared.scores:
        return nothing(Text("no table with a base and a tuned column was found", "没有找到同时带 base 和微调后两列的表格"))[0]
    note = Text(
        f"{compared.base} was read as the untuned model, {compared.tuned} as the tuned one",
        f"{compared.base} 当作微调前，{compared.tuned} 当作微调后",
    )
    scores = tuple(replace(score, where=score.where or file.name) for score in compared.scores[:MOST_SCORES])
    skipped = {"rows without two scores": compared.skipped} if compared.skipped else {}
    return Reading(Evidence(scores=Scores(scores)), {"scores": len(scores)}, skipped, note)


def _flat_reading(value: Mapping[str, Any], file: SourceFile) -> Reading:
    """Numbers under plain names: all of them as summary, those that measure quality as scores."""
    numbers: dict[str, float] = {}
    skipped = 0
    for raw, held in flat(value).items():
        found = number(held)
        if found is None or len(raw) > 200 or len(numbers) >= MOST_SCORES:
            skipped += 1
        else:
            numbers[raw] = found
    if not numbers:
        return nothing(
            joined(Text("no number was found in the file", "文件里没有找到数值")), {"values that are no number": skipped}
        )[0]
    trainer = file.base in TRAINER_FILES or bool(numbers.keys() & (SUMMARY_NAMES | {"eval_loss", "train_loss"}))
    scores = [score for raw, found in numbers.items() if (score := _quality(raw, found, file, trainer=trainer))]
    finished = True if numbers.keys() & {"train_runtime", "train_loss"} else None
    metrics = Metrics(kind=kind_of(numbers), summary=numbers, finished=finished, source=file.name)
    understood = {"summary values": len(numbers)}
    if scores:
        understood["scores"] = len(scores)
    return Reading(
        Evidence(metrics=metrics, scores=Scores(tuple(scores)) if scores else None),
        understood,
        {"values that are no number": skipped} if skipped else {},
    )


def _quality(raw: str, value: float, file: SourceFile, *, trainer: bool) -> Score | None:
    """A score, unless the number is a time, a count or a loss."""
    lower_name = raw.lower()
    if any(word in lower_name for word in _NO_SCORE) or lower_name == "loss":
        return None
    split = next((split for split in _SPLITS if raw.startswith(f"{split}_")), "")
    if trainer and not split:
        return None
    folder, slash, last = raw.rpartition("/")
    task, metric = (split, raw[len(split) + 1 :]) if split else (folder, last) if slash else (raw, "score")
    return _score(task, metric, value, file, lower=is_lower_better(metric) or is_lower_better(task))
