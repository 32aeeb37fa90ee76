"""Tables that set a base model beside a tuned one: CSV, Markdown, JSON in either nesting."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._rows import number
from tuneclinic.probes.readers._score_names import is_domain, is_lower_better
from tuneclinic.probes.reading import SourceFile
from tuneclinic.sections import Score

MOST_ROWS = 5000
"""Rows looked at of one table."""
_BASE = frozenset({"base", "baseline", "before", "untuned", "original", "pretrained", "base model", "base score", "before tuning", "before finetuning", "before fine tuning", "微调前", "训练前", "基座", "原始模型", "原模型", "基座模型", "base 模型"})  # fmt: skip
_TUNED = frozenset({"tuned", "finetuned", "fine tuned", "after", "sft", "lora", "qlora", "dpo", "adapter", "tuned model", "finetuned model", "fine tuned model", "tuned score", "after tuning", "after finetuning", "after fine tuning", "ours", "ft", "微调后", "训练后", "微调", "微调模型"})  # fmt: skip
_TASK = (
    "task",
    "benchmark",
    "dataset",
    "eval",
    "evaluation",
    "suite",
    "test",
    "category",
    "name",
    "任务",
    "评测集",
    "数据集",
    "评测",
    "类别",
)
_METRIC = ("metric", "measure", "指标")
_KIND = ("kind", "type", "scope", "domain", "group", "类型", "范围")
_VARIANT = pattern(r"merge|quanti[sz]|awq|gptq|gguf|int[48]|\b[48] ?bit|nf4|fp8|合并|量化")
"""Further columns of the same model, merged or quantised."""
_CELL = pattern(r"[-+]?\d[\d,]{0,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?|[-+]?\.\d{1,20}")
_RULE = pattern(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*")
_BASE_PART = pattern(r"(?:^|[_\-.])(?:base|baseline|before|untuned|pretrained)(?:[_\-.]|$)")


class Comparison(NamedTuple):
    """Scores of both models, and what the two columns are called."""

    scores: tuple[Score, ...] = ()
    base: str = ""
    tuned: str = ""
    skipped: int = 0


def names_base(name: str) -> bool:
    """Whether a file's name or folder says that it holds the untuned model's results."""
    return any(_BASE_PART.search(PurePosixPath(part).stem.lower()) for part in name.split("/")[-2:])


def read_comparison(text: str, file: SourceFile) -> Comparison:
    """The first table in Markdown, CSV or TSV text that has a base and a tuned column."""
    lines = text.splitlines()[:MOST_ROWS]
    if any("|" in line for line in lines[:200]):
        found = _markdown(lines, file.name)
        if found.scores:
            return found
    header = next((line for line in lines if line.strip()), "")
    delimiter = max(("\t", ",", ";"), key=header[:20_000].count)
    if delimiter not in header:
        return Comparison()
    start = lines.index(header)
    rows = [(at, cells) for at, line in enumerate(lines[start:], start + 1) if (cells := _cells(line, delimiter))]
    return _table(rows, file.name)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line[:100_000]], delimiter=delimiter), [])
    except csv.Error:
        return []


def _markdown(lines: Sequence[str], source: str) -> Comparison:
    """Each table is a header, a rule of dashes and rows; the first one that compares is taken."""
    for at in range(1, len(lines)):
        if len(lines[at]) > 2000 or "|" not in lines[at - 1] or not _RULE.fullmatch(lines[at]):
            continue
        rows = [(at, _split(lines[at - 1]))]
        for line in range(at + 1, len(lines)):
            if "|" not in lines[line]:
                break
            rows.append((line + 1, _split(lines[line])))
        found = _table(rows, source)
        if found.scores:
            return found
    return Comparison()


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line[:20_000].strip().strip("|").split("|")]


def _plain(name: Any) -> str:
    return re.sub(r"[\s_\-*`]+", " ", str(name)[:200].lower()).strip()


def _role(names: Sequence[Any], wanted: frozenset[str]) -> int | None:
    """The column whose name is one of `wanted`, or begins with one (`base (Qwen2.5-7B)`)."""
    plain = [re.split(r"[(（:：]", _plain(name))[0].strip() for name in names]
    return next((at for at, name in enumerate(plain) if name in wanted), None)


def _table(rows: Sequence[tuple[int, Sequence[str]]], source: str) -> Comparison:
    if len(rows) < 2:
        return Comparison()
    header = rows[0][1]
    base, tuned = _role(header, _BASE), _role(header, _TUNED)
    if base is None or tuned is None:
        return Comparison()
    plain = [_plain(name) for name in header]
    metric = next((at for at, name in enumerate(plain) if name in _METRIC), None)
    task = next((at for at, name in enumerate(plain) if name in _TASK), 0 if 0 not in {base, tuned, metric} else metric)
    kind = next((at for at, name in enumerate(plain) if name in _KIND), None)
    variants = [at for at, name in enumerate(plain) if at not in {base, tuned, task, metric, kind} and _VARIANT.search(name)]
    scores, skipped = [], 0
    for line, cells in rows[1:]:
        before, after = (_cell(cells[at]) if at < len(cells) else None for at in (base, tuned))
        if before is None and after is None:
            skipped += 1
            continue
        named = _at(cells, task)
        measured = _at(cells, metric) or "score"
        lower = is_lower_better(measured) or is_lower_better(named)
        domain = is_domain(named) or is_domain(_at(cells, kind))
        where = f"{source}:{line}"
        scores.append(Score(named, measured, after, before, lower=lower, domain=domain, where=where))
        for at in variants:
            if at < len(cells) and (value := _cell(cells[at])) is not None:
                task_ = f"{named} ({str(header[at])[:80].strip()})"
                scores.append(Score(task_, measured, value, before, lower=lower, domain=domain, where=where))
    return Comparison(tuple(scores), str(header[base]).strip(), str(header[tuned]).strip(), skipped)


def _at(cells: Sequence[str], column: int | None) -> str:
    return cells[column].strip().strip("*`")[:200] if column is not None and column < len(cells) else ""


def _cell(cell: Any) -> float | None:
    """The leading number of a cell: `**45.2**`, `45.2%`, `0.45 ± 0.01`."""
    if not isinstance(cell, str):
        return number(cell)
    found = _CELL.match(cell.strip().lstrip("*` ")[:60])
    return float(found.group().replace(",", "")) if found else None


def comparison_rows(value: Any, source: str) -> Comparison:
    """A comparison in JSON: rows, `{task: {base, tuned}}` or `{base: {task: score}, tuned: {task: score}}`."""
    if isinstance(value, list):
        return _from_rows([row for row in value[:MOST_ROWS] if isinstance(row, dict)], source)
    if not isinstance(value, dict):
        return Comparison()
    names = list(value)
    base, tuned = _role(names, _BASE), _role(names, _TUNED)
    if base is not None and tuned is not None:
        before, after = value[names[base]], value[names[tuned]]
        if isinstance(before, dict) and isinstance(after, dict):
            rows = [
                {"task": task, "base": before[task], "tuned": after[task]} for task in list(before)[:MOST_ROWS] if task in after
            ]
            found = _from_rows(rows, source)
            return Comparison(found.scores, str(names[base]), str(names[tuned]), found.skipped)
    nested = [{"task": task, **row} for task, row in list(value.items())[:MOST_ROWS] if isinstance(row, dict)]
    if nested:
        found = _from_rows(nested, source)
        if found.scores:
            return found
    lists = [held for held in value.values() if isinstance(held, list)]
    return (
        _from_rows([row for row in max(lists, key=len)[:MOST_ROWS] if isinstance(row, dict)], source) if lists else Comparison()
    )


def _from_rows(rows: Sequence[Mapping[str, Any]], source: str) -> Comparison:
    if not rows:
        return Comparison()
    header = list(dict.fromkeys(str(name) for row in rows[:50] for name in row))[:200]
    base, tuned = _role(header, _BASE), _role(header, _TUNED)
    if base is None or tuned is None:
        return Comparison()
    scores: list[Score] = []
    skipped = 0
    for at, row in enumerate(rows, 1):
        before, after = row.get(header[base]), row.get(header[tuned])
        found = list(_pairs(before, after))
        if not found:
            skipped += 1
        named = _named(row, _TASK)
        domain = is_domain(named) or is_domain(_named(row, _KIND)) or row.get("domain") is True
        for metric, first, second in found:
            measured = metric or _named(row, _METRIC) or "score"
            lower = is_lower_better(measured) or is_lower_better(named)
            scores.append(Score(named, measured, second, first, lower=lower, domain=domain, where=f"{source} row {at}"))
    return Comparison(tuple(scores), header[base], header[tuned], skipped)


def _pairs(before: Any, after: Any) -> list[tuple[str, float | None, float | None]]:
    """Pairs of numbers under one metric each: the two cells, or the metrics that both hold."""
    if isinstance(before, dict) and isinstance(after, dict):
        both = [(str(name)[:200], number(before[name]), number(after[name])) for name in list(before)[:200] if name in after]
        return [pair for pair in both if pair[1] is not None or pair[2] is not None]
    first, second = number(before), number(after)
    return [("", first, second)] if first is not None or second is not None else []


def _named(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name, value in row.items():
        if _plain(name) in names and isinstance(value, str):
            return value[:200]
    return ""
