"""Whatever the evidence holds, every case of these folders answers, and a healthy run raises no suspicion."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneclinic.case import Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.evidence import SECTIONS, Evidence
from tuneclinic.registry import found
from tuneclinic.sections import (
    Adapter,
    Attempt,
    Attempts,
    Crash,
    CrashError,
    Data,
    Environment,
    Log,
    LogLine,
    Metrics,
    Model,
    Output,
    Outputs,
    Score,
    Scores,
    Script,
    ScriptFact,
    Series,
    Setting,
    Settings,
    WeightFile,
    Weights,
)
from tuneclinic.vocabulary import NAMES

MINE = [case for case in found("tuneclinic.casebook", Case) if type(case).__module__.split(".")[2] in {"learning", "numerics"}]
SERIES = (
    "loss", "eval_loss", "grad_norm", "learning_rate", "epoch", "loss_scale", "rewards/chosen", "rewards/rejected",
    "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected", "kl", "reward_std", "frac_reward_zero_std",
    "loss_scale_after_overflow",
)  # fmt: skip
FACTS = ("detach-in-loss", "loss-summed", "log-of-softmax", "resume-ignored", "optimizer-before-peft", "pure-half-weights")
numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1.0, -1.0, 1e308, 5e-324, float("nan")]),
    st.floats(0, 10),
)
values = st.one_of(
    numbers, st.none(), st.booleans(), st.text(max_size=8), st.integers(), st.just({"a": 1}), st.just([1]), st.just(10**400)
)
texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        (
            "trainable params: 0 || all params: 5", "Attempted loss scale: 1, reducing to 1", "None of the inputs have requires_grad=True",
            "Some weights of X were not initialized and are newly initialized: ['score.weight']", "Resized token embeddings from 1 to 2",
        )
    ),
)  # fmt: skip


@st.composite
def metrics(draw):
    held = {}
    for name in draw(st.lists(st.sampled_from(SERIES), unique=True, max_size=8)):
        points = draw(st.lists(numbers, max_size=40))
        repeat = draw(st.sampled_from((1, 1, 4)))
        steps = draw(st.one_of(st.none(), st.just(list(range(len(points) * repeat)))))
        held[name] = Series.of(points * repeat, steps)
    kind = draw(st.sampled_from(("", "causal-lm", "dpo", "grpo", "reward", "classification", "diffusion")))
    return Metrics(held, kind=kind, rows_are_steps=draw(st.booleans()))


@st.composite
def evidence(draw):
    names = st.dictionaries(st.sampled_from(sorted(NAMES)), values, max_size=12)
    configured = draw(names)
    sections = {
        "settings": Settings({key: Setting(value, "c.yaml:1", "c.yaml", key) for key, value in configured.items()}, draw(st.sampled_from(("trl", "")))),
        "metrics": draw(metrics()),
        "data": Data("messages", 1, draw(st.sampled_from((None, 0, 1, 60, 10**9))), statistics={"tokens_estimated": draw(numbers), "sources": draw(numbers)}),
        "model": Model(
            vocabulary=draw(st.sampled_from((None, 0, 1, 32000))), trainable=draw(st.one_of(st.none(), numbers)), parameters=draw(st.one_of(st.none(), numbers)),
            dtype=draw(st.sampled_from((None, "bfloat16"))), adapter=draw(st.sampled_from((None, Adapter(rank=None, target_modules="a|b"), Adapter(target_modules=("q", "*"))))),
        ),
        "script": Script(tuple(ScriptFact(name, "x", 1, "t.py") for name in draw(st.lists(st.sampled_from(FACTS), max_size=2))), frozenset(FACTS), ("t.py",)),
        "crash": Crash(tuple(CrashError("E", text, "l:1") for text in draw(st.lists(texts, max_size=2)))),
        "log": Log(tuple(LogLine(text, f"l:{number}") for number, text in enumerate(draw(st.lists(texts, max_size=3))))),
        "environment": Environment(packages={"transformers": draw(st.sampled_from(("4.47.1", "", "5", "x.y", "4.48.0.dev0", "9" * 50)))}),
        "outputs": Outputs(tuple(Output("p", text, "o:1", reference=text) for text in draw(st.lists(texts, max_size=4)))),
        "weights": Weights((WeightFile("a/adapter_model.safetensors", draw(st.integers(0, 10**9)), names=("q.lora_B",), lora_b=1, zero_lora_b=1, values_read=True, nonfinite=("x",), step=None),)),
        "scores": Scores((Score("t", "acc", draw(st.one_of(st.none(), numbers)), draw(st.one_of(st.none(), numbers))),)),
        "attempts": Attempts((Attempt("b", {**configured, "learning_rate": draw(values)}, draw(numbers), draw(numbers)),)),
    }  # fmt: skip
    kept = draw(st.lists(st.sampled_from(sorted(sections)), unique=True))
    return Evidence(**{name: sections[name] for name in kept})


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(evidence())
def test_every_case_answers(seen):
    with np.errstate(all="ignore"):
        for case in MINE:
            finding = case.detect(seen)
            assert finding.verdict in {"confirmed", "suspected", "ruled_out", "not_checked"}
            assert finding.verdict not in {"confirmed", "suspected", "ruled_out"} or finding.exhibits
            assert all(np.isfinite(exhibit.weight) for exhibit in finding.exhibits)
            assert all(section in SECTIONS for section in finding.missing)


HEALTHY = {
    "lora sft": Evidence(
        settings=make.configured(method="lora", learning_rate=2e-4, epochs=3, lora_rank=16, batch_per_device=4, accumulation=4, bf16=True),
        metrics=make.ran(
            loss=make.falling(), grad_norm=make.level(200, 0.9, 0.3), learning_rate=make.peaked(), epoch=3 * np.arange(1, 201) / 200,
            eval_loss=(range(40, 201, 40), [1.4, 1.2, 1.1, 1.05, 1.03]),
        ),
    ),
    "full, one epoch, no evaluation": Evidence(
        settings=make.configured("axolotl", method="full", learning_rate=1e-5, epochs=1, warmup_ratio=0.03, weight_decay=0.0),
        metrics=make.ran(loss=make.falling(noise=0.25), grad_norm=make.level(200, 2.0, 1.0), learning_rate=make.peaked(peak=1e-5)),
    ),
    "dpo": Evidence(
        settings=make.configured("trl", stage="dpo", method="full", learning_rate=5e-7, beta=0.1),
        metrics=make.ran(
            kind="dpo", loss=make.falling(100, 0.693, 0.5, noise=0.01), rewards__chosen=make.falling(100, 0.0, -0.9, noise=0.02),
            rewards__rejected=make.falling(100, 0.0, -2.0, noise=0.02), rewards__margins=make.falling(100, 0.0, 1.1, noise=0.02),
            rewards__accuracies=make.falling(100, 0.5, 0.77, noise=0.03), learning_rate=make.peaked(100, 5e-7),
        ),
    ),
    "grpo": Evidence(
        metrics=make.ran(
            kind="grpo", loss=make.level(100, 0.0, 0.01), reward=make.falling(100, 0.2, 0.7), kl=make.falling(100, 0.0, 0.1, noise=0.01),
            reward_std=make.level(100, 0.3, 0.05), learning_rate=make.peaked(100, 1e-6),
        ),
    ),
    "plain loop with a summed loss that is divided": Evidence(
        script=make.scripted("loss-summed", checked=("accumulation-not-divided",)), metrics=make.ran(loss=make.falling(300, 4.0, 2.5))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_raise_no_suspicion(name):
    raised = [
        case.id for case in MINE if case.kind == "fault" and case.detect(HEALTHY[name]).verdict in {"confirmed", "suspected"}
    ]
    assert raised == []


def test_three_hundred_generated_healthy_runs():
    random = np.random.default_rng(5)
    raised = []
    for _ in range(300):
        points, start, end = int(random.integers(40, 400)), random.uniform(0.9, 3.5), random.uniform(0.5, 0.85)
        curve = start * (end + (1 - end) * np.exp(-4 * np.arange(points) / points))
        noise = np.exp(random.normal(0, random.choice([0.05, 0.15, 0.25]), points))
        seen = Evidence(
            settings=make.configured(method="lora", learning_rate=2e-4, epochs=2, lora_rank=16, bf16=True),
            metrics=make.ran(
                loss=curve * noise, grad_norm=np.exp(random.normal(0, 0.4, points)), learning_rate=make.peaked(points)
            ),
        )
        raised += [case.id for case in MINE if case.kind == "fault" and case.detect(seen).verdict in {"confirmed", "suspected"}]
    assert raised == []


def test_priors_keep_to_their_share():
    """Cases of other folders name the same symptoms; here no symptom is filled beyond what belongs to learning and numerics."""
    sums = {}
    for case in MINE:
        for symptom, prior in case.symptoms.items():
            sums[symptom] = sums.get(symptom, 0.0) + prior
    assert max(sums.values()) <= 0.95


ORDERS = {
    "nan-at-start": ("lr-too-high", "fp16-overflow", "log-of-zero", "attention-kernel-fault", "weights-already-nonfinite", "pure-half-weights"),
    "nan-mid-run": ("fp16-overflow", "lr-too-high", "loss-scale-exhausted", "log-of-zero"),
    "loss-at-uniform": (
        "nothing-trainable", "gradient-chain-broken", "optimizer-misses-parameters", "lr-too-low", "schedule-runs-dry", "weights-not-loaded",
    ),
    "loss-not-falling": ("lr-too-low", "nothing-trainable", "schedule-runs-dry", "optimizer-misses-parameters", "loss-is-plausible"),
    "cannot-overfit": (
        "loss-implementation-wrong", "gradient-chain-broken", "nothing-trainable", "checkpointing-without-input-grads", "label-smoothing-floor", "model-too-small",
    ),
    "loss-oscillates": ("lr-too-high", "batch-too-small", "accumulation-misnormalised"),
    "loss-diverges": ("lr-too-high", "no-warmup", "loss-summed-not-averaged", "optimizer-state-lost", "broken-kernel"),
    "overfits": ("too-many-epochs", "too-little-data", "lr-too-high", "rank-too-high", "no-regularisation"),
    "forgets": ("no-general-data", "too-many-epochs", "lr-too-high", "rank-too-high"),
    "resume-jumps": ("optimizer-state-lost", "sampler-position-lost", "resume-not-wired"),
    "preference-odd": ("chosen-falls-with-rejected", "kl-blows-up", "reward-saturates", "reference-differs", "loss-implementation-wrong"),
}  # fmt: skip


@pytest.mark.parametrize("symptom", ORDERS)
def test_priors_stand_in_the_handbooks_order(symptom):
    by_id = {case.id: case for case in MINE}
    priors = [by_id[case].symptoms[symptom] for case in ORDERS[symptom]]
    assert priors == sorted(priors, reverse=True)
    assert len(set(priors)) == len(priors)


def test_no_case_works_hard():
    """Counted in calls of the shape, which is the one costly thing and is kept: no case may compute another one."""
    seen = HEALTHY["lora sft"]
    for case in MINE:
        case.detect(seen)
    began = time.process_time()
    for _ in range(20):
        for case in MINE:
            case.detect(seen)
    print(f"{1000 * (time.process_time() - began) / 20:.1f} ms of CPU for {len(MINE)} cases")  # noqa: T201 - a figure to read, no bound
