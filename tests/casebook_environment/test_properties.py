"""Whatever the evidence holds, every case of these folders answers, and a healthy run raises no suspicion."""

from dataclasses import replace

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
    Script,
    ScriptFact,
    Series,
    Setting,
    Settings,
    Tokenizer,
)
from tuneclinic.triage import examine
from tuneclinic.vocabulary import NAMES

MINE = [
    case
    for case in found("tuneclinic.casebook", Case)
    if type(case).__module__.split(".")[2] in {"distributed", "evaluation", "environment"}
]
SERIES = (
    "loss",
    "eval_loss",
    "eval_accuracy",
    "eval_token_accuracy",
    "learning_rate",
    "epoch",
    "step_seconds",
    "data_time",
    "time",
    "memory_gib",
    "data_loading(%)",
)
FACTS = (
    "loader-not-distributed", "loader-doubly-distributed", "set-epoch-missing", "rank-zero-collective", "rank-zero-save-without-barrier", "scheduler-multiplied",
    "eval-without-eval-mode", "train-mode-not-restored", "metric-not-shifted", "eval-preprocess-differs", "padding-side-right-generation", "item-each-step",
    "empty-cache-each-step", "workers-zero",
)  # fmt: skip
numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1.0, -1.0, 1e308, 5e-324, float("nan")]),
    st.floats(0, 10),
)
values = st.one_of(
    numbers, st.none(), st.booleans(), st.text(max_size=8), st.integers(), st.just({"a": 1}), st.just([1]), st.just(10**400)
)
texts = st.one_of(
    st.text(max_size=60),
    st.sampled_from((
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, Timeout(ms)=600000)", "No module named 'flash_attn'",
        "Using cpu_amp half precision backend", "Some keys are not used by the HfArgumentParser: [", "No space left on device", "right-padding was detected",
        "TypeError: f() got an unexpected keyword argument 'tokenizer'", "rank 99999999999999999999 timed out waiting for collective",
    )),
)  # fmt: skip


def held(draw):
    series = {}
    for name in draw(st.lists(st.sampled_from(SERIES), unique=True, max_size=8)):
        points = draw(st.lists(numbers, max_size=30))
        series[name] = Series.of(points * draw(st.sampled_from((1, 1, 4))))
    return series


@st.composite
def evidence(draw):
    configured = draw(st.dictionaries(st.sampled_from(sorted(NAMES)), values, max_size=14))
    setting = {key: Setting(value, "c.yaml:1", "c.yaml", key) for key, value in configured.items()}
    conflict = {key: (Setting(draw(values), "eval.yaml:2", "eval.yaml", key),) for key in list(configured)[:3]}
    unknown = {name: Setting(draw(values), "l:1", "l", name) for name in ("num_examples", "total_steps")}
    sections = {
        "settings": Settings(setting, draw(st.sampled_from(("trl", "", "pytorch"))), unknown, conflict),
        "metrics": Metrics(held(draw), kind=draw(st.sampled_from(("", "causal-lm", "classification"))), total_steps=draw(st.one_of(st.none(), numbers)),
                           finished=draw(st.sampled_from((None, True, False))), by_rank={rank: held(draw) for rank in range(draw(st.integers(0, 3)))}),
        "data": Data("messages", 1, draw(st.sampled_from((None, 0, 1, 60, 10**9)))),
        "model": Model(name=draw(st.one_of(st.none(), st.text(max_size=20))), vision=draw(st.booleans()), experts=draw(st.sampled_from((None, 0, 8))),
                       parameters=draw(st.one_of(st.none(), numbers)), adapter=draw(st.sampled_from((None, Adapter(base="a/b\\c-7B"), Adapter(modules_to_save=("lm_head",)))))),
        "tokenizer": Tokenizer(template=draw(st.one_of(st.none(), st.text(max_size=20), st.just("<|im_start|>"))), padding_side=draw(st.sampled_from((None, "left", "right")))),
        "script": Script(tuple(ScriptFact(name, "x", 1, "t.py") for name in draw(st.lists(st.sampled_from(FACTS), max_size=3))), frozenset(FACTS), ("t.py",)),
        "crash": Crash(tuple(CrashError(draw(texts), text, "l:1", rank=draw(st.sampled_from((None, 0, 1))), frames=(text,)) for text in draw(st.lists(texts, max_size=3)))),
        "log": Log(tuple(LogLine(text, f"l:{number}") for number, text in enumerate(draw(st.lists(texts, max_size=4))))),
        "environment": Environment(
            packages={name: draw(st.one_of(st.sampled_from(("4.47.1", "", "5", "x.y", "4.48.0.dev0", "9" * 50)), st.text(max_size=12))) for name in ("transformers", "torch", "trl", "peft", "liger-kernel")},
            cuda=draw(st.one_of(st.none(), st.text(max_size=6))), driver=draw(st.one_of(st.none(), st.text(max_size=6), st.just("535.1"))),
            gpus=tuple(draw(st.lists(st.text(max_size=20), max_size=3))), gpu_memory=draw(st.one_of(st.none(), numbers)), processes=draw(st.sampled_from((None, 0, 1, 2, 10**9))),
            device=draw(st.sampled_from((None, "cpu", "cuda", ""))),
        ),
        "outputs": Outputs(tuple(Output("p", text, "o:1", finish=draw(st.sampled_from((None, "length", "stop"))), tokens=draw(st.sampled_from((None, 0, 256)))) for text in draw(st.lists(texts, max_size=4))), draw(st.sampled_from((None, 256.0)))),
        "attempts": Attempts((Attempt("b", {**configured, "processes": draw(values)}, draw(numbers), draw(numbers)),)),
    }  # fmt: skip
    kept = draw(st.lists(st.sampled_from(sorted(sections)), unique=True))
    return Evidence(**{name: sections[name] for name in kept})


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(evidence())
def test_every_case_answers(seen):
    with np.errstate(all="ignore"):
        for case in MINE:
            finding = case.detect(seen)
            assert finding.verdict in {"confirmed", "suspected", "ruled_out", "not_checked"}
            assert finding.verdict == "not_checked" or finding.exhibits, case.id
            assert all(np.isfinite(exhibit.weight) for exhibit in finding.exhibits)
            assert all(section in SECTIONS for section in finding.missing)
            if finding.verdict == "ruled_out":
                assert finding.weight < 0, case.id
            if finding.verdict in {"confirmed", "suspected"}:
                assert finding.weight > 0, case.id


def ranks(**parts):
    loss = make.falling(120)
    each = {
        rank: {"loss": Series.of(loss + 0.01 * rank), **{name: Series.of(np.full(120, value)) for name, value in parts.items()}}
        for rank in range(4)
    }
    return replace(make.ran(loss=loss, learning_rate=make.peaked(120)), by_rank=each, finished=True)


HEALTHY = {
    "lora, one card, workers at the default": Evidence(
        settings=make.configured(method="lora", learning_rate=2e-4, epochs=3, lora_rank=16, workers=0, gradient_checkpointing=True, eval_split=0.05),
        environment=Environment(device="cuda", gpus=("NVIDIA A100-SXM4-80GB",), gpu_memory=79.2, processes=1, packages={"torch": "2.5.1", "transformers": "4.51.3", "trl": "0.17.0", "peft": "0.15.2"}),
        metrics=make.ran(loss=make.falling(), learning_rate=make.peaked(), eval_loss=(range(20, 201, 20), [1.5, 1.4, 1.3, 1.25, 1.2, 1.18, 1.17, 1.16, 1.15, 1.15]), memory_gib=[48.0] * 200),
        log=make.logged("UserWarning: bitsandbytes was compiled without GPU support", "Not enough free disk space to download the file."),
    ),
    "four ranks": Evidence(
        settings=make.configured("llama-factory", processes=4, batch_per_device=2, accumulation=8, epochs=2, deepspeed="ds_z3.json"), environment=Environment(processes=4, device="cuda", gpus=("NVIDIA A100",)),
        metrics=ranks(forward_seconds=0.4, data_time=0.01),
    ),
    "plain loop that reads the loss every step": Evidence(
        script=make.scripted("item-each-step", "workers-zero", "rank-zero-save-without-barrier", checked=FACTS), metrics=replace(make.ran(loss=make.falling(), step_seconds=make.level(200, 1.0, 0.02)), finished=True),
    ),
    "base model with a chat template": Evidence(
        settings=make.configured("llama-factory", model="meta-llama/Meta-Llama-3-8B", template="llama3", method="lora", lora_rank=8), metrics=make.ran(loss=make.falling(), learning_rate=make.peaked()),
    ),
    "resumed as it was": Evidence(
        settings=make.configured(resume="out/checkpoint-500", processes=2, learning_rate=1e-4), metrics=make.resumed(factor=1.0), attempts=make.tried(("first", {"processes": 8, "learning_rate": 1e-4}, 2.4, 1.5)),
    ),
    "a classifier whose accuracy rises on few rows": Evidence(
        metrics=make.ran(kind="classification", loss=make.falling(100, 0.7, 0.2), eval_accuracy=(range(10, 101, 10), [0.5333, 0.5667, 0.6333, 0.7, 0.7333, 0.8, 0.8333, 0.8667, 0.8667, 0.9])),
    ),
    "a steady hand-over of the pace": Evidence(metrics=make.ran(loss=make.falling(), step_seconds=make.level(200, 2.0, 0.1), data_time=make.level(200, 0.1, 0.02))),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_raise_no_suspicion(name):
    raised = [
        (case.id, verdict) for case in MINE if (verdict := case.detect(HEALTHY[name]).verdict) in {"confirmed", "suspected"}
    ]
    assert raised == []
    spoken = [finding.case for finding in examine(HEALTHY[name]).findings if finding.verdict in {"confirmed", "suspected"}]
    assert [case for case in spoken if case in {one.id for one in MINE}] == []


ORDERS = {
    "slow": ("input-bound", "running-on-cpu", "checkpointing-needless", "host-sync-each-step", "paging", "slow-rank"),
    "multi-gpu-odd": (
        "sampler-not-distributed", "sampler-doubly-distributed", "epoch-not-set", "rank-zero-work-unguarded", "parameters-unsynchronised",
        "scheduler-stepped-per-process", "global-batch-grew",
    ),
    "hangs": ("rank-zero-work-unguarded", "unequal-batches", "parameters-unsynchronised", "slow-rank"),
    "eval-erratic": ("eval-mode-forgotten", "eval-preprocessing-differs", "padding-disturbs-eval", "metric-not-shifted", "eval-set-too-small"),
}  # fmt: skip


@pytest.mark.parametrize("symptom", ORDERS)
def test_priors_stand_in_the_handbooks_order(symptom):
    by_id = {case.id: case for case in MINE}
    priors = [by_id[case].symptoms[symptom] for case in ORDERS[symptom]]
    assert priors == sorted(priors, reverse=True)
    assert len(set(priors)) == len(priors)
    assert sum(case.symptoms.get(symptom, 0) for case in found("tuneclinic.casebook", Case)) <= 1.05
