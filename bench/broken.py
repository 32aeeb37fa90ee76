"""Generated faults: one function a kind, each breaking a healthy draft in exactly one way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from curves import NOISES, VOCABULARY, Draft, base, chat, fall, multiplicative, norms, pairs, rewards, scratch

LN_V = float(np.log(VOCABULARY))


def _long(seed: int, family: Callable[..., Draft] = chat, least: int = 60) -> Draft:
    """A healthy draft of at least `least` rows, its noise family by seed."""
    noise = list(NOISES.values())[seed % 2]
    for shift in range(20):
        draft = family(seed + 1009 * shift, noise)
        if len(draft.loss) >= least:
            return draft
    raise AssertionError("no length is that long")


def _quiet(draft: Draft, level: float, size: float) -> Draft:
    """A loss that sits at `level` with relative noise `size`; the evaluation with it."""
    count = len(draft.loss)
    draft.loss = level * np.exp(size * draft.rng.standard_normal(count))
    draft.evals = (
        (draft.evals[0], level * np.exp(0.003 * draft.rng.standard_normal(len(draft.evals[0])))) if draft.evals else None
    )
    return draft


def diverges(seed: int) -> Draft:
    """Learning rate a hundred times too high: the loss rises at the end of warm-up and stays at several nats."""
    draft = _long(seed, base)
    count = len(draft.loss)
    start = int(count * draft.rng.uniform(0.15, 0.5))
    rise = draft.rng.uniform(1.0, 5.0) * (1 - np.exp(-np.arange(count - start) / (0.06 * count)))
    draft.loss[start:] += rise * np.exp(0.1 * draft.rng.standard_normal(count - start))
    draft.extra["grad_norm"][start:] *= 1 + 3 * rise
    return _rate(draft, draft.rng.uniform(1e-3, 5e-3))


def _rate(draft: Draft, peak: float) -> Draft:
    draft.extra["learning_rate"] = draft.extra["learning_rate"] * (peak / draft.peak)
    draft.peak = float(peak)
    return draft


def nan_at_start(seed: int) -> Draft:
    """bf16 weights trained in fp16: NaN from the first or second row."""
    draft = _long(seed, chat, 20)
    row = int(draft.rng.integers(0, 2))
    draft.loss[row:] = np.nan
    draft.extra["grad_norm"][row:] = np.nan
    draft.settings = {"fp16": True, "bf16": False}
    draft.evals = None
    return draft


def nan_mid_run(seed: int) -> Draft:
    """A high rate: the gradient norm grows over some rows, then loss and norm are NaN."""
    draft = _long(seed, base)
    count = len(draft.loss)
    row = int(count * draft.rng.uniform(0.3, 0.8))
    rows = max(4, count // 20)
    draft.extra["grad_norm"][row - rows : row] *= np.linspace(2, 60, rows)
    draft.loss[row - rows : row] *= np.linspace(1, 2.5, rows)
    draft.loss[row:] = np.nan
    draft.extra["grad_norm"][row:] = np.nan
    return _rate(draft, draft.rng.uniform(5e-4, 2e-3))


def nan_hidden(seed: int) -> Draft:
    """fp16 overflow that the trainer's NaN filter prints as loss 0.0 while the gradient norm is nan."""
    draft = _long(seed, chat, 20)
    row = int(len(draft.loss) * draft.rng.uniform(0.3, 0.8))
    draft.loss[row:] = 0.0
    draft.extra["grad_norm"][row:] = np.nan
    draft.settings = {"fp16": True, "bf16": False}
    draft.evals = None
    return draft


def all_masked(seed: int) -> Draft:
    """Every label is -100: loss 0.0 with gradient norm 0 from the first row."""
    draft = _long(seed, chat, 20)
    draft.loss[:] = 0.0
    draft.extra["grad_norm"][:] = 0.0
    draft.evals = None
    return draft


def uniform_frozen(seed: int) -> Draft:
    """Nothing trains: ln V, and the same losses in every epoch to the last digit."""
    draft = _long(seed, scratch)
    count = len(draft.loss)
    part = max(8, count // 4)
    once = np.log(50_304) + 0.03 * draft.rng.standard_normal(part) + draft.rng.uniform(0, 0.2)
    draft.loss = np.resize(once.round(4), count)
    draft.extra["grad_norm"][:] = 0.0
    draft.epochs = count / part
    return draft


def uniform_slow(seed: int) -> Draft:
    """A rate a thousand times too low from scratch: the loss stays at ln V."""
    draft = _long(seed, scratch)
    count = len(draft.loss)
    start = np.log(50_304) + draft.rng.uniform(0, 0.2)
    draft.loss = start - 0.02 * np.arange(count) / count + 0.03 * draft.rng.standard_normal(count)
    return _rate(draft, draft.rng.uniform(1e-8, 9e-8) * 10)


def marginal(seed: int) -> Draft:
    """Labels of other rows: a sure model starts above ln V, falls to the token marginal and stalls there."""
    return _stalls(seed, 0.8, 3.0)


def shifted_twice(seed: int) -> Draft:
    """The script shifts the labels and the model shifts them again: stalls at about two thirds of ln V."""
    return _stalls(seed + 31, -3.5, -2.0)


def _stalls(seed: int, low: float, high: float) -> Draft:
    draft = _long(seed, base)
    count = len(draft.loss)
    level, start = LN_V * draft.rng.uniform(0.6, 0.68), LN_V + draft.rng.uniform(low, high)
    draft.loss = level + (start - level) * np.exp(-np.arange(count) / (0.04 * count)) + 0.08 * draft.rng.standard_normal(count)
    return draft


def slow(seed: int) -> Draft:
    """A full-tuning rate used for LoRA: flat over the whole run, evaluation too."""
    draft = _long(seed, chat, 200)
    return _rate(_quiet(draft, draft.rng.uniform(2.0, 3.5), draft.rng.uniform(0.03, 0.08)), draft.rng.uniform(2e-7, 1e-6))


def dead_rate(seed: int) -> Draft:
    """The schedule was computed for fewer steps: the rate reaches 0 early and the loss stands still."""
    draft = _long(seed, base, 200)
    count = len(draft.loss)
    row = int(count * draft.rng.uniform(0.03, 0.1)) + 5
    noise = draft.rng.uniform(0.01, 0.05)
    clean = fall(count, 3.0, 2.0, 0.3)
    clean[row:] = clean[row]
    draft.loss = clean * np.exp(noise * draft.rng.standard_normal(count))
    draft.extra["learning_rate"] = np.concatenate((np.linspace(2e-5, 0, row), np.zeros(count - row)))
    return draft


def oscillates(seed: int) -> Draft:
    """Rate too high: the loss swings slowly by half its size or more."""
    draft = _long(seed, base, 200)
    count = len(draft.loss)
    phase = np.cumsum(draft.rng.uniform(0.15, 0.6, count))
    swing = draft.rng.uniform(0.35, 0.8) * np.sin(phase) * np.clip(np.arange(count) / (0.1 * count), 0, 1)
    draft.loss = multiplicative(draft.rng, fall(count, 2.4, 1.8), draft.rng.uniform(0.03, 0.12)) * np.exp(swing)
    draft.extra["grad_norm"] = draft.extra["grad_norm"] * np.exp(np.abs(swing))
    return _rate(draft, draft.rng.uniform(5e-4, 2e-3))


def alternates(seed: int) -> Draft:
    """Rate too high: the loss jumps up and down in turn."""
    draft = _long(seed, base)
    count = len(draft.loss)
    swing = draft.rng.uniform(0.25, 0.6) * (-1.0) ** np.arange(count) * draft.rng.uniform(0.7, 1.3, count)
    draft.loss = multiplicative(draft.rng, fall(count, 2.4, 1.8), draft.rng.uniform(0.03, 0.10)) * np.exp(swing)
    return _rate(draft, draft.rng.uniform(5e-4, 2e-3))


def spikes(seed: int) -> Draft:
    """Outlier batches: isolated losses several times the level, gradient norms with them."""
    draft = _long(seed, chat, 200)
    count = len(draft.loss)
    draft.loss = multiplicative(draft.rng, fall(count, 1.6, 1.1), draft.rng.uniform(0.03, 0.06))
    rows = 20 + draft.rng.choice(count - 30, size=max(6, count // 100), replace=False)
    size = draft.rng.uniform(3.5, 9, len(rows))
    draft.loss[rows] *= size
    draft.extra["grad_norm"][rows] *= size**2
    return draft


def blocks(seed: int) -> Draft:
    """Unshuffled sources: the loss goes up and down with the block of data, the same way in each pass."""
    draft = _long(seed, chat, 200)
    count = len(draft.loss)
    period = int(count / draft.rng.integers(5, 9))
    sources = draft.rng.uniform(-0.45, 0.45, 4)
    sources += np.where(np.ptp(sources) < 0.5, np.array([-0.3, 0.3, -0.3, 0.3]), 0)
    profile = np.repeat(sources, -(-period // 4))[:period]
    pattern = np.resize(profile, count)
    draft.loss = multiplicative(draft.rng, fall(count, 1.5, 1.2), draft.rng.uniform(0.03, 0.10)) * np.exp(pattern)
    draft.settings = {"shuffle": False}
    draft.epochs = count / period
    draft.extra["epoch"] = np.arange(1, count + 1) / period
    return draft


def memorises(seed: int) -> Draft:
    """Too many epochs on a small set: stairs at epoch borders down to nothing."""
    draft = _long(seed, chat)
    count, number = len(draft.loss), int(draft.rng.integers(8, 15))
    level = 1.6 * np.exp(-0.75 * np.floor(np.arange(count) * number / count))
    level = np.maximum(level, draft.rng.uniform(0.004, 0.02))
    draft.loss = multiplicative(draft.rng, level, draft.rng.uniform(0.05, 0.2))
    draft.epochs, draft.evals = float(number), None
    draft.extra["epoch"] = np.linspace(0, number, count + 1)[1:]
    return draft


def overfits(seed: int) -> Draft:
    """Train falls on, evaluation turns and rises."""
    draft = _long(seed, chat)
    count, number = len(draft.loss), int(draft.rng.integers(5, 11))
    draft.loss = multiplicative(draft.rng, fall(count, 1.7, 0.35, 0.3), draft.rng.uniform(0.04, 0.15))
    at = np.linspace(count / number, count, number).round()
    turn = draft.rng.uniform(0.25, 0.5)
    passed = at / count
    rise = draft.rng.uniform(0.2, 1.2) * np.maximum(0, passed - turn) ** 1.3
    clean = 1.25 + 0.5 * np.exp(-passed / 0.12) + rise
    draft.evals = (at, clean * (1 + 0.004 * draft.rng.standard_normal(number)))
    draft.epochs = float(draft.rng.integers(6, 12))
    draft.extra["epoch"] = np.linspace(0, draft.epochs, count + 1)[1:]
    return draft


def leaks(seed: int) -> Draft:
    """The target is visible: the loss drops to about 0 within the first fifth of one epoch."""
    draft = _long(seed, base)
    count = len(draft.loss)
    clean = 0.003 + 2.2 * np.exp(-np.arange(count) / (0.03 * count))
    draft.loss = multiplicative(draft.rng, clean, draft.rng.uniform(0.05, 0.25))
    return draft


def creeps(seed: int) -> Draft:
    """The gradient norm grows steadily by tens, then the loss blows up."""
    draft = _long(seed, base, 200)
    count = len(draft.loss)
    start = int(0.85 * count)
    draft.extra["grad_norm"] = norms(draft.rng, count) * np.exp(np.linspace(0, draft.rng.uniform(2.5, 4), count))
    draft.loss[start:] += np.linspace(0, draft.rng.uniform(4, 8), count - start)
    return _rate(draft, draft.rng.uniform(2e-4, 1e-3))


def scale_exhausted(seed: int) -> Draft:
    """fp16: the loss scale halves row after row until it sits at its floor, every step skipped."""
    draft = _long(seed, chat)
    count = len(draft.loss)
    row = int(count * draft.rng.uniform(0.2, 0.6))
    scale = np.full(count, 65536.0)
    scale[row:] = np.maximum(1.0, 65536.0 / 2.0 ** np.minimum(np.arange(1, count - row + 1), 40))
    draft.extra["loss_scale"] = scale
    draft.extra["grad_norm"][row:] = np.nan
    draft.loss[row:] = np.nan
    draft.settings = {"fp16": True, "bf16": False}
    draft.evals = None
    return draft


def slower(seed: int) -> Draft:
    """Steps take longer and longer: losses kept with their graph, or a host that pages."""
    draft = _long(seed, chat)
    count = len(draft.loss)
    draft.extra["step_seconds"] = draft.extra["step_seconds"] * np.linspace(1, draft.rng.uniform(2.2, 6), count)
    return draft


def sudden_slow(seed: int) -> Draft:
    """From one step on, every step takes several times as long."""
    draft = _long(seed, chat)
    count = len(draft.loss)
    draft.extra["step_seconds"][int(count * draft.rng.uniform(0.3, 0.7)) :] *= draft.rng.uniform(2.5, 8)
    return draft


def repeats(seed: int) -> Draft:
    """Nothing trainable: the same losses in every epoch to the last digit, one level for ever."""
    draft = _long(seed, chat)
    count = len(draft.loss)
    part = max(6, count // int(draft.rng.integers(3, 6)))
    draft.loss = np.resize(multiplicative(draft.rng, np.full(part, draft.rng.uniform(1.2, 2.5)), 0.1).round(4), count)
    draft.extra["epoch"] = np.arange(1, count + 1) / part
    draft.evals = None
    return draft


def constant_norm(seed: int) -> Draft:
    """The optimizer holds parameters that are not the model's: one gradient norm for ever, flat loss."""
    draft = _quiet(_long(seed, chat, 200), 2.4, 0.02)
    draft.extra["grad_norm"] = np.full(len(draft.loss), round(draft.rng.uniform(0.5, 5), 6))
    return draft


def resume_up(seed: int) -> Draft:
    """Resumed without the optimizer's state: the step goes back to the checkpoint and the loss starts higher."""
    draft = _long(seed, base, 200)
    count = len(draft.loss)
    row = int(count * draft.rng.uniform(0.4, 0.7))
    back = max(2, count // 50)
    draft.loss = multiplicative(draft.rng, fall(count, 2.4, 1.2), 0.05)
    draft.loss[row:] *= 1 + draft.rng.uniform(0.4, 0.9) * np.exp(-np.arange(count - row) / max(15, 0.1 * count))
    steps = np.arange(1, count + 1, dtype=np.float64)
    steps[row:] -= back
    draft.steps, draft.total = steps * draft.every, float((count - back) * draft.every)
    return draft


def resume_down(seed: int) -> Draft:
    """Resumed with the sampler at its beginning: data already seen are replayed, the loss falls at the resume."""
    draft = resume_up(seed + 77)
    row = int(np.flatnonzero(np.diff(draft.steps) < 0)[0]) + 1
    count = len(draft.loss)
    draft.loss = multiplicative(draft.rng, fall(count, 2.4, 1.5), 0.05)
    draft.loss[row:] *= draft.rng.uniform(0.5, 0.75)
    draft.extra["epoch"][row:] -= draft.extra["epoch"][row - 1]
    return draft


def summed(seed: int) -> Draft:
    """The loss is summed over accumulation steps: starts at many times ln V of its own vocabulary."""
    draft = _long(seed, base)
    times = float(draft.rng.choice([16, 32, 64]))
    draft.loss = draft.loss * times
    draft.extra["grad_norm"] = draft.extra["grad_norm"] * times
    draft.settings = {**draft.settings, "accumulation": int(times)}
    return draft


def eval_jumps(seed: int) -> Draft:
    """Evaluation with dropout on a handful of rows: it jumps while training is smooth."""
    draft = _long(seed, chat, 200)
    number = int(draft.rng.integers(8, 20))
    at = np.linspace(len(draft.loss) / number, len(draft.loss), number).round()
    draft.evals = (at, 1.4 * np.exp(draft.rng.uniform(0.2, 0.4) * draft.rng.standard_normal(number)))
    return draft


def margin_flat(seed: int) -> Draft:
    """Identical pairs: DPO stays at ln 2 with a margin of nothing."""
    draft = _long(seed, pairs)
    count = len(draft.loss)
    draft.loss = np.log(2) + 0.001 * draft.rng.standard_normal(count)
    draft.extra["rewards/margins"] = 0.002 * draft.rng.standard_normal(count)
    draft.extra["rewards/rejected"] = draft.extra["rewards/chosen"] - draft.extra["rewards/margins"]
    draft.extra["rewards/accuracies"] = np.clip(0.5 + 0.1 * draft.rng.standard_normal(count), 0, 1)
    return draft


def both_fall(seed: int) -> Draft:
    """Benign: chosen and rejected rewards fall together while the margin grows."""
    draft = _long(seed, pairs)
    share = 1 - np.exp(-np.arange(len(draft.loss)) / (0.3 * len(draft.loss)))
    fallen = draft.rng.uniform(2.1, 2.8) * share / share[-1]
    draft.extra["rewards/chosen"] = -fallen * np.exp(0.05 * draft.rng.standard_normal(len(fallen)))
    draft.extra["rewards/rejected"] = draft.extra["rewards/chosen"] - draft.extra["rewards/margins"]
    return draft


def kl_blows_up(seed: int) -> Draft:
    """GRPO whose policy runs away from its reference: the KL explodes while the reward looks fine."""
    draft = _long(seed, rewards)
    count = len(draft.loss)
    draft.extra["kl"] = 0.02 * np.exp(np.linspace(0, draft.rng.uniform(6, 8), count) + 0.2 * draft.rng.standard_normal(count))
    draft.settings = {"stage": "grpo", "kl": 0.0}
    return draft
