"""What a log says beside its metrics: kept lines, errors, versions and hardware, parameters, settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tuneclinic.probes.crashes import crash_of
from tuneclinic.probes.lines._facts import Fact
from tuneclinic.probes.lines._kept import text_of
from tuneclinic.probes.lines._runs import Run
from tuneclinic.probes.lines._scan import Scan
from tuneclinic.probes.lines._table import Table
from tuneclinic.sections import Crash, Environment, Log, LogLine, Model, Setting, Settings

MOST_LINES = 620


def log_between(scan: Scan, run: Run, source: str) -> tuple[Log, int]:
    """The kept lines of one run, and how many lines carried meaning: facts, warnings, errors."""
    keeper = scan.keeper
    lines: dict[int, tuple[int, str, int]] = {}
    for order, line, text in (*keeper.head, *keeper.tail()):
        lines[order] = (line, text, 1)
    for kept in keeper.noted + keeper.others:
        lines[kept.order] = (kept.line, kept.text, kept.count + 1)
    mine = sorted(order for order in lines if run.begins <= order < run.ends)
    if len(mine) > MOST_LINES:
        tail = {order for order, _, _ in keeper.tail()}
        others = {kept.order for kept in keeper.others} - tail
        mine = [order for order in mine if order not in others][: MOST_LINES - 150] + [order for order in mine if order in tail]
        mine = sorted(set(mine))
    steps = run.steps[run.rows.train]
    orders = run.rows.order[run.rows.train]
    found = tuple(_line(order, lines[order], source, _step_at(order, orders, steps)) for order in mine)
    meaning = sum(kept.count + 1 for kept in keeper.noted if run.begins <= kept.order < run.ends)
    return Log(found, scan.physical), meaning


def _line(order: int, held: tuple[int, str, int], source: str, step: float | None) -> LogLine:
    _ = order
    line, text, count = held
    shown = text if text.isprintable() else "".join(char if char.isprintable() or char == "\t" else " " for char in text)
    return LogLine(shown[:2000], f"{source}:{line}", source, count, step)


def _step_at(order: int, orders: Any, steps: Any) -> float | None:
    at = int(np.searchsorted(orders, order, side="right")) - 1
    return float(steps[at]) if at >= 0 else None


def crash_between(scan: Scan, run: Run, source: str, step: float | None) -> Crash | None:
    """The errors of one run. What a finished run printed before its last row, it survived."""
    lines = dict(scan.keeper.errors)
    for order, line, raw, _ in scan.keeper.held:
        if order not in lines:
            lines[order] = (line, text_of(raw))
    begins = run.begins
    if run.finished and run.rows.train.any():
        begins = max(begins, int(run.rows.order[run.rows.train][-1]))
    mine = [lines[order] for order in sorted(lines) if begins <= order < run.ends]
    return crash_of(mine, source, step) if mine else None


def _known(scan: Scan, run: Run, section: str) -> list[Fact]:
    """Facts up to the end of the run, the latest first: what was said once holds until it is said anew."""
    return [fact for fact in reversed(scan.facts) if fact.section == section and fact.order < run.ends]


def environment_of(scan: Scan, run: Run, source: str) -> Environment | None:
    """Versions and hardware that the log names."""
    known = _known(scan, run, "environment")
    if not known:
        return None
    packages: dict[str, str] = {}
    places: dict[str, str] = {}
    one: dict[str, Any] = {}
    gpus: list[str] = []
    for fact in known:
        where = f"{source}:{fact.line}"
        if fact.name == "package":
            name, version = fact.value
            packages.setdefault(name, version)
            places.setdefault(name, where)
        elif fact.name == "transformers":
            one.setdefault("transformers", fact.value)
        elif fact.name == "gpu":
            gpus = [fact.value] if fact.value not in gpus else gpus
            places.setdefault("gpus", where)
        else:
            one.setdefault(fact.name, fact.value)
            places.setdefault(fact.name, where)
    if "transformers" in one:
        packages.setdefault("transformers", one["transformers"])
    torch = packages.get("torch", "")
    if "cuda" not in one and "+cu" in torch and torch.rsplit("+cu", 1)[-1].isdigit():
        digits = torch.rsplit("+cu", 1)[-1]
        one["cuda"] = f"{digits[:-1]}.{digits[-1]}"
    return Environment(
        packages=packages, gpus=tuple(gpus), places=places, python=one.get("python"), cuda=one.get("cuda"), driver=one.get("driver"),
        gpu_memory=one.get("gpu_memory"), processes=one.get("processes"), device=one.get("device"),
    )  # fmt: skip


def model_of(scan: Scan, run: Run, source: str) -> Model | None:
    """Counts of parameters that the log names."""
    counts: dict[str, float] = {}
    places: dict[str, str] = {}
    for fact in _known(scan, run, "model"):
        if fact.name not in counts:
            counts[fact.name] = float(fact.value)
            places[fact.name] = f"{source}:{fact.line}"
    if not counts:
        return None
    return Model(parameters=counts.get("parameters"), trainable=counts.get("trainable"), places=places, sources=(source,))


def settings_of(scan: Scan, run: Run, source: str, tables: Sequence[Table]) -> Settings | None:
    """The Trainer's opening block, and whose trainer it is."""
    values: dict[str, Setting] = {}
    unknown: dict[str, Setting] = {}
    for fact in _known(scan, run, "settings"):
        key = _key(fact.text)
        setting = Setting(fact.value, f"{source}:{fact.line}", source, key, fact.text)
        (unknown if fact.name in {"num_examples", "total_steps"} else values).setdefault(fact.name, setting)
    framework = _framework(scan.facts) or next(
        (form for number in run.rows.table.tolist()[:1] if (form := tables[number].form.framework)), ""
    )
    if not values and not unknown and not framework:
        return None
    return Settings(values=values, framework=framework, unknown=unknown)


def _key(text: str) -> str:
    return text.rsplit(" - ", 1)[-1].split("=", 1)[0].strip() if "=" in text else ""


def _framework(facts: Iterable[Fact]) -> str:
    """The most particular trainer that is named: LLaMA-Factory prints transformers' and TRL's lines too."""
    said = {fact.value for fact in facts if fact.name == "framework"}
    order = ("llama-factory", "ms-swift", "axolotl", "torchtune", "torchtitan", "megatron", "unsloth", "trl", "lightning")
    return next((name for name in order if name in said), "")


def kind_said(scan: Scan) -> str:
    """The kind that the log's words tell: "diffusion"; "text" where the trainer trains language models only; "" else."""
    said = {fact.name for fact in scan.facts}
    if "diffusion" in said:
        return "diffusion"
    return (
        "text"
        if _framework(scan.facts) in {"llama-factory", "ms-swift", "axolotl", "torchtune", "unsloth", "megatron", "torchtitan"}
        else ""
    )
