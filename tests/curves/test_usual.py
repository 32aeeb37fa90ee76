"""Bands of usual curves and settings: which band is chosen, and what is said of it."""

import numpy as np
import pytest

from tuneclinic import usual
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Adapter, Metrics, Model, Series, Setting, Settings


def evidence(loss, kind="", model=None, every=1, values=None, **series):
    held = {name: Setting(value, f"config.yaml:{line}") for line, (name, value) in enumerate((values or {}).items(), 1)}
    steps = np.arange(1, len(loss) + 1) * every
    named = {"loss": Series.of(loss, steps)} | {name.replace("__", "/"): Series.of(other) for name, other in series.items()}
    return Evidence(metrics=Metrics(named, kind), settings=Settings(held) if values else None, model=model)


FALL = np.linspace(1.4, 0.9, 60)


@pytest.mark.parametrize(
    ("seen", "kind", "sure"),
    [
        (evidence(FALL), "sft_chat_instruct_model", False),
        (evidence(FALL, model=Model(name="Qwen/Qwen2.5-7B-Instruct")), "sft_chat_instruct_model", True),
        (evidence(FALL, model=Model(name="meta-llama/Llama-2-7b-hf")), "sft_on_base", True),
        (evidence(FALL, model=Model(name="Qwen2-VL-7B-Instruct")), "vlm_stage2", True),
        (evidence(FALL, values={"stage": "pt", "model": "llama"}), "continued_pretraining", True),
        (evidence(FALL + 9.6), "from_scratch_small_lm", True),
        (evidence(FALL, "dpo"), "dpo", True),
        (evidence(FALL * 0, reward=FALL), "grpo", True),
        (evidence(FALL, "diffusion"), "", False),
        (evidence(FALL, "classification"), "", False),
    ],
)
def test_the_kind_of_a_run(seen, kind, sure):
    assert usual.kind(seen) == (kind, sure)


def test_a_run_beside_its_band_says_the_kind_once_and_the_place_of_each_number():
    found = usual.compare(evidence(FALL, model=Model(name="Llama-3.1-8B-Instruct")))
    assert "SFT of a chat model" in found[0].measure.en
    assert "chat 模型" in found[0].measure.zh
    assert (found[0].value, found[0].where) == (1.4, "step 1")
    assert sum("beside" in one.measure.en for one in found) == 1
    assert all(one.low <= one.high and one.runs >= 2 and one.source and one.where for one in found)


def test_a_band_of_few_runs_is_called_weak():
    found = usual.compare(evidence(FALL, "reward", rewards__accuracies=np.full(60, 0.7)))
    assert any("weak" in one.measure.en and "仅供参考" in one.measure.zh for one in found)


def test_the_kind_that_is_only_the_nearest_is_called_so():
    assert "nearest kind" in usual.compare(evidence(FALL))[0].measure.en
    assert "最接近" in usual.compare(evidence(FALL))[0].measure.zh


def test_the_noise_band_shrinks_with_the_samples_behind_a_row():
    def band(every):
        found = usual.compare(evidence(FALL, every=every, values={"batch_per_device": 8}))
        return next(one.high for one in found if "noise" in one.measure.en)

    assert band(10) == pytest.approx(band(1) / np.sqrt(10))


def test_nothing_is_compared_where_nothing_was_read():
    assert usual.compare(Evidence()) == ()
    assert usual.compare(evidence([])) == ()


def test_usual_rates_by_method_and_size():
    lora = usual.setting("learning_rate", "lora")
    full = usual.setting("learning_rate", "full", 7.0)
    assert lora.median == 2e-4
    assert full.median == 2e-5
    assert full.size == "middle"
    assert lora.repositories >= 10
    assert usual.setting("learning_rate", "dpo-full").median == 5e-7
    assert usual.setting("learning_rate", "telepathy") is None
    assert usual.setting("colour", "lora") is None
    assert usual.setting("learning_rate", "kto", 7.0).size == "any"


def test_every_band_of_settings_is_in_order():
    for method, names in usual._table("usual_settings")["methods"].items():
        for name, sizes in names.items():
            for size, band in sizes.items():
                assert band["low"] <= band["median"] <= band["high"], (method, name, size)
                assert 1 <= band["repositories"] <= band["recipes"]


@pytest.mark.parametrize(
    ("values", "kind", "model", "method"),
    [
        ({"method": "lora"}, "", None, "lora"),
        ({"method": "lora", "quantization_bits": 4}, "", None, "qlora"),
        ({"lora_rank": 8, "load_in_4bit": True}, "", None, "qlora"),
        ({"method": "full"}, "dpo", None, "dpo-full"),
        ({"method": "full", "stage": "pt"}, "", None, "cpt"),
        ({"method": "lora"}, "", Model(vision=True), "vlm-lora"),
        ({"learning_rate": 1e-4}, "", Model(adapter=Adapter()), "lora"),
        ({"learning_rate": 1e-4}, "", None, ""),
        ({"learning_rate": 1e-6}, "grpo", None, "grpo"),
    ],
)
def test_the_method_of_a_run(values, kind, model, method):
    assert usual.method_of(evidence(FALL, kind, model, values=values)) == method


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (Model(parameters=1.54e9), 1.54),
        (Model(name="Qwen2.5-0.5B-Instruct"), 0.5),
        (Model(name="SmolLM2-135M"), 0.135),
        (Model(name="Meta-Llama-3-8B"), 8.0),
        (Model(name="gpt2"), None),
    ],
)
def test_the_size_of_a_model(model, size):
    assert usual.size_of(Evidence(model=model)) == size
