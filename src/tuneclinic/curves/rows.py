"""The training loss prepared for the statistics: which rows count, what stands beside them, what kind of loss it is."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import robust
from tuneclinic.curves.robust import Array
from tuneclinic.sections import Metrics, Series
from tuneclinic.values import dataclass

REINFORCEMENT = frozenset({"grpo", "ppo", "rloo", "rl", "reinforce"})
"""Kinds whose loss has no floor, no level and no direction."""
PREFERENCE = frozenset({"dpo", "kto", "orpo", "simpo", "cpo", "ipo", "bco"})
"""Kinds whose loss compares pairs."""
TOKEN_LOSSES = frozenset({"", "causal-lm", "sft", "pretrain", "vlm", "seq2seq"})
"""Kinds whose loss may be a mean cross-entropy of tokens, in nats."""

BESIDE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dpo", ("rewards/chosen", "rewards/margins", "logps/chosen")),
    ("grpo", ("reward", "rewards/mean", "frac_reward_zero_std", "completion_length", "completions/mean_length", "reward_std")),
    ("ppo", ("pg_loss", "actor/pg_loss", "critic/vf_loss", "ppo_kl", "actor/ppo_kl", "objective/kl", "policy/approxkl_avg")),
    ("classification", ("eval_f1", "eval_matthews_correlation", "eval_roc_auc")),
)
"""Series that tell the kind of a loss whose log does not name it."""


CLASS_START = 1.2
"""Nats at the first row under which a run that evaluates an accuracy and logs none while training is taken for classification:
ln 2 and ln 3 are 0.69 and 1.10. Language models log a token accuracy too, but start higher or log it in training as well."""


def kind_of(metrics: Metrics) -> str:
    """`metrics.kind`, or what the names of the series tell; "" where nothing does."""
    if metrics.kind:
        return metrics.kind
    named = next((kind for kind, names in BESIDE if any(name in metrics.series for name in names)), "")
    if named or not metrics.get("eval_accuracy") or metrics.get("accuracy") or metrics.get("mean_token_accuracy"):
        return named
    loss = metrics.get("loss")
    return "classification" if loss is None or float(loss.values[0]) < CLASS_START else ""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one series in the order they were logged, repeated prints of one row dropped.

    steps, values: float64, equal length, values may be NaN. `back` are indices at which the step went back.
    """

    steps: Array
    values: Array

    @classmethod
    def of(cls, series: Series | None) -> Rows:
        """The rows of `series`; empty for None. Bars and some trainers print one row several times."""
        if series is None:
            return cls(np.empty(0), np.empty(0))
        size = min(len(series.steps), len(series.values))
        steps = np.asarray(series.steps[:size], dtype=np.float64)
        values = np.asarray(series.values[:size], dtype=np.float64)
        same = steps[1:] == steps[:-1]
        if same.any():
            again = same & ((values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1])))
            fresh = np.concatenate(([True], ~again))
            steps, values = steps[fresh], values[fresh]
        return cls(steps, values)

    def __len__(self) -> int:
        return len(self.values)

    def beside(self, other: Rows) -> tuple[Array, Array]:
        """`other`'s value at each of these steps, and where it has one. Values may be NaN where present."""
        count = len(self)
        if not len(other) or not count:
            return np.full(count, np.nan), np.zeros(count, dtype=bool)
        if len(other) == count and np.array_equal(other.steps, self.steps):
            return other.values, np.ones(count, dtype=bool)
        ordered = np.argsort(other.steps, kind="stable")
        at_steps = other.steps[ordered]
        found = np.clip(np.searchsorted(at_steps, self.steps, side="right") - 1, 0, len(ordered) - 1)
        present = at_steps[found] == self.steps
        return np.where(present, other.values[ordered[found]], np.nan), present


@dataclass(frozen=True, eq=False)
class Curve:
    """The loss rows that carry a true value: finite, and neither a hidden NaN nor an all-masked zero."""

    steps: Array
    values: Array
    kind: str

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def noise(self) -> float:
        """Robust standard deviation from row to row, in loss units."""
        return robust.jitter(self.values)

    @cached_property
    def smoothed(self) -> tuple[Array, float]:
        """The running median and the rows behind each point."""
        return robust.smooth(self.values)

    @cached_property
    def level(self) -> float:
        """Median size of the loss."""
        return float(median(np.abs(self.values))) if len(self) else 0.0

    @property
    def token_loss(self) -> bool:
        """Whether the loss may be a mean cross-entropy of tokens."""
        return self.kind in TOKEN_LOSSES

    @cached_property
    def logs(self) -> Array:
        """Natural logarithm of the loss, floored at a ten-thousandth of its level; relative values where it goes negative."""
        if self.level <= 0:
            return self.values
        if float(np.min(self.values)) < 0:
            return self.values / self.level
        return np.asarray(np.log(np.maximum(self.values, 1e-4 * self.level)))


def last_run(rows: Rows) -> Rows:
    """The longest stretch between places where the step falls back to the start: several runs may share a file."""
    if len(rows) < 2:
        return rows
    restarts = np.flatnonzero((np.diff(rows.steps) < 0) & (rows.steps[1:] <= rows.steps[0])) + 1
    if not len(restarts):
        return rows
    borders = np.concatenate(([0], restarts, [len(rows)]))
    best = int(np.argmax(np.diff(borders)))
    part = slice(borders[best], borders[best + 1])
    return Rows(rows.steps[part], rows.values[part])
