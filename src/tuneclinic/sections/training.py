"""What was set and what was logged: settings, metrics, attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tuneclinic.values import dataclass

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its value under the vocabulary's name, and the place and key the user wrote.

    `written` is the user's own text (`flash_attn: fa2`, `--bf16 True`) where a reader brought the value into another form.
    `default` says that it is only a default of the user's own script, which a command line or a call may have overridden;
    a default contradicts nothing.
    """

    value: Any
    where: str = ""
    source: str = ""
    key: str = ""
    written: str = ""
    default: bool = False

    @property
    def quote(self) -> str:
        """The setting as the user wrote it: `learning_rate: 2e-5`."""
        if self.written:
            return self.written
        return f"{self.key}: {self.value}" if self.key else str(self.value)


@dataclass(frozen=True, slots=True)
class Settings:
    """Hyperparameters of a run under one set of names (`vocabulary.py`), each with its place.

    `framework` names who reads these keys: "transformers", "trl", "llama-factory", "axolotl", "ms-swift",
    "torchtune", "lightning", "pytorch", … `unknown` keeps keys that the vocabulary does not have.
    `conflicts` keeps values that a second file gave for a name already set.
    """

    values: Mapping[str, Setting] = field(default_factory=dict)
    framework: str = ""
    unknown: Mapping[str, Setting] = field(default_factory=dict)
    conflicts: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `name`, or `default` where it was not set."""
        setting = self.values.get(name)
        return default if setting is None else setting.value

    def number(self, name: str) -> float | None:
        """The value of `name` as a float; None where it is unset, a switch, or no number ("auto")."""
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return None
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            return None

    def flag(self, name: str) -> bool | None:
        """The value of `name` as a switch; None where it was not set or is neither."""
        value = self.get(name)
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text in {"true", "yes", "on", "1"}:
            return True
        if text in {"false", "no", "off", "0"}:
            return False
        return None

    def merge(self, later: Settings) -> Settings:
        """This one and, for names it lacks, `later`; differing values of `later` are kept as conflicts."""
        conflicts = {**later.conflicts, **self.conflicts}
        for name, setting in later.values.items():
            mine = self.values.get(name)
            if mine is not None and mine.value != setting.value and not setting.default:
                conflicts[name] = (*conflicts.get(name, ()), setting)
        return Settings(
            values={**later.values, **self.values},
            framework=self.framework or later.framework,
            unknown={**later.unknown, **self.unknown},
            conflicts=conflicts,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """One logged quantity: `steps` and `values` of equal length, float64, in the order they were logged.

    `lines` holds the line (text) or row (JSON array, from 1) of each point in `source`, where known.
    """

    steps: Array
    values: Array
    source: str = ""
    lines: Array | None = None

    @classmethod
    def of(cls, values: ArrayLike, steps: ArrayLike | None = None, source: str = "log", lines: ArrayLike | None = None) -> Series:
        """A series from any sequences; steps count from 1 where none are given."""
        held = np.asarray(values, dtype=np.float64)
        at = np.arange(1, len(held) + 1, dtype=np.float64) if steps is None else np.asarray(steps, dtype=np.float64)
        return cls(at, held, source, None if lines is None else np.asarray(lines, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.values)

    def where(self, index: int) -> str:
        """The place of one point as a person would cite it: `step 40 (train.log:120)`."""
        step = f"step {self.steps[index]:g}"
        if self.lines is None:
            return step
        return f"{step} ({self.source}:{int(self.lines[index])})"


@dataclass(frozen=True, eq=False, slots=True)
class Metrics:
    """What the run logged over its steps.

    `series` maps names to series: "loss", "eval_loss", "grad_norm", "learning_rate", "epoch", "loss_scale",
    "tokens_per_second", "step_seconds", "memory_gib", "rewards/chosen", "rewards/rejected", "rewards/margins",
    "rewards/accuracies", "logps/chosen", "logps/rejected", "reward", "kl", "completion_length", "entropy",
    "accuracy", "eval_accuracy"; every other quantity keeps the name its log gave it.
    `kind` is what the loss is of: "causal-lm", "dpo", "kto", "grpo", "ppo", "reward", "classification", "diffusion"
    or "" where the log does not tell. `finished` is None where the log does not tell. `rows_are_steps` says that the
    log printed no step and rows were counted. `by_rank` holds per-rank series where ranks logged side by side.
    `summary` holds end-of-run numbers (train_loss, train_runtime, eval_loss …).
    `resumed_at` holds the first step after each resume that the reader saw, also where the replaced rows are gone.
    """

    series: Mapping[str, Series] = field(default_factory=dict)
    kind: str = ""
    total_steps: float | None = None
    finished: bool | None = None
    rows_are_steps: bool = False
    summary: Mapping[str, float] = field(default_factory=dict)
    by_rank: Mapping[int, Mapping[str, Series]] = field(default_factory=dict)
    source: str = ""
    resumed_at: tuple[float, ...] = ()

    def get(self, name: str) -> Series | None:
        """The series called `name` if it has at least one point."""
        series = self.series.get(name)
        return series if series is not None and len(series) else None

    def merge(self, later: Metrics) -> Metrics:
        """The union of two views of one run; of a series in both, the one with more points."""
        series = dict(self.series)
        for name, other in later.series.items():
            mine = series.get(name)
            if mine is None or len(other) > len(mine):
                series[name] = other
        return replace(
            self,
            series=series,
            kind=self.kind or later.kind,
            total_steps=self.total_steps if self.total_steps is not None else later.total_steps,
            finished=self.finished if self.finished is not None else later.finished,
            rows_are_steps=self.rows_are_steps and later.rows_are_steps,
            summary={**later.summary, **self.summary},
            by_rank={**later.by_rank, **self.by_rank},
            source=self.source or later.source,
            resumed_at=self.resumed_at or later.resumed_at,
        )
