"""What a run's series show, told once for symptoms and cases alike.

Robust statistics on numpy arrays: noise bands come from the run's own jitter, never from a fixed number. Every threshold
stands once, in `thresholds.py`, with its source.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tuneclinic.curves import convergence, evaluation, machine, numeric, swings
from tuneclinic.curves.rows import Curve, Rows, kind_of, last_run
from tuneclinic.sections import Metrics, Model, Series, Tokenizer
from tuneclinic.values import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What the training loss and the series beside it show. Steps are the log's own; `None` means "not seen".

    points: finite training-loss points. first, last: the first value and the median of the last 5 % (at least 3 points).
    lowest, lowest_step: the smallest smoothed value and where. noise: robust standard deviation of the step-to-step jitter,
    in loss units. drop: (first - last) / first.

    nan_from: first step with a loss or gradient norm that is NaN or infinite, or that a logging filter hid as 0.0;
    nan_at_start: whether that is within the first logged rows. nan_hidden: the loss reads 0.0 (or stays a running mean)
    while the gradient norm is NaN. nan_isolated: finite values come back after it.
    masked_from: first step of an unbroken stretch of loss 0.0 with gradient norm 0 (nothing left to learn from: all labels
    masked), told apart from nan_hidden. last_finite_grad_norm: the last finite gradient norm before nan_from.
    grad_norm_rises: gradient norm just before nan_from, over its median before that. learning_rate_at_nan, and
    learning_rate_always_zero: the rate was at most 1e-7 at every step up to nan_from, not by decay.

    diverged_from: step from which the loss rises and stays up. no_learning: flat within noise over the whole
    run, or exactly repeating; whether the rate was on is said by dead_learning_rate_from and learning_rate_always_zero (set where
    there is a NaN). level: the level it sits at when flat. at_uniform: it sits at ln(vocabulary) within noise;
    uniform: that ln(V). at_marginal: it stalls a little under ln(V). repeats_exactly: period in rows at which the same
    losses return to the last digit (weights never move); constant_grad_norm: one gradient norm for ever.
    oscillates: swings of several noise bands that are not step noise of small batches; spikes: steps of isolated peaks.
    period: steps between periodic peaks. epoch_steps: the loss falls in stairs at epoch borders (memorisation).
    near_zero_from: step from which the training loss stays at about 0 without being masked or NaN.
    overfits_from: step of the evaluation loss's minimum when it then rises out of its own noise while training falls;
    eval_rise: that rise, relative. eval_erratic: the evaluation loss jumps while training is smooth.
    dead_learning_rate_from: step from which the learning rate is 0 although the run goes on.
    loss_scale_exhausted_from: step at which the loss scale sits at its minimum and keeps overflowing.
    grad_norm_creeps: gradient norm grows steadily by several times. throughput_decays: steps slow down over the run by
    this factor; throughput_dropped_from: a sudden drop. resumed_at: step of a resume; resume_jump: relative jump of the
    loss there (negative: fell). unfinished: the log ends before total_steps with no error read.
    start_excess: first loss over ln(V), in nats, when it starts above it; starts_too_high: by more than any
    initialisation explains, so that the weights, the dtype or the reduction of the loss are wrong before the first step.

    kind: what the loss is of, from `metrics.kind` or else from the names of the series. relative_noise: noise over the median loss.
    masked_rows: rows with loss 0.0 (or NaN) and gradient norm 0, single ones included. zero_from: step from which the loss reads
    exactly 0.0 to the end, whatever the gradient norm says or where there is none. near_zero_eval: evaluation loss of an end-of-run
    summary when that is about 0. stalled_from: step from which a loss that fell before sits at ln(V) or the token marginal
    (`at_uniform` or `at_marginal` says which, `level` where). eval_constant: every evaluation gave the same loss to the last digit.
    margin: reward margin at the end of a preference run; margin_flat: it never left 0. chosen_falls: chosen and rejected rewards fall
    together, the chosen one by more than the margin gained. accuracy_saturated: training pairs are all ranked right, after the
    first pass over them and without held-out pairs being ranked right too.
    kl_blows_up_from: step from which the KL stays far up.
    """

    points: int = 0
    first: float | None = None
    last: float | None = None
    lowest: float | None = None
    lowest_step: float | None = None
    noise: float | None = None
    drop: float | None = None
    nan_from: float | None = None
    nan_at_start: bool = False
    nan_hidden: bool = False
    nan_isolated: bool = False
    masked_from: float | None = None
    last_finite_grad_norm: float | None = None
    grad_norm_rises: float | None = None
    learning_rate_at_nan: float | None = None
    learning_rate_always_zero: bool = False
    diverged_from: float | None = None
    no_learning: bool = False
    level: float | None = None
    at_uniform: bool = False
    uniform: float | None = None
    at_marginal: bool = False
    repeats_exactly: int | None = None
    constant_grad_norm: float | None = None
    oscillates: bool = False
    spikes: tuple[float, ...] = ()
    period: float | None = None
    epoch_steps: bool = False
    near_zero_from: float | None = None
    overfits_from: float | None = None
    eval_rise: float | None = None
    eval_erratic: bool = False
    dead_learning_rate_from: float | None = None
    loss_scale_exhausted_from: float | None = None
    grad_norm_creeps: float | None = None
    throughput_decays: float | None = None
    throughput_dropped_from: float | None = None
    resumed_at: float | None = None
    resume_jump: float | None = None
    unfinished: bool = False
    start_excess: float | None = None
    starts_too_high: bool = False
    kind: str = ""
    relative_noise: float | None = None
    masked_rows: int = 0
    zero_from: float | None = None
    near_zero_eval: float | None = None
    stalled_from: float | None = None
    eval_constant: bool = False
    margin: float | None = None
    margin_flat: bool = False
    chosen_falls: bool = False
    accuracy_saturated: bool = False
    kl_blows_up_from: float | None = None


@lru_cache(maxsize=16)
def shape(metrics: Metrics, vocabulary: int | None = None) -> Shape:
    """The shape of one run's series. `vocabulary` is the run's own number of embedding rows, for ln(V).

    Never raises for odd input: empty, constant, unordered, infinite or huge values. A million points take under a second.
    """
    with np.errstate(all="ignore"):
        return _shape(metrics, vocabulary)


def _shape(metrics: Metrics, vocabulary: int | None) -> Shape:
    kind = kind_of(metrics)
    loss = last_run(Rows.of(metrics.get("loss")))
    bad, true = numeric.read(loss, metrics, kind)
    curve = Curve(loss.steps[true], loss.values[true], kind)
    scale_from = numeric.loss_scale(metrics)
    repeats, stairs = convergence.repeats(curve), swings.stairs(curve, metrics)
    fields: dict[str, Any] = {
        "points": len(curve),
        "kind": kind,
        **convergence.numbers(curve),
        **bad,
        **convergence.stuck(curve, metrics, vocabulary),
        "diverged_from": convergence.diverged(curve, ends_in_nan="nan_from" in bad and not bad.get("nan_isolated", False)),
        "near_zero_from": convergence.near_zero(curve),
        "repeats_exactly": repeats,
        **({} if repeats else swings.swings(curve, stairs=stairs)),
        "epoch_steps": stairs,
        **evaluation.evaluation(curve, metrics),
        **evaluation.preference(metrics, kind),
        **machine.gradient_norm(metrics),
        "dead_learning_rate_from": machine.dead_rate(metrics),
        "loss_scale_exhausted_from": scale_from,
        **machine.throughput(metrics, kind),
        **machine.resume(curve, loss, metrics),
        "unfinished": machine.unfinished(metrics, loss),
    }
    if fields["diverged_from"] is not None and fields.get("stalled_from") is not None:
        fields |= {"stalled_from": None, "at_uniform": False, "at_marginal": False, "level": None}
    if repeats:
        fields |= {"no_learning": True, "level": curve.level}
    return Shape(**fields)


def measured_loss(metrics: Metrics) -> Series | None:
    """The training loss as it was measured: a 0.0 that a logging filter printed for NaN is NaN again; None where none was logged."""
    loss, form = metrics.get("loss"), shape(metrics)
    if loss is None or not form.nan_hidden or form.nan_from is None:
        return loss
    hidden = (loss.steps >= form.nan_from) & (loss.values == 0)
    return Series(loss.steps, np.where(hidden, np.nan, loss.values), loss.source, loss.lines)


def vocabulary_of(model: Model | None, tokenizer: Tokenizer | None) -> int | None:
    """The run's own vocabulary size: embedding rows from `config.json`, else the tokenizer's; None where neither was read."""
    if model is not None and model.vocabulary:
        return model.vocabulary
    return tokenizer.vocabulary if tokenizer is not None else None
