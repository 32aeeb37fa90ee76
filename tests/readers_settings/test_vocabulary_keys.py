"""The vocabulary as readers and remedies use it: one table, both ways."""

import pytest

from tuneclinic.vocabulary import FRAMEWORKS, INVERTED, NAMES, name_of, paste


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_has_one_name_for_each_of_its_keys(framework):
    keys = [keys.key(framework) for keys in NAMES.values() if keys.key(framework)]
    twice = {key for key in keys if keys.count(key) > 1}
    assert twice <= {"rl"}  # axolotl writes the stage and the preference loss as one word
    for name, names in NAMES.items():
        if names.key(framework) and names.key(framework) not in twice:
            assert name_of(names.key(framework), framework) == name


def test_keys_that_say_the_opposite_are_pasted_the_other_way_round():
    assert paste("shuffle", True, "llama-factory") == "disable_shuffling: false"
    assert paste("gradient_checkpointing", True, "llama-factory") == "disable_gradient_checkpointing: false"
    assert all(name_of(key) for key in INVERTED)


def test_values_are_pasted_in_the_frameworks_own_words():
    assert paste("attention", "eager", "llama-factory") == "flash_attn: disabled"
    assert paste("attention", "eager", "axolotl") == "attn_implementation: eager"
    assert paste("attention", "eager", "ms-swift") == "--attn_impl eager"
    assert paste("stage", "reward", "llama-factory") == "stage: rm"
    assert paste("learning_rate", 2e-5, "axolotl") == "learning_rate: 2.0e-05"


def test_older_spellings_are_known():
    for key, name in {
        "evaluation_strategy": "eval_strategy",
        "max_seq_length": "max_length",
        "torch_dtype": "dtype",
        "sft_type": "method",
        "train_type": "method",
        "model_id_or_path": "model",
        "use_liger": "liger",
        "dataset_processes": "preprocess_workers",
        "activation_checkpointing": "gradient_checkpointing",
    }.items():
        assert name_of(key) == name
