"""JSON configurations of a run."""

import json

TRAINER = {
    "output_dir": "out",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 8,
    "learning_rate": 5e-05,
    "num_train_epochs": 3.0,
    "lr_scheduler_type": "cosine",
    "fp16": True,
    "bf16": False,
    "optim": "adamw_torch",
    "evaluation_strategy": "no",
    "label_smoothing_factor": 0.0,
    "deepspeed": None,
    "logging_nan_inf_filter": True,
    "max_seq_length": 1024,
    "dataset_text_field": "text",
    "hub_token": "<HUB_TOKEN>",
}
DEEPSPEED = """\
{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "fp16": {"enabled": false, "min_loss_scale": 1},
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.9, 0.95], "eps": 1e-8}},
  "zero_optimization": {
    "stage": 3,
    "offload_param": {"device": "cpu"},
    "stage3_gather_16bit_weights_on_model_save": false
  }
}
"""


def test_trainer_arguments(values):
    found = values(json.dumps(TRAINER, indent=2), "training_args.json")
    assert found["framework"] == "trl"
    assert found["max_length"] == 1024
    assert found["eval_strategy"] == "no"
    assert found["nan_filter"] is True
    assert (found["fp16"], found["bf16"], found["accumulation"]) == (True, False, 8)
    assert "deepspeed" not in found


def test_deepspeed_keys_are_flattened_with_their_own_lines(read):
    settings = read(DEEPSPEED, "ds_config.json").evidence.settings
    assert settings.framework == "deepspeed"
    assert settings.get("zero_stage") == 3
    assert settings.get("offload_parameters") == "cpu"
    assert settings.get("gather_weights_on_save") is False
    assert settings.get("learning_rate") == 3e-5
    assert settings.get("adam_beta2") == 0.95
    assert settings.values["bf16"].where == "ds_config.json:6"
    assert settings.values["bf16"].quote == "bf16.enabled: true"
    assert settings.values["zero_stage"].where == "ds_config.json:9"
    assert "loss_scale_minimum" not in settings  # the fp16 section is off
    assert "global_batch" not in settings  # auto: the Trainer's own value holds


def test_files_that_disagree_are_kept_as_a_conflict(read):
    run = read("per_device_train_batch_size: 2\nfp16: true\nbf16: false\nlearning_rate: 1.0e-4\n", "run.yaml").evidence.settings
    both = run.merge(read(DEEPSPEED, "ds_config.json").evidence.settings)
    assert both.get("bf16") is False
    assert both.conflicts["bf16"][0].where == "ds_config.json:6"
    assert both.conflicts["learning_rate"][0].value == 3e-5


def test_swift_arguments_with_a_whole_deepspeed_configuration_inside(values):
    text = json.dumps(
        {
            "model": "Qwen/Qwen3-8B",
            "tuner_type": "lora",
            "quant_bits": 4,
            "learning_rate": 1e-4,
            "loss_scale": "default",
            "torch_dtype": "bfloat16",
            "freeze_vit": True,
            "deepspeed": {"zero_optimization": {"stage": 2}},
        }
    )
    found = values(text, "args.json")
    assert found["framework"] == "ms-swift"
    assert (found["method"], found["zero_stage"], found["freeze_vision"]) == ("qlora", 2, True)
    assert found["loss_scale_labels"] == "default"


def test_a_file_that_was_cut_short_yields_what_stands_before_the_cut(read):
    settings = read(DEEPSPEED[: DEEPSPEED.index('"offload_param"')], "ds_config.json").evidence.settings
    assert settings.get("zero_stage") == 3
    assert settings.get("max_grad_norm") == 1.0


def test_old_deepspeed_switch_is_stage_one(values):
    text = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": true, "fp16": {"enabled": true}}'
    assert values(text, "ds.json")["zero_stage"] == 1


def test_json_of_other_kinds_is_not_claimed(claim, tmp_path):
    from tuneclinic.probes.reading import SourceFile

    texts = {
        "data.json": '[{"instruction": "a", "output": "b"}]',
        "train.json": '{"messages": [{"role": "user", "content": "learning_rate"}]}',
        "all_results.json": '{"train_loss": 1.0, "epoch": 3, "train_runtime": 5}',
        "package.json": '{"name": "x", "version": "1", "dependencies": {}}',
        "trainer_state.json": '{"log_history": [{"loss": 1, "learning_rate": 1e-4}], "max_steps": 5, "save_steps": 1, "num_train_epochs": 3}',
        "empty.json": "{}",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert claim(SourceFile(tmp_path / name, name)) is None, name
