"""Any numbers whatever: the statistics answer, and never raise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic import usual
from tuneclinic.curves import Shape, shape
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Metrics, Series

NAMES = (
    "loss", "eval_loss", "grad_norm", "learning_rate", "epoch", "loss_scale", "step_seconds", "tokens_per_second", "rewards/chosen",
    "rewards/rejected", "rewards/margins", "rewards/accuracies", "kl", "reward", "reward_std", "eval_accuracy",
)  # fmt: skip
ODD = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, 1.0, 0.6931]),
)


@st.composite
def odd_series(draw):
    values = draw(st.lists(ODD, max_size=60)) * draw(st.integers(1, 4))
    steps = draw(st.one_of(st.none(), st.lists(ODD, min_size=len(values), max_size=len(values))))
    return Series.of(values, steps)


@st.composite
def odd_metrics(draw):
    series = draw(st.dictionaries(st.sampled_from(NAMES), odd_series(), max_size=6))
    if draw(st.booleans()):
        series["loss"] = draw(odd_series())
    return Metrics(
        series,
        kind=draw(st.sampled_from(["", "causal-lm", "dpo", "grpo", "diffusion", "classification", "nonsense"])),
        total_steps=draw(st.one_of(st.none(), ODD)),
        finished=draw(st.sampled_from([None, True, False])),
        summary=draw(st.dictionaries(st.sampled_from(["eval_loss", "train_loss"]), ODD)),
    )


@settings(max_examples=80, deadline=None)
@given(metrics=odd_metrics(), vocabulary=st.one_of(st.none(), st.sampled_from([0, 1, 2, 32000, 10**30])))
def test_any_numbers_have_a_shape_and_a_comparison(metrics, vocabulary):
    found = shape(metrics, vocabulary)
    assert isinstance(found, Shape)
    assert isinstance(usual.compare(Evidence(metrics=metrics)), tuple)


@pytest.mark.parametrize(
    "count", [0, 1, 2, 3, 4, 5, 7, 8, 11, 16, 20, 24, 40, 41, 59, 60, 61, 100, 127, 129, 255, 257, 20_001, 50_000]
)
def test_every_length_has_a_shape(count):
    rng = np.random.default_rng(count)
    names = ("loss", "grad_norm", "learning_rate", "epoch", "step_seconds", "eval_loss")
    assert shape(Metrics({name: Series.of(rng.random(count)) for name in names}), 32000).points == count


def test_steps_and_values_of_unequal_length_are_cut_to_the_shorter():
    assert shape(Metrics({"loss": Series(np.arange(5.0), np.ones(9))})).points == 5


def test_noise_alone_is_no_symptom():
    rng = np.random.default_rng(7)
    found = shape(Metrics({"loss": Series.of(1.3 * np.exp(0.25 * rng.standard_normal(300)))}))
    assert not found.oscillates
    assert found.diverged_from is None


def test_a_range_too_large_for_a_number_has_a_shape():
    low = -8.98846567e307
    values = [0.0] * 8 + [low] * 2 + [0.0] * 8 + [low] * 2
    assert isinstance(shape(Metrics({"loss": Series.of(values)})), Shape)
