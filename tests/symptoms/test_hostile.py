"""Symptoms answer whatever they are shown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.evidence import Evidence
from tuneclinic.registry import found
from tuneclinic.sections import Crash, CrashError, Data, Log, LogLine, Metrics, Model, Output, Outputs, Score, Scores, Series
from tuneclinic.symptom import Symptom
from tuneclinic.symptoms._outputs import loop

SYMPTOMS = found("tuneclinic.symptoms", Symptom)
NUMBERS = st.floats(width=64) | st.sampled_from([0.0, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 10.37])
NAMES = (
    "loss",
    "eval_loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "eval_accuracy",
    "step_seconds",
    "rewards/chosen",
    "kl",
    "reward",
    "entropy",
)
KINDS = ("", "causal-lm", "dpo", "grpo", "ppo", "diffusion", "classification", "unheard-of")


def answers(evidence):
    for symptom in SYMPTOMS:
        sighting = symptom.see(evidence)
        assert sighting.symptom == symptom.id
        assert sighting.verdict in {"confirmed", "suspected", "ruled_out", "not_checked"}
        if sighting.verdict == "confirmed":
            assert sighting.exhibits


@st.composite
def series(draw):
    values = draw(st.lists(NUMBERS, max_size=40))
    steps = draw(st.none() | st.lists(NUMBERS, min_size=len(values), max_size=len(values)))
    return Series.of(values, steps)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), series(), max_size=6), st.sampled_from(KINDS), st.none() | st.integers(1, 300_000))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_metrics(held, kind, vocabulary):
    ranks = dict.fromkeys((0, 3), held)
    metrics = Metrics(held, kind=kind, by_rank=ranks, summary={"eval_loss": float("nan")})
    answers(Evidence(metrics=metrics, model=Model(vocabulary=vocabulary), data=Data(rows=10, total=10)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=200), st.text(max_size=400), st.none() | st.text(max_size=20)), max_size=6))
def test_any_outputs(rows):
    items = tuple(
        Output(prompt, text, "o", reference=finish, base=prompt, finish=finish, tokens=0) for prompt, text, finish in rows
    )
    answers(Evidence(outputs=Outputs(items, max_new_tokens=0)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=200)), max_size=4), st.booleans())
def test_any_crash_and_log(rows, interrupted):
    errors = tuple(CrashError(kind, message) for kind, message in rows)
    lines = tuple(LogLine(message, "l") for _, message in rows)
    answers(Evidence(crash=Crash(errors, interrupted=interrupted), log=Log(lines, len(lines))))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.none() | NUMBERS, st.none() | NUMBERS, st.booleans()), max_size=6))
def test_any_scores(rows):
    items = tuple(Score(task, "acc", tuned, base, lower=flag, domain=flag) for task, tuned, base, flag in rows)
    answers(Evidence(scores=Scores((*items, Score("x merged", "acc", float("inf")), Score("x", "acc", 1.0)))))


def test_giant_outputs_are_bounded():
    text = "abcdefghij" * 200_000 + "[INST] " * 100_000
    answers(Evidence(outputs=Outputs(tuple(Output("q", text, "o") for _ in range(3)))))
    assert loop("ab" * 1_000_000) is not None


def test_a_log_of_nan_alone():
    answers(Evidence(metrics=Metrics({name: Series.of(np.full(50, np.nan)) for name in NAMES})))
