"""Generated runs: healthy families, and the parts that the generated faults in `faults.py` are made of.

Each run is `Evidence` as the readers would leave it: series with steps, settings, model. The sizes of noise, falls and
gradient norms are those of public runs (`usual_curves.json`); every run is drawn from its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tuneclinic.evidence import Evidence
from tuneclinic.sections import Metrics, Model, Series, Setting, Settings

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Rng: TypeAlias = np.random.Generator
VOCABULARY = 151_936
LENGTHS = (20, 60, 200, 600, 3000)


@dataclass(frozen=True)
class Made:
    """One generated run, with what a good report names: any of `symptoms`, and first any of `suspects`."""

    kind: str
    seed: int
    evidence: Evidence
    symptoms: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()


@dataclass
class Draft:
    """A run being made: the loss, then whatever a fault changes, then `evidence()`."""

    rng: Rng
    loss: Array
    every: int = 1
    peak: float = 2e-4
    epochs: float = 2.0
    schedule: str = "cosine"
    settings: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Array] = field(default_factory=dict)
    evals: tuple[Array, Array] | None = None
    kind: str = "causal-lm"
    model: Model = field(
        default_factory=lambda: Model(name="Qwen2.5-1.5B-Instruct", vocabulary=VOCABULARY, parameters=1.54e9, dtype="bfloat16")
    )
    total: float | None = None
    finished: bool | None = True
    steps: Array | None = None

    def __post_init__(self) -> None:
        """Steps, rate, gradient norm, epoch and speed of a healthy run; a fault overwrites them in `extra`."""
        count = len(self.loss)
        self.extra = {
            "learning_rate": rate(count, self.peak, self.schedule),
            "grad_norm": norms(self.rng, count),
            "epoch": np.linspace(0, self.epochs, count + 1)[1:],
            "step_seconds": seconds(self.rng, count),
            **self.extra,
        }

    def evidence(self) -> Evidence:
        """The run as evidence."""
        count = len(self.loss)
        steps = self.steps if self.steps is not None else np.arange(1, count + 1) * float(self.every)
        series = {"loss": Series.of(self.loss, steps)}
        series |= {name: Series.of(values, steps[: len(values)]) for name, values in self.extra.items()}
        if self.evals is not None:
            series["eval_loss"] = Series.of(self.evals[1], self.evals[0] * self.every)
        values = {
            "learning_rate": self.peak, "scheduler": self.schedule, "epochs": self.epochs, "warmup_ratio": 0.03,
            "batch_per_device": 4, "accumulation": 4, "bf16": True, "method": "lora", "lora_rank": 16, "lora_alpha": 32,
            "max_grad_norm": 1.0, **self.settings,
        }  # fmt: skip
        held = {
            name: Setting(value, f"config.yaml:{line}", "config.yaml", name)
            for line, (name, value) in enumerate(values.items(), 1)
        }
        metrics = Metrics(series, self.kind, self.total or float(np.max(steps)), self.finished, source="trainer_state.json")
        return Evidence(metrics=metrics, settings=Settings(held, "transformers"), model=self.model)


def rate(count: int, peak: float, schedule: str = "cosine") -> Array:
    """A learning rate that warms up over 3 % of the rows, then follows `schedule`."""
    warm = max(1, int(0.03 * count))
    up = np.arange(1, warm + 1) / warm
    rest = np.linspace(0, 1, count - warm)
    down = {"cosine": (1 + np.cos(np.pi * rest)) / 2, "linear": 1 - rest, "constant": np.ones_like(rest)}[schedule]
    return peak * np.concatenate((up, down))


def norms(rng: Rng, count: int) -> Array:
    """Gradient norms: 0.3 to 15 by run, three times higher in the first rows, log-normal from row to row."""
    level = np.exp(rng.uniform(np.log(0.3), np.log(6)))
    fall = 1 + rng.uniform(0, 3) * np.exp(-np.arange(count) / max(2, 0.03 * count))
    drift = np.linspace(1, rng.uniform(0.7, 2.0), count)
    return level * fall * drift * np.exp(rng.uniform(0.1, 0.35) * rng.standard_normal(count))


def seconds(rng: Rng, count: int) -> Array:
    """Seconds a step: a slow first one (compilation), lengths that vary, now and then a save."""
    times = rng.uniform(0.3, 8) * np.exp(rng.uniform(0.02, 0.25) * rng.standard_normal(count))
    times[0] *= rng.uniform(1, 20)
    times[rng.random(count) < 0.01] *= rng.uniform(2, 6)
    return times


def fall(count: int, first: float, last: float, pace: float = 0.12) -> Array:
    """A loss that falls from `first` to about `last`: fast at first, then slowly."""
    passed = np.arange(count) / max(1, count - 1)
    shape = 0.7 * np.exp(-passed / pace) + 0.3 * (1 - passed)
    return last + (first - last) * shape


def multiplicative(rng: Rng, clean: Array, size: float | None = None) -> Array:
    """Noise family one: log-normal, 0.05 to 0.25 of the loss."""
    return clean * np.exp((rng.uniform(0.05, 0.25) if size is None else size) * rng.standard_normal(len(clean)))


def heavy(rng: Rng, clean: Array, size: float | None = None) -> Array:
    """Noise family two: additive, its size drifting and varying by batch, with the tails of Student's t at 4 degrees."""
    spread = (rng.uniform(0.03, 0.10) if size is None else size) * np.median(clean)
    waves = 1 + 0.5 * np.sin(np.linspace(0, rng.uniform(1, 12), len(clean)))
    lengths = np.exp(0.3 * rng.standard_normal(len(clean)))
    return np.maximum(clean + spread * waves * lengths * rng.standard_t(4, len(clean)), 0.15 * clean)


Noise: TypeAlias = Callable[..., Array]


def noisy(rng: Rng, clean: Array, noise: Noise, *, averaged: bool) -> Array:
    """`clean` with noise; averaged windows of ten steps have a third of it."""
    if not averaged:
        return noise(rng, clean)
    return np.mean([noise(rng, clean) for _ in range(10)], axis=0)


def evaluations(rng: Rng, count: int, first: float, last: float, number: int | None = None) -> tuple[Array, Array]:
    """Rows and losses of evaluations on a fixed set: a smooth fall with 0.1 to 0.6 % of jitter, now and then a slight last rise."""
    number = int(rng.integers(3, 13)) if number is None else number
    number = min(number, count // 4)
    at = np.linspace(count / number, count, number).round()
    clean = fall(number, first, last, 0.3)
    return at, clean * (1 + rng.uniform(0.001, 0.006) * rng.standard_normal(number))


def draw(seed: int, noise: Noise) -> tuple[Rng, int, bool, Noise]:
    """What every run draws first: its generator, its length, whether rows are averages."""
    rng = np.random.default_rng(seed)
    count = int(LENGTHS[seed % len(LENGTHS)])
    return rng, count, bool(rng.random() < 0.4), noise


def chat(seed: int, noise: Noise) -> Draft:
    """LoRA on a chat model: 0.6 to 2.2 nats at the start, a modest fall."""
    rng, count, averaged, noise = draw(seed, noise)
    first = rng.uniform(0.6, 2.2)
    last = first * (1 - rng.uniform(0.1, 0.45))
    draft = Draft(rng, noisy(rng, fall(count, first, last), noise, averaged=averaged), 10 if averaged else 1)
    draft.evals = evaluations(rng, count, first * 1.02, min(last * rng.uniform(1.0, 1.25), 0.98 * first))
    return draft


def base(seed: int, noise: Noise) -> Draft:
    """Full tuning of a base model on instructions, linear decay."""
    rng, count, averaged, noise = draw(seed, noise)
    first = rng.uniform(1.4, 3.2)
    last = first * (1 - rng.uniform(0.2, 0.5))
    loss = noisy(rng, fall(count, first, last, 0.06), noise, averaged=averaged)
    return Draft(rng, loss, 10 if averaged else 1, 2e-5, 1.0, "linear", {"method": "full"})


def scratch(seed: int, noise: Noise) -> Draft:
    """Pre-training from random weights: starts at ln V, a hump in the first steps, little noise."""
    rng, count, _, _ = draw(seed, noise)
    start = np.log(50_304) + rng.uniform(0, 0.3)
    clean = fall(count, start, rng.uniform(2.5, 6.0), 0.08)
    hump = rng.uniform(0, 5) * np.exp(-0.5 * ((np.arange(count) - 3) / 1.2) ** 2)
    loss = noise(rng, clean, 0.01 if noise is heavy else 0.02) + hump
    return Draft(
        rng, loss, 1, 6e-4, 1.0, "cosine", {"method": "full"}, model=Model(name="gpt2", vocabulary=50_304, parameters=1.2e8)
    )  # fmt: skip


def epochs(seed: int, noise: Noise) -> Draft:
    """Three to five epochs on a small set: mild stairs at the borders, evaluation falling and then level."""
    rng, count, averaged, noise = draw(seed, noise)
    number = int(rng.integers(3, 6))
    stairs = 1 - rng.uniform(0.01, 0.06) * np.floor(np.arange(count) * number / count)
    first = rng.uniform(0.9, 2.0)
    loss = noisy(rng, fall(count, first, first * 0.75, 0.05) * stairs, noise, averaged=averaged)
    draft = Draft(rng, loss, 10 if averaged else 1, epochs=number)
    draft.evals = evaluations(rng, count, first, first * rng.uniform(0.75, 0.9), number)
    return draft


def half(seed: int, noise: Noise) -> Draft:
    """fp16: the loss scale is searched in the first steps (infinite norms), and a rare overflow later."""
    draft = chat(seed, noise)
    count = len(draft.loss)
    searched = int(draft.rng.integers(1, 6))
    draft.extra["grad_norm"][:searched] = np.inf
    scale = np.full(count, 65536.0)
    scale[:searched] = 65536.0 * 2.0 ** np.arange(searched, 0, -1)
    if count > 100:
        draft.extra["grad_norm"][draft.rng.integers(20, count - 20)] = np.inf
    draft.extra["loss_scale"] = scale
    draft.settings = {"fp16": True, "bf16": False}
    return draft


def pairs(seed: int, noise: Noise) -> Draft:
    """DPO: 0.693 at the start, margins grow, the chosen reward falls with the rejected one."""
    rng, count, averaged, noise = draw(seed, noise)
    clean = fall(count, np.log(2), rng.uniform(0.32, 0.58), 0.3)
    share = 1 - np.exp(-np.arange(count) / (0.4 * count))
    share /= share[-1]
    loss = clean + np.sqrt(share) * (noisy(rng, clean, noise, averaged=averaged) - clean)  # exactly ln 2 before the first step
    grown = rng.uniform(0.5, 1.6) * share
    chosen = -rng.uniform(-0.1, 0.8) * grown + 0.1 * share * rng.standard_normal(count)
    margin = grown + 0.15 * np.sqrt(share) * rng.standard_normal(count)
    extra = {
        "rewards/chosen": chosen,
        "rewards/rejected": chosen - margin,
        "rewards/margins": margin,
        "rewards/accuracies": np.clip(0.5 + 0.3 * grown / grown.max() + 0.1 * rng.standard_normal(count), 0, 1),
    }
    return Draft(rng, loss, 10 if averaged else 1, 5e-6, 1.0, "cosine", {"stage": "dpo", "beta": 0.1}, extra, kind="dpo")


def rewards(seed: int, noise: Noise) -> Draft:
    """GRPO: a loss about 0, the reward rising, a small KL, completions getting longer."""
    rng, count, _, _ = draw(seed, noise)
    reward = rng.uniform(0.1, 0.4) + 0.4 * (1 - np.exp(-np.arange(count) / (0.5 * count)))
    extra = {
        "reward": reward + 0.08 * rng.standard_normal(count),
        "reward_std": np.abs(0.3 + 0.05 * rng.standard_normal(count)),
        "kl": np.abs(np.linspace(0, rng.uniform(0.005, 0.1), count) * np.exp(0.3 * rng.standard_normal(count))),
        "completion_length": np.linspace(200, 600, count) * np.exp(0.1 * rng.standard_normal(count)),
        "step_seconds": np.linspace(10, 30, count) * np.exp(0.1 * rng.standard_normal(count)),
    }
    loss = 0.02 * rng.standard_normal(count) * (rng.random(count) > 0.2)
    return Draft(rng, loss, 1, 1e-6, 1.0, "constant", {"stage": "grpo"}, extra, kind="grpo")


def diffusion(seed: int, noise: Noise) -> Draft:
    """A diffusion loss: flat at about 0.3 and very noisy, by nature."""
    rng, count, _, _ = draw(seed, noise)
    return Draft(rng, rng.gamma(1.2, 0.28, count).round(4), 1, 5e-5, 10.0, "constant", {}, {}, kind="diffusion")


def pictures(seed: int, noise: Noise) -> Draft:
    """A short vision-language demo: a deep fall on an easy target, very noisy rows."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(30, 61))
    first = rng.uniform(0.4, 3.6)
    clean = fall(count, first, max(0.05, first * rng.uniform(0.05, 0.45)), 0.3)
    size = rng.uniform(0.1, 0.4) if noise is multiplicative else rng.uniform(0.05, 0.15)
    model = Model(name="Qwen2-VL-7B-Instruct", vocabulary=VOCABULARY, parameters=8.3e9, vision=True)
    return Draft(rng, noise(rng, clean, size), 1, 2e-4, 1.0, "linear", {}, model=model)


def resumed(seed: int, noise: Noise) -> Draft:
    """Stopped and resumed as it should be: the step goes back to the checkpoint, the loss goes on where it was."""
    draft = chat(seed, noise)
    count = len(draft.loss)
    row = int(count * draft.rng.uniform(0.3, 0.8))
    steps = np.arange(1, count + 1, dtype=np.float64)
    steps[row:] -= min(row - 2, max(2, count // 50))
    draft.steps, draft.total, draft.evals = steps * draft.every, float(steps[-1] * draft.every), None
    return draft


def unlogged(seed: int, noise: Noise) -> Draft:
    """A loop that prints the gradient norm as 0.0 because it does not compute it, and no evaluation."""
    draft = base(seed, noise)
    draft.extra["grad_norm"][:] = 0.0
    return draft


HEALTHY: Mapping[str, Callable[[int, Noise], Draft]] = {
    "chat": chat,
    "base": base,
    "scratch": scratch,
    "epochs": epochs,
    "half": half,
    "pairs": pairs,
    "rewards": rewards,
    "diffusion": diffusion,
    "pictures": pictures,
    "resumed": resumed,
    "unlogged": unlogged,
}
"""Healthy families by name."""
NOISES: Mapping[str, Noise] = {"multiplicative": multiplicative, "heavy": heavy}


def healthy(count: int) -> list[Made]:
    """`count` healthy runs over all families and both kinds of noise."""
    made = []
    names = list(HEALTHY)
    for seed in range(count):
        name, noise = names[seed % len(names)], list(NOISES)[seed // len(names) % 2]
        made.append(Made(f"{name}/{noise}", seed, HEALTHY[name](10_000 + seed // 2 * 7 + seed, NOISES[noise]).evidence()))
    return made
