"""Telling the framework from the keys of a configuration."""

from tuneclinic.probes.frameworks import framework_of


def test_keys_of_a_derived_framework_win_over_those_it_builds_on():
    common = ["per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type", "gradient_accumulation_steps"]
    assert framework_of(common) == "transformers"
    assert framework_of([*common, "cutoff_len"]) == "llama-factory"
    assert framework_of([*common, "tuner_type"]) == "ms-swift"
    assert framework_of([*common, "dataset_text_field"]) == "trl"
    assert framework_of(["optimizer._component_", "base_model"]) == "torchtune"
    assert framework_of(["name", "version"]) == ""
