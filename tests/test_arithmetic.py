"""Memory by arithmetic against numbers that are known."""

import pytest

from tuneclinic.arithmetic import need
from tuneclinic.sections import Model, Setting, Settings

LLAMA_8B = Model(parameters=8.03e9, hidden=4096, layers=32, heads=32, intermediate=14336, vocabulary=128256, dtype="bfloat16")


def settings(**values):
    return Settings({name: Setting(value) for name, value in values.items()})


def test_full_tuning_with_autocast_takes_sixteen_bytes_a_parameter():
    got = need(LLAMA_8B, settings(method="full", bf16=True))
    assert (got.weights + got.gradients + got.optimizer) * 2**30 / 8.03e9 == pytest.approx(16)


def test_deepspeed_keeps_sixteen_bytes_too_and_divides_them():
    one = need(LLAMA_8B, settings(method="full", bf16=True, deepspeed="ds.json", zero_stage=3, processes=8))
    assert (one.weights + one.gradients + one.optimizer) * 2**30 / 8.03e9 == pytest.approx(16 / 8)


def test_pure_bf16_takes_eight():
    got = need(LLAMA_8B, settings(method="full", pure_bf16=True, bf16=True, dtype="bfloat16"))
    assert (got.weights + got.gradients + got.optimizer) * 2**30 / 8.03e9 == pytest.approx(8)


def test_qlora_is_mostly_weights_and_logits():
    got = need(
        LLAMA_8B,
        settings(
            method="qlora", quantization_bits=4, lora_rank=16, batch_per_device=1, max_length=2048, gradient_checkpointing=True
        ),
    )
    assert 4 < got.weights < 5
    assert got.optimizer < 0.5
    assert got.logits == pytest.approx(2048 * 128256 * 10 / 2**30)


def test_logits_grow_with_the_vocabulary_and_vanish_with_a_fused_loss():
    wide = settings(method="lora", batch_per_device=8, max_length=4096)
    assert need(LLAMA_8B, wide).largest in {"logits", "activations"}
    assert need(LLAMA_8B, settings(method="lora", batch_per_device=8, max_length=4096, liger=True)).logits == 0


def test_without_a_parameter_count_there_is_no_estimate():
    assert need(Model(), settings(method="full")) is None
