"""The catalogue of generated faults: what is seen of each, and what stands first.

A kind names the symptoms of which one must be seen, and the cases of which one must stand first. Where a log alone cannot tell
two causes apart, the run's settings, model, data or script carry the fact that does, as a real run folder would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import broken
from curves import Draft, Made
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Data, RowSet, Script, ScriptFact


@dataclass(frozen=True)
class Fault:
    """One kind of fault: how to make it, what is seen, what stands first."""

    make: Callable[[int], Draft]
    symptoms: tuple[str, ...]
    suspects: tuple[str, ...]


FAULTS: dict[str, Fault] = {
    "divergence": Fault(broken.diverges, ("loss-diverges",), ("lr-too-high",)),
    "nan at start (fp16)": Fault(broken.nan_at_start, ("nan-at-start",), ("fp16-overflow",)),
    "nan mid-run (rate)": Fault(broken.nan_mid_run, ("nan-mid-run",), ("lr-too-high",)),
    "nan hidden as 0.0": Fault(broken.nan_hidden, ("nan-mid-run",), ("fp16-overflow", "nan-hidden-by-logging")),
    "all labels masked": Fault(broken.all_masked, ("nan-at-start", "loss-not-falling"), ("all-labels-masked",)),
    "ln V, frozen": Fault(broken.uniform_frozen, ("loss-at-uniform",), ("nothing-trainable",)),
    "ln V, rate too low": Fault(broken.uniform_slow, ("loss-at-uniform",), ("lr-too-low",)),
    "marginal stuck": Fault(
        broken.marginal, ("loss-at-uniform",), ("labels-not-shifted", "label-mask-misplaced", "labels-shifted-twice")
    ),
    "double shift": Fault(broken.shifted_twice, ("loss-at-uniform",), ("labels-shifted-twice",)),
    "plateau, rate too low": Fault(broken.slow, ("loss-not-falling",), ("lr-too-low",)),
    "schedule runs dry": Fault(broken.dead_rate, ("loss-not-falling", "loss-at-uniform"), ("schedule-runs-dry",)),
    "oscillation": Fault(broken.oscillates, ("loss-oscillates",), ("lr-too-high",)),
    "alternation": Fault(broken.alternates, ("loss-oscillates",), ("lr-too-high",)),
    "outlier spikes": Fault(broken.spikes, ("loss-oscillates",), ("outlier-batches",)),
    "blocks of sources": Fault(broken.blocks, ("loss-oscillates",), ("data-not-shuffled",)),
    "staircase memorisation": Fault(broken.memorises, ("loss-near-zero",), ("too-many-epochs",)),
    "overfitting": Fault(broken.overfits, ("overfits",), ("too-many-epochs",)),
    "leak": Fault(broken.leaks, ("loss-near-zero",), ("answer-in-prompt", "future-tokens-visible", "labels-not-shifted")),
    "norm creeps, blows up": Fault(broken.creeps, ("loss-diverges",), ("lr-too-high",)),
    "loss scale exhausted": Fault(broken.scale_exhausted, ("nan-mid-run",), ("loss-scale-exhausted",)),
    "slower and slower": Fault(broken.slower, ("slow",), ("paging", "input-bound", "host-sync-each-step")),
    "sudden slow-down": Fault(broken.sudden_slow, ("slow",), ("paging", "slow-rank", "input-bound")),
    "exact repetition": Fault(broken.repeats, ("loss-not-falling",), ("nothing-trainable", "optimizer-misses-parameters")),
    "constant gradient norm": Fault(
        broken.constant_norm, ("loss-not-falling",), ("optimizer-misses-parameters", "nothing-trainable")
    ),
    "resume jumps up": Fault(broken.resume_up, ("resume-jumps",), ("optimizer-state-lost",)),
    "resume replays": Fault(broken.resume_down, ("resume-jumps",), ("sampler-position-lost",)),
    "summed loss": Fault(broken.summed, ("loss-diverges",), ("loss-summed-not-averaged",)),
    "evaluation erratic": Fault(broken.eval_jumps, ("eval-erratic",), ("eval-mode-forgotten", "eval-set-too-small")),
    "margin flat": Fault(broken.margin_flat, ("preference-odd",), ("pairs-identical",)),
    "both rewards fall (benign)": Fault(broken.both_fall, ("preference-odd",), ("chosen-falls-with-rejected",)),
    "KL blows up": Fault(broken.kl_blows_up, ("preference-odd",), ("kl-blows-up",)),
}
"""All kinds of generated faults."""


def _told(name: str, evidence: Evidence) -> Evidence:
    """Facts that a run folder holds beside its log, where the log alone cannot tell two causes apart."""
    if name == "double shift":
        fact = ScriptFact("labels-shifted-twice", "loss = model(input_ids=x[:, :-1], labels=x[:, 1:]).loss", 41, "train.py")
        return replace(evidence, script=Script((fact,), frozenset({"labels-shifted-twice"}), ("train.py",)))
    if name == "leak":
        rows = RowSet("answer-in-prompt", tuple(range(1, 181)), "train.jsonl", "…")
        data = Data("messages", 200, 200, (), frozenset({"answer-in-prompt"}), (rows,), ("train.jsonl",))
        return replace(evidence, data=data)
    if name == "evaluation erratic" and evidence.settings is not None:
        # a Trainer's own loop calls model.eval(): the fault is one of hand-written loops
        return replace(evidence, settings=replace(evidence.settings, framework="pytorch"))
    if name == "margin flat":
        rows = RowSet("identical-pair", tuple(range(1, 191)), "pairs.jsonl", "…")
        data = Data("preference", 200, 200, (), frozenset({"identical-pair"}), (rows,), ("pairs.jsonl",))
        return replace(evidence, data=data)
    return evidence


def faulty(name: str, seeds: int) -> list[Made]:
    """`seeds` runs of one kind."""
    fault = FAULTS[name]
    made = []
    for seed in range(seeds):
        evidence = _told(name, fault.make(50_000 + seed).evidence())
        made.append(Made(name, seed, evidence, fault.symptoms, fault.suspects))
    return made
