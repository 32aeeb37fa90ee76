"""The series of one run, and what kind of loss they tell of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tuneclinic.probes.lines._facts import Fact
from tuneclinic.probes.lines._names import RESERVED
from tuneclinic.probes.lines._rows import Rows
from tuneclinic.probes.lines._runs import Run
from tuneclinic.probes.lines._table import Table
from tuneclinic.sections import Metrics, Series
from tuneclinic.sections.training import Array

TOKEN_ACCURACY = frozenset({"token_acc", "mean_token_accuracy"})
"""What ms-swift and TRL print beside the loss of a language model."""
INSTEAD = ("epoch_loss", "train_split_loss", "other_loss")
"""What stands in for the training loss where no row of its own was printed."""


def metrics_of(run: Run, tables: Sequence[Table], source: str, said: str = "", facts: Sequence[Fact] = ()) -> Metrics:
    """The series of one run; `facts` are the whole log's."""
    series = _series(run.rows, run.steps, tables, source)
    by_rank = {}
    for rank, rows in run.ranks.items():
        steps = rows.place if not np.isnan(rows.place).any() else np.arange(1, len(rows) + 1, dtype=np.float64)
        by_rank[rank] = _series(rows, steps, tables, source)
    used = {number: tables[number] for number in set(run.rows.table.tolist())}
    return Metrics(
        series=series, kind=kind_of(set(series), list(used.values()), said), total_steps=run.total, finished=run.finished,
        rows_are_steps=run.rows_are_steps, summary=run.summary, by_rank=by_rank, source=source,
        resumed_at=_resumed(run, facts),
    )  # fmt: skip


def _resumed(run: Run, facts: Sequence[Fact]) -> tuple[float, ...]:
    """The first step after each announced resume that has rows on both sides; where steps go back, they tell it themselves."""
    steps, orders = run.steps[run.rows.train], run.rows.order[run.rows.train]
    if len(steps) == 0 or np.any(np.diff(steps) < 0):
        return ()
    marks = [fact.order for fact in facts if fact.name == "resumed" and run.begins <= fact.order < run.ends]
    places = sorted({int(at) for at in np.searchsorted(orders, marks)})
    return tuple(float(steps[at]) for at in places if 0 < at < len(steps))


def _series(rows: Rows, steps: Array, tables: Sequence[Table], source: str) -> dict[str, Series]:
    parts: dict[str, list[tuple[Array, Array, Array, Array]]] = {}
    renamed, final = _renamed(rows, tables), _final(rows, steps, tables)
    for number in sorted(set(rows.table.tolist())):
        table, mine = tables[number], np.flatnonzero((rows.table == number) & final)
        index = rows.index[mine]
        lines = np.frombuffer(table.lines, dtype=np.int64)[index]
        for name, values in _columns(table, renamed.get(number, {})):
            held = values[index]
            kept = _changes(held) if table.form.bar and name.startswith("eval_") else slice(None)
            parts.setdefault(name, []).append((rows.order[mine][kept], steps[mine][kept], held[kept], lines[kept]))
    series = {name: _joined(made, source) for name, made in parts.items()}
    for name in INSTEAD:
        if "loss" not in series and name in series:
            series["loss"] = series.pop(name)
    return series


def _columns(table: Table, renamed: dict[str, str]) -> Iterator[tuple[str, Array]]:
    for name in table.measured:
        values = table.column(name)
        if values is not None and name not in RESERVED:
            yield renamed.get(name, name), values


def _renamed(rows: Rows, tables: Sequence[Table]) -> dict[int, dict[str, str]]:
    """A loss by epoch beside losses by step is the epoch's mean; a guessed loss beside one of a known format is another one."""
    with_loss = [
        number for number in set(rows.table.tolist()) if "loss" in tables[number].names and tables[number].kind == "train"
    ]
    stepped = {number for number in with_loss if {"step", "epoch_step"} & set(tables[number].names)}
    known = {number for number in with_loss if not tables[number].form.last_resort}
    renamed: dict[int, dict[str, str]] = {}
    for number in with_loss:
        if stepped and number not in stepped and tables[number].form.last_resort:
            renamed[number] = {"loss": "epoch_loss"}
        elif known and number not in known:
            renamed[number] = {"loss": "other_loss"}
    return renamed


def _final(rows: Rows, steps: Array, tables: Sequence[Table]) -> Array:
    """All rows, but of bars only the last drawn at each step; the bar may have gained columns since the one before."""
    result = np.ones(len(rows), dtype=bool)
    bars = np.flatnonzero(np.array([table.form.bar for table in tables])[rows.table]) if len(rows) else np.zeros(0, dtype=int)
    result[bars] = _last_of_step(steps[bars])
    return result


def _last_of_step(steps: Array) -> Array:
    return np.concatenate((steps[1:] != steps[:-1], [True])) if len(steps) else np.zeros(0, dtype=bool)


def _changes(values: Array) -> Array:
    same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    return np.concatenate(([True], ~same)) if len(values) else np.zeros(0, dtype=bool)


def _joined(parts: list[tuple[Array, Array, Array, Array]], source: str) -> Series:
    order, steps, values, lines = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(parts) > 1:
        ordered = np.argsort(order, kind="stable")
        steps, values, lines = steps[ordered], values[ordered], lines[ordered]
    return Series(steps, np.array(values), source, lines)


def kind_of(names: set[str], tables: Iterable[Table], said: str = "") -> str:
    """What the loss is of, by the names of the series, else by a trainer that trains nothing else; "" where neither tells."""
    if said == "diffusion":
        return said
    used = list(tables)
    if "rewards/chosen" in names:
        return "kto" if "kl" in names and "rewards/accuracies" not in names else "dpo"
    if names & {
        "critic/vf_loss",
        "objective/entropy",
        "policy/approxkl_avg",
        "loss/value_avg",
        "ppo/loss/total",
        "critic/vf_explained_var",
    }:
        return "ppo"
    if (
        names & {"frac_reward_zero_std", "completions/mean_length", "actor/pg_clipfrac", "reward_std"}
        or {"reward", "completion_length"} <= names
    ):
        return "grpo"
    if names & {"min_reward", "mean_reward", "max_reward", "center_rewards_loss"} or {"margin", "accuracy"} <= names:
        return "reward"
    if any(TOKEN_ACCURACY & set(table.printed) for table in used):
        return "causal-lm"
    if names & {"eval_f1", "eval_matthews_correlation", "eval_precision", "eval_accuracy"} and not names & {
        "num_tokens",
        "num_input_tokens_seen",
    }:
        return "" if said == "text" else "classification"
    kinds = {table.form.kind for table in used} - {""}
    if len(kinds) == 1:
        return kinds.pop()
    if any("train/loss" in table.printed and table.form.framework == "verl" for table in used):
        return "causal-lm"
    text = {"num_tokens", "num_input_tokens_seen", "perplexity", "eval_perplexity", "tokens_per_second", "eval_bpb", "lrm"}
    return "causal-lm" if names & text or said == "text" else ""
