"""Launch scripts."""

SWIFT = """\
# 22 GB
CUDA_VISIBLE_DEVICES=0,1 \\
NPROC_PER_NODE=2 \\
MAX_PIXELS=1003520 \\
swift rlhf \\
    --rlhf_type dpo \\
    --model Qwen/Qwen2.5-VL-7B-Instruct \\
    --train_type lora \\
    --dataset 'team/a#500' \\
              team/b \\
    --learning_rate 1e-4 \\
    --freeze_vit true \\
    --gradient_accumulation_steps $(expr 16 / 2) \\
    --loss_scale ignore_empty_think \\
    --attn_impl flash_attn --deepspeed zero2
"""


def test_swift_script_with_environment(values):
    found = values(SWIFT, "dpo.sh")
    assert found["framework"] == "ms-swift"
    assert found["stage"] == "dpo"
    assert found["dataset"] == ("team/a#500", "team/b")
    assert found["image_max_pixels"] == 1003520
    assert found["processes"] == 2
    assert found["visible_devices"] == "0,1"
    assert found["zero_stage"] == 2
    assert found["loss_scale_labels"] == "ignore_empty_think"
    assert "accumulation" not in found  # only a shell can tell


def test_places_and_quotes_are_the_users_own(read):
    values = read(SWIFT, "dpo.sh").evidence.settings.values
    assert values["learning_rate"].where == "dpo.sh:11"
    assert values["learning_rate"].quote == "--learning_rate 1e-4"
    assert values["attention"].quote == "--attn_impl flash_attn"


FACTORY = """\
#!/bin/bash
MODEL=Qwen2-7B
RUN=${MODEL}-lora
export WANDB_API_KEY=0123456789
llamafactory-cli train --stage sft --do_train True --model_name_or_path "/models/$MODEL" \\
  --finetuning_type lora --quantization_bit 4 --template qwen --cutoff_len 4096 --output_dir saves/$RUN --fp16 # half
llamafactory-cli export --model_name_or_path other --export_dir x
FORCE_TORCHRUN=1 llamafactory-cli train second.yaml learning_rate=1e-5
"""


def test_variables_are_replaced_and_later_commands_are_not_mixed_in(read):
    reading = read(FACTORY, "train.sh")
    settings = reading.evidence.settings
    assert settings.framework == "llama-factory"
    assert settings.get("model") == "/models/Qwen2-7B"
    assert settings.get("output_dir") == "saves/Qwen2-7B-lora"
    assert settings.get("method") == "qlora"
    assert settings.get("fp16") is True
    assert "learning_rate" not in settings
    assert reading.skipped["further training commands"] == 1
    assert "0123456789" not in str(settings)


def test_overrides_after_a_yaml_file(values):
    found = values("#!/bin/sh\nllamafactory-cli train conf.yaml learning_rate=1e-5 bf16=true\n", "go.sh")
    assert (found["learning_rate"], found["bf16"]) == (1e-5, True)


def test_launchers_and_a_script_of_ones_own(values):
    text = (
        "accelerate launch --num_processes 4 --mixed_precision bf16 --config_file a.yaml train.py "
        "--model_name_or_path gpt2 --per_device_train_batch_size=2 --max_seq_length 512 --warmup-ratio .05 --lr_scheduler_type cosine\n"
    )
    found = values("#!/bin/bash\n" + text, "run.sh")
    assert (found["processes"], found["bf16"], found["batch_per_device"]) == (4, True, 2)
    assert found["max_length"] == 512
    assert found["warmup_ratio"] == 0.05
    assert found["framework"] == "transformers"


def test_megatron_flags(values):
    text = "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 2 --global-batch-size 128 --lr 3e-4 --clip-grad 1.0 --seq-length 4096 --tensor-model-parallel-size 4 --bf16\n"
    found = values("#!/bin/bash\n" + text, "mega.sh")
    assert found["framework"] == "megatron"
    assert (found["batch_per_device"], found["global_batch"], found["max_length"]) == (2, 128, 4096)
    assert (found["learning_rate"], found["tensor_parallel"], found["processes"]) == (3e-4, 4, 8)


def test_negative_numbers_are_values_and_unknown_variables_are_left_out(values):
    found = values(
        "#!/bin/bash\npython train.py --num_train_epochs 3 --max_steps -1 --learning_rate $LR --output_dir ${OUT:-here}\n", "a.sh"
    )
    assert found["max_steps"] == -1
    assert found["output_dir"] == "here"
    assert "learning_rate" not in found


def test_a_variable_that_names_itself_ends(values):
    found = values('#!/bin/bash\nA=$A$A\nA="$A$A"\npython t.py --learning_rate 1e-4 --seed 3 --output_dir $A\n', "a.sh")
    assert found["seed"] == 3


def test_a_script_that_only_evaluates_says_that_nothing_was_found(read):
    reading = read("#!/bin/bash\npython eval.py --output_dir x\nlm_eval --model hf\n", "eval.sh")
    assert not reading.understood
    assert reading.note


def test_generating_is_no_training_command(read):
    reading = read(
        "#!/bin/bash\npython infer.py --model_name_or_path x --load_in_8bit --max_new_tokens 5 --output_dir y\n", "i.sh"
    )
    assert not reading.understood
