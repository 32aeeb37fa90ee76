"""YAML configurations of each framework, rebuilt small."""

import math

AXOLOTL = """\
base_model: Qwen/Qwen2.5-7B
load_in_4bit: true
datasets:
  - path: team/data.jsonl
    type: chat_template
adapter: lora
lora_r: 16
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 3
learning_rate: 2e-5
bf16: full
flash_attention: true
gradient_checkpointing: offload
evals_per_epoch: 4
deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json
special_tokens:
  pad_token: "<|endoftext|>"
lora_model_dir:
"""


def test_axolotl_is_told_by_its_keys_and_means_qlora(values):
    found = values(AXOLOTL, "run.yml")
    assert found["framework"] == "axolotl"
    assert found["method"] == "qlora"
    assert found["quantization_bits"] == 4
    assert found["target_modules"] == "all-linear"
    assert found["attention"] == "flash_attention_2"
    assert found["pure_bf16"] is True
    assert found["bf16"] is True
    assert found["gradient_checkpointing"] is True
    assert found["stage"] == "sft"
    assert found["zero_stage"] == 3
    assert found["offload_optimizer"] == "cpu"
    assert found["pad_token"] == "<|endoftext|>"  # noqa: S105 - a token of a vocabulary
    assert "eval_steps" not in found  # four times an epoch is not every four steps
    assert "adapter_path" not in found


def test_an_exponent_without_a_dot_is_a_number_quoted_as_it_was_written(read):
    setting = read(AXOLOTL, "run.yml").evidence.settings.values["learning_rate"]
    assert setting.value == 2e-5
    assert setting.where == "run.yml:14"
    assert setting.quote == "learning_rate: 2e-5"
    assert setting.key == "learning_rate"


def test_axolotl_without_an_adapter_trains_everything(values):
    text = AXOLOTL.replace("adapter: lora\n", "adapter:\n").replace("lora_r: 16\n", "").replace("load_in_4bit: true\n", "")
    assert values(text, "run.yml")["method"] == "full"


LLAMA_FACTORY = """\
model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct
stage: rm
finetuning_type: lora
quantization_bit: 8
lora_target: q_proj,v_proj
template: qwen2_vl
cutoff_len: 2048
dataset: a,b
val_size: 0.1
freeze_vision_tower: true
disable_shuffling: true
disable_gradient_checkpointing: true
flash_attn: disabled
learning_rate: "1.0e-4"
fp16: true
pure_bf16: false
deepspeed: examples/deepspeed/ds_z2_offload_config.json
resume_from_checkpoint: null
"""


def test_llama_factory_words_become_the_common_ones(values):
    found = values(LLAMA_FACTORY, "train.yaml")
    assert found["framework"] == "llama-factory"
    assert found["stage"] == "reward"
    assert found["method"] == "lora"  # on 8 bits
    assert found["quantization_bits"] == 8
    assert found["target_modules"] == ("q_proj", "v_proj")
    assert found["shuffle"] is False
    assert found["gradient_checkpointing"] is False
    assert found["attention"] == "eager"
    assert found["learning_rate"] == 1e-4
    assert found["freeze_vision"] is True
    assert (found["zero_stage"], found["offload_optimizer"]) == (2, "cpu")
    assert "resume" not in found


def test_what_follows_from_a_line_quotes_that_line(read):
    values = read(LLAMA_FACTORY, "train.yaml").evidence.settings.values
    assert values["zero_stage"].quote == "deepspeed: examples/deepspeed/ds_z2_offload_config.json"
    assert values["zero_stage"].where == "train.yaml:17"
    assert values["attention"].quote == "flash_attn: disabled"


def test_llama_board_keeps_its_settings_under_two_prefixes(values):
    text = "top.finetuning_type: lora\ntop.model_name: Qwen2-7B\ntrain.cutoff_len: 512\ntrain.learning_rate: 5e-5\ntrain.lora_rank: 8\ntrain.batch_size: 2\n"
    found = values(text, "llamaboard_config.yaml")
    assert found["method"] == "lora"
    assert found["max_length"] == 512
    assert found["learning_rate"] == 5e-5
    assert found["framework"] == "llama-factory"


TORCHTUNE = """\
model:
  _component_: torchtune.models.llama3.qlora_llama3_8b
  lora_attn_modules: ['q_proj', 'v_proj']
  lora_rank: 8
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 1024
optimizer:
  _component_: bitsandbytes.optim.PagedAdamW8bit
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 100
loss:
  _component_: torchtune.rlhf.loss.DPOLoss
  beta: 0.2
batch_size: 2
epochs: 1
device: cuda
dtype: bf16
"""


def test_torchtune_components_tell_method_and_stage(values):
    found = values(TORCHTUNE, "lora.yaml")
    assert found["framework"] == "torchtune"
    assert (found["method"], found["quantization_bits"]) == ("qlora", 4)
    assert found["stage"] == "dpo"
    assert found["beta"] == 0.2
    assert found["optimizer"] == "PagedAdamW8bit"
    assert found["scheduler"] == "cosine"
    assert found["dtype"] == "bfloat16"
    assert found["use_cpu"] is False
    assert found["batch_per_device"] == 2
    assert found["learning_rate"] == 3e-4
    assert found["warmup_steps"] == 100


def test_accelerate_configuration(values):
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
        "  offload_optimizer_device: none\n  zero3_save_16bit_model: false\nmixed_precision: fp16\nnum_processes: 8\n"
    )
    found = values(text, "default_config.yaml")
    assert found["framework"] == "accelerate"
    assert (found["zero_stage"], found["processes"], found["fp16"]) == (3, 8, True)
    assert found["gather_weights_on_save"] is False
    assert "offload_optimizer" not in found
    assert "dtype" not in found  # autocast says nothing of the weights


def test_generic_sections_are_looked_through(values):
    text = "model:\n  model_name_or_path: gpt2\ntraining:\n  learning_rate: 1e-3\n  weight_decay: .1\nlora:\n  r: 4\n  alpha: 8\n"
    found = values(text, "config.yaml")
    assert (found["learning_rate"], found["weight_decay"], found["lora_rank"], found["lora_alpha"]) == (1e-3, 0.1, 4, 8)


def test_a_share_of_steps_under_warmup_steps_is_a_ratio(values):
    found = values("per_device_train_batch_size: 1\nwarmup_steps: 0.03\nlearning_rate: 1.0e-5\n", "config.yaml")
    assert found["warmup_ratio"] == 0.03
    assert "warmup_steps" not in found


def test_anchors_and_merge_keys_are_read_and_cycles_end(values, read):
    text = (
        "base: &base\n  learning_rate: 1e-4\n  weight_decay: 0.1\ntraining:\n  <<: *base\n  num_epochs: 2\n  weight_decay: 0.2\n"
    )
    found = values(text, "config.yaml")
    assert (found["learning_rate"], found["weight_decay"]) == (1e-4, 0.2)
    cyclic = "learning_rate: 1e-4\nseed: 1\nnum_epochs: 1\na: &a\n  b: *a\nc: &c [*c, *c]\n"
    assert read(cyclic, "cyclic.yaml").evidence.settings.get("seed") == 1


def test_a_billion_laughs_are_not_laughed(read):
    levels = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10))
    text = f"learning_rate: 1e-4\nseed: 1\nnum_epochs: 1\na0: &a0 lol\n{levels}\n"
    assert read(text, "laughs.yaml").evidence.settings.get("seed") == 1


def test_what_stands_before_a_syntax_error_is_kept_and_the_error_named(read):
    reading = read("learning_rate: 1e-4\nnum_epochs: 3\nseed: 1\n  bad: [1, 2\n: x\n", "broken.yaml")
    assert reading.evidence.settings.get("epochs") == 3
    assert "line 4" in reading.note.en


def test_huge_numbers_become_floats(read):
    reading = read(f"learning_rate: 1e999\nmax_steps: {'9' * 5000}\nseed: {10**30}\n", "huge.yaml")
    settings = reading.evidence.settings
    assert settings.number("learning_rate") == math.inf
    assert settings.number("seed") == 1e30


def test_secrets_are_not_read(read):
    settings = read(
        "learning_rate: 1e-4\nseed: 1\nnum_epochs: 2\nwandb_api_key: abc\nhub_token: hf_x\n", "c.yaml"
    ).evidence.settings
    assert "hf_x" not in str(settings)
    assert "abc" not in str(settings)


def test_compose_and_conda_files_are_not_claimed_as_configurations(claim, tmp_path):
    from tuneclinic.probes.reading import SourceFile

    for name, text in {
        "docker-compose.yml": "services:\n  vllm:\n    image: vllm\n    command: --model x\nversion: '3'\n",
        "mkdocs.yml": "site_name: x\nnav:\n  - a: b.md\ntheme: y\n",
    }.items():
        path = tmp_path / name
        path.write_text(text)
        assert claim(SourceFile(path, name)) is None


def test_switches_that_leave_old_lora_keys_behind(values):
    text = AXOLOTL.replace("adapter: lora\n", "adapter:\n").replace("load_in_4bit: true\n", "")
    assert values(text, "run.yml")["method"] == "full"
    recipe = "model_name_or_path: a/b\ntorch_dtype: bfloat16\nuse_peft: false\nlora_r: 16\nlearning_rate: 2.0e-05\n"
    assert values(recipe, "sft.yaml")["method"] == "full"
    assert values(recipe.replace("false", "true"), "sft.yaml")["method"] == "lora"


def test_wandb_writes_each_value_one_level_down(values):
    text = "learning_rate:\n  desc: null\n  value: 0.0001\nbf16:\n  value: true\nnum_train_epochs:\n  value: 3\n"
    found = values(text, "config.yaml")
    assert (found["learning_rate"], found["bf16"], found["epochs"]) == (1e-4, True, 3)


def test_tags_construct_nothing(read, tmp_path):
    witness = tmp_path / "witness"
    text = f"learning_rate: 1e-4\nseed: 1\nnum_epochs: 1\nx: !!python/object/apply:os.system ['touch {witness}']\n"
    assert read(text, "evil.yaml").evidence.settings.get("seed") == 1
    assert not witness.exists()
