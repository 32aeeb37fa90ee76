"""The vocabulary of settings: one name a hyperparameter, and what each framework calls it.

The same table serves the readers of configurations (a framework's key to our name) and the remedies (our name to the line
to paste into the user's own framework). Keys were checked against the documentation of transformers 5, TRL 1, LLaMA-Factory
0.9, axolotl 0.1x, ms-swift 4 and torchtune 0.6, with the older spellings of each in `also`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tuneclinic.values import dataclass

FRAMEWORKS: tuple[str, ...] = ("transformers", "llama-factory", "axolotl", "ms-swift", "torchtune")
"""Frameworks with keys of their own. TRL, Unsloth and PEFT users write transformers' keys."""

SAME_KEYS = dict.fromkeys(("trl", "unsloth", "peft", "lightning", "pytorch"), "transformers")


@dataclass(frozen=True, slots=True)
class Name:
    """One setting. Each framework's field is its key; "" where the framework has no such setting."""

    transformers: str = ""
    llama_factory: str = ""
    axolotl: str = ""
    ms_swift: str = ""
    torchtune: str = ""
    also: tuple[str, ...] = ()

    def key(self, framework: str) -> str:
        """What `framework` calls this setting; "" where it has none."""
        return str(getattr(self, SAME_KEYS.get(framework, framework).replace("-", "_"), ""))


def _same(key: str, axolotl: str = "", torchtune: str = "", also: tuple[str, ...] = ()) -> Name:
    """A setting that transformers, LLaMA-Factory and ms-swift call alike; axolotl too unless said."""
    return Name(key, key, axolotl or key, key, torchtune, also)


NAMES: dict[str, Name] = {
    # what is trained, and how
    "model": Name(
        "model_name_or_path",
        "model_name_or_path",
        "base_model",
        "model",
        "",
        (
            "pretrained_model_name_or_path",
            "base_model_name_or_path",
            "model_id",
            "model_id_or_path",
            "base_model_config",
            "checkpointer.checkpoint_dir",
        ),
    ),
    "model_revision": Name("model_revision", "model_revision", "revision_of_model", "model_revision"),
    "stage": Name("", "stage", "rl", "rlhf_type"),
    "method": Name("", "finetuning_type", "adapter", "tuner_type", "", ("train_type", "sft_type")),
    "template": Name(
        "chat_template", "template", "chat_template", "template", "", ("template_type", "chat_template_path", "prompt_template")
    ),
    "dataset": Name("dataset_name", "dataset", "datasets", "dataset", "dataset", ("data_path", "train_file", "data_files")),
    "output_dir": _same("output_dir", torchtune="output_dir"),
    "seed": _same("seed", torchtune="seed"),
    "resume": _same("resume_from_checkpoint", torchtune="resume_from_checkpoint", also=("auto_resume_from_checkpoints",)),
    "adapter_path": Name("", "adapter_name_or_path", "lora_model_dir", "adapters", "", ("peft_path", "resume_from_adapter")),
    # optimisation
    "learning_rate": _same("learning_rate", torchtune="optimizer.lr", also=("lr", "optimizer.params.lr", "base_lr", "peak_lr")),
    "scheduler": Name(
        "lr_scheduler_type",
        "lr_scheduler_type",
        "lr_scheduler",
        "lr_scheduler_type",
        "lr_scheduler._component_",
        ("scheduler_type", "scheduler.type", "lr_decay_style"),
    ),
    "min_learning_rate": Name("", "", "", "", "", ("min_lr", "lr_min", "eta_min", "lr_scheduler_kwargs.min_lr")),
    "min_learning_rate_ratio": Name("", "", "cosine_min_lr_ratio", "", "", ("min_lr_rate", "lr_scheduler_kwargs.min_lr_rate")),
    "warmup_ratio": _same("warmup_ratio", also=("warmup_proportion",)),
    "warmup_steps": Name(
        "warmup_steps",
        "warmup_steps",
        "warmup_steps",
        "warmup_steps",
        "lr_scheduler.num_warmup_steps",
        ("num_warmup_steps", "lr_warmup_iters", "scheduler.params.warmup_num_steps", "warmup_iters"),
    ),
    "epochs": Name(
        "num_train_epochs", "num_train_epochs", "num_epochs", "num_train_epochs", "epochs", ("max_epochs", "n_epochs")
    ),
    "max_steps": Name(
        "max_steps",
        "max_steps",
        "max_steps",
        "max_steps",
        "max_steps_per_epoch",
        ("train_iters", "max_iters", "total_steps", "training_steps", "training.steps"),
    ),
    "batch_per_device": Name(
        "per_device_train_batch_size",
        "per_device_train_batch_size",
        "micro_batch_size",
        "per_device_train_batch_size",
        "batch_size",
        ("train_micro_batch_size_per_gpu", "train_batch_size_per_device", "device_batch_size"),
    ),
    "eval_batch_per_device": Name(
        "per_device_eval_batch_size", "per_device_eval_batch_size", "eval_batch_size", "per_device_eval_batch_size"
    ),
    "accumulation": _same(
        "gradient_accumulation_steps",
        torchtune="gradient_accumulation_steps",
        also=("accumulate_grad_batches", "grad_accum_steps", "accumulative_counts"),
    ),
    "global_batch": Name(also=("train_batch_size", "global_batch_size", "total_batch_size")),
    "optimizer": Name(
        "optim", "optim", "optimizer", "optim", "optimizer._component_", ("optimizer.type", "optimizer_type", "optim_type")
    ),
    "adam_beta2": Name("adam_beta2", "adam_beta2", "adam_beta2", "adam_beta2", "", ("beta2",)),
    "adam_epsilon": _same("adam_epsilon", also=("optimizer.params.eps", "adam_eps")),
    "weight_decay": _same("weight_decay", torchtune="optimizer.weight_decay", also=("optimizer.params.weight_decay",)),
    "max_grad_norm": _same(
        "max_grad_norm",
        torchtune="clip_grad_norm",
        also=("gradient_clipping", "gradient_clip_val", "grad_clip", "clip_grad", "max_norm", "clip_grad.max_norm"),
    ),
    "label_smoothing": _same("label_smoothing_factor", also=("label_smoothing",)),
    "neftune_alpha": Name("neftune_noise_alpha", "neftune_noise_alpha", "neftune_noise_alpha", "neftune_noise_alpha"),
    "group_by_length": Name(
        "train_sampling_strategy", "train_sampling_strategy", "group_by_length", "group_by_length", "", ("group_by_length",)
    ),
    "shuffle": Name(
        "", "disable_shuffling", "shuffle_merged_datasets", "train_dataloader_shuffle", "shuffle", ("dataset_shuffle",)
    ),
    # precision and memory
    "bf16": Name("bf16", "bf16", "bf16", "bf16", "", ("bf16.enabled",)),
    "fp16": Name("fp16", "fp16", "fp16", "fp16", "", ("fp16.enabled",)),
    "pure_bf16": Name("", "pure_bf16", "", "", ""),
    "dtype": Name("dtype", "infer_dtype", "torch_dtype", "torch_dtype", "dtype", ("params_dtype", "model_dtype")),
    "mixed_precision": Name(also=("mixed_precision", "precision", "mixed_precision_type")),
    "compute_dtype": Name("bnb_4bit_compute_dtype", "", "bnb_config_kwargs.bnb_4bit_compute_dtype", "bnb_4bit_compute_dtype"),
    "upcast_layernorm": Name("", "upcast_layernorm"),
    "tf32": _same("tf32"),
    "gradient_checkpointing": Name(
        "gradient_checkpointing",
        "disable_gradient_checkpointing",
        "gradient_checkpointing",
        "gradient_checkpointing",
        "enable_activation_checkpointing",
        ("activation_checkpointing", "use_gradient_checkpointing", "fsdp_config.activation_checkpointing"),
    ),
    "activation_offloading": Name(
        "activation_offloading", "", "activation_offloading", "activation_cpu_offload", "enable_activation_offloading"
    ),
    "quantization_bits": Name("", "quantization_bit", "", "quant_bits", "", ("bits", "quantization_bits")),
    "quantization_method": Name("", "quantization_method", "", "quant_method"),
    "load_in_4bit": Name("load_in_4bit", "", "load_in_4bit", "", "", ("bnb_4bit",)),
    "load_in_8bit": Name("load_in_8bit", "", "load_in_8bit", "", "", ("load_8bit",)),
    "attention": Name(
        "attn_implementation",
        "flash_attn",
        "attn_implementation",
        "attn_impl",
        "",
        (
            "_attn_implementation",
            "flash_attention",
            "sdp_attention",
            "use_flash_attn",
            "use_flash_attention_2",
            "xformers_attention",
            "eager_attention",
        ),
    ),
    "liger": Name(
        "use_liger_kernel", "enable_liger_kernel", "liger_fused_linear_cross_entropy", "use_liger_kernel", "", ("use_liger",)
    ),
    "torch_compile": Name("torch_compile", "torch_compile", "torch_compile", "torch_compile", "compile"),
    "deepspeed": _same("deepspeed"),
    "zero_stage": Name(also=("zero_optimization.stage", "zero_stage")),
    "offload_optimizer": Name(also=("zero_optimization.offload_optimizer.device", "offload_optimizer_device")),
    "offload_parameters": Name(also=("zero_optimization.offload_param.device", "offload_param_device")),
    "overlap_comm": Name(also=("zero_optimization.overlap_comm",)),
    "loss_scale": Name(also=("fp16.loss_scale",)),
    "loss_scale_minimum": Name(also=("fp16.min_loss_scale",)),
    "fsdp": Name("fsdp", "fsdp", "fsdp", "fsdp"),
    "fsdp_sharding": Name(also=("fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy", "fsdp_sharding_strategy")),
    "fsdp_offload": Name(also=("fsdp_config.fsdp_offload_params", "fsdp_config.offload_params", "fsdp_offload_params")),
    "distributed_type": Name(also=("distributed_type",)),
    "gather_weights_on_save": Name(
        also=(
            "zero_optimization.stage3_gather_16bit_weights_on_model_save",
            "zero_optimization.stage3_gather_fp16_weights_on_model_save",
            "zero3_save_16bit_model",
        )
    ),
    "tensor_parallel": Name(also=("tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel.autotp_size")),
    "pipeline_parallel": Name(also=("pipeline_model_parallel_size", "pipeline_parallel_size")),
    "sequence_parallel": Name("", "", "context_parallel_size", "sequence_parallel_size", "", ("sequence_parallel_degree",)),
    "visible_devices": Name(also=("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")),
    "allocator": Name(also=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")),
    "machines": Name(also=("num_machines", "nnodes", "NNODES", "num_nodes")),
    "processes": Name(also=("num_processes", "nproc_per_node", "world_size", "n_gpu", "num_gpus", "NPROC_PER_NODE", "devices")),
    "find_unused_parameters": _same("ddp_find_unused_parameters"),
    "ddp_timeout": _same("ddp_timeout"),
    "use_cpu": Name("use_cpu", "use_cpu", "", "use_cpu", "device", ("no_cuda", "accelerator")),
    # adapter
    "lora_rank": Name("r", "lora_rank", "lora_r", "lora_rank", "model.lora_rank", ("rank", "lora_dim")),
    "lora_alpha": Name("lora_alpha", "lora_alpha", "lora_alpha", "lora_alpha", "model.lora_alpha"),
    "lora_dropout": Name("lora_dropout", "lora_dropout", "lora_dropout", "lora_dropout", "model.lora_dropout"),
    "target_modules": Name(
        "target_modules",
        "lora_target",
        "lora_target_modules",
        "target_modules",
        "model.lora_attn_modules",
        ("lora_target_linear", "lora_targets", "lora_target_modules", "lora_modules"),
    ),
    "modules_to_save": Name("modules_to_save", "additional_target", "lora_modules_to_save", "modules_to_save"),
    "use_rslora": Name("use_rslora", "use_rslora", "peft_use_rslora", "use_rslora"),
    "use_dora": Name("use_dora", "use_dora", "peft_use_dora", "use_dora"),
    "freeze_vision": Name("", "freeze_vision_tower", "", "freeze_vit", "", ("tune_mm_vision", "finetune_vision_layers")),
    "freeze_projector": Name(
        "", "freeze_multi_modal_projector", "", "freeze_aligner", "", ("freeze_merger", "tune_mm_mlp", "freeze_mm_mlp_adapter")
    ),
    "freeze_language": Name(
        "", "freeze_language_model", "", "freeze_llm", "", ("freeze_backbone", "tune_mm_llm", "finetune_language_layers")
    ),
    "freeze_trainable_layers": Name("", "freeze_trainable_layers"),
    "unfrozen_parameters": Name("", "", "unfrozen_parameters", "trainable_parameters"),
    "frozen_share": Name("", "", "", "freeze_parameters_ratio"),
    "tunable_parts": Name(also=("mm_tunable_parts",)),
    # data and labels
    "max_length": Name(
        "max_length",
        "cutoff_len",
        "sequence_len",
        "max_length",
        "tokenizer.max_seq_len",
        ("max_seq_length", "model_max_length", "seq_length", "max_seq_len", "block_size", "sequence_length", "training.seq_len"),
    ),
    "max_prompt_length": Name("max_prompt_length", "", "", ""),
    "max_completion_length": Name("max_completion_length", "", "", "max_completion_length"),
    "truncation_side": Name("truncation_mode", "", "excess_length_strategy", "truncation_strategy"),
    "packing": Name("packing", "packing", "sample_packing", "packing", "dataset.packed", ("pack", "pack_to_max_length")),
    "pad_to_length": Name("", "", "pad_to_sequence_len", ""),
    "neat_packing": Name("", "neat_packing", "", ""),
    "padding_free": Name("padding_free", "", "", "padding_free"),
    "completion_only_loss": Name("completion_only_loss", "", "", ""),
    "assistant_only_loss": Name("assistant_only_loss", "", "", ""),
    "train_on_prompt": Name("", "train_on_prompt", "train_on_inputs", "", "dataset.train_on_input"),
    "mask_history": Name("", "mask_history", "", ""),
    "loss_scale_labels": Name("", "", "", "loss_scale"),
    "roles_to_train": Name("", "", "roles_to_train", ""),
    "train_on_eos": Name("", "", "train_on_eos", ""),
    "eos_token": Name("eos_token", "", "special_tokens.eos_token", "", ""),
    "pad_token": Name("pad_token", "", "special_tokens.pad_token", "", ""),
    "bos_token": Name("", "", "special_tokens.bos_token", "", ""),
    "padding_side": Name("padding_side", "", "", "padding_side"),
    "ignore_pad_in_loss": Name("", "ignore_pad_token_for_loss"),
    "eot_tokens": Name("", "", "eot_tokens"),
    "new_tokens": Name("", "add_special_tokens", "tokens", "new_special_tokens", "", ("add_tokens", "new_special_tokens")),
    "resize_vocabulary": Name("", "resize_vocab", "resize_token_embeddings_to_32x"),
    "system": Name("", "default_system", "default_system_message", "system"),
    "streaming": Name("", "streaming", "streaming", "streaming"),
    "eval_dataset": Name("", "eval_dataset", "test_datasets", "val_dataset"),
    "rope_scaling": Name("", "rope_scaling", "rope_scaling", "rope_scaling", "", ("rope_type",)),
    "dataset_text_field": Name("dataset_text_field", "", "", ""),
    "eval_split": Name(
        "", "val_size", "val_set_size", "split_dataset_ratio", "", ("validation_split_percentage", "dataset_test_ratio")
    ),
    "max_samples": Name("max_train_samples", "max_samples", "", "", "", ("train_dataset_sample",)),
    "workers": _same("dataloader_num_workers"),
    "preprocess_workers": Name(
        "dataset_num_proc", "preprocessing_num_workers", "dataset_num_proc", "dataset_num_proc", "", ("dataset_processes",)
    ),
    "drop_last": _same("dataloader_drop_last"),
    "collator": Name(also=("data_collator", "collator")),
    "remove_unused_columns": _same("remove_unused_columns"),
    "image_max_pixels": Name("max_pixels", "image_max_pixels", "image_size", "max_pixels", "", ("MAX_PIXELS",)),
    "image_min_pixels": Name("min_pixels", "image_min_pixels", "", "min_pixels", "", ("MIN_PIXELS",)),
    # logging, evaluation, saving
    "logging_steps": _same("logging_steps", torchtune="log_every_n_steps", also=("log_interval", "log_every_n_steps")),
    "nan_filter": _same("logging_nan_inf_filter"),
    "eval_strategy": _same("eval_strategy", also=("evaluation_strategy",)),
    "eval_steps": _same("eval_steps", also=("eval_interval", "val_check_interval", "evaluation_freq")),
    "evals_per_epoch": Name("", "", "evals_per_epoch"),
    "saves_per_epoch": Name("", "", "saves_per_epoch"),
    "early_stopping": Name("early_stopping_patience", "early_stopping_steps", "early_stopping_patience", "early_stop_interval"),
    "eval_accumulation": Name("eval_accumulation_steps", "eval_accumulation_steps", "", "eval_accumulation_steps"),
    "metrics_only_loss": Name("prediction_loss_only", "prediction_loss_only", "", "prediction_loss_only"),
    "save_steps": _same("save_steps", also=("save_interval",)),
    "save_limit": _same("save_total_limit"),
    "save_strategy": _same("save_strategy"),
    "save_only_model": _same("save_only_model"),
    "load_best": _same("load_best_model_at_end"),
    # preference and reinforcement learning
    "beta": Name("beta", "pref_beta", "rl_beta", "beta", "loss.beta", ("dpo_beta", "kl_coef", "init_kl_coef", "trl.beta")),
    "preference_loss": Name("loss_type", "pref_loss", "rl", "loss_type"),
    "sft_weight": Name("rpo_alpha", "pref_ftx", "rpo_alpha", "rpo_alpha"),
    "generations": Name("num_generations", "", "trl.num_generations", "num_generations"),
    "reference_model": Name("ref_model", "ref_model", "", "ref_model"),
    # inference
    "temperature": Name("temperature", "temperature", "temperature", "temperature"),
    "top_p": Name("top_p", "top_p", "top_p", "top_p"),
    "top_k": Name("top_k", "top_k", "top_k", "top_k"),
    "repetition_penalty": Name("repetition_penalty", "repetition_penalty", "repetition_penalty", "repetition_penalty"),
    "max_new_tokens": Name("max_new_tokens", "max_new_tokens", "max_new_tokens", "max_new_tokens"),
    "do_sample": Name("do_sample", "do_sample", "do_sample", "do_sample"),
    "generation_eos": Name("eos_token_id", "", "", ""),
    "stop_words": Name("stop_strings", "", "", "stop_words"),
}
"""Every setting that the casebook speaks of."""


INVERTED: frozenset[str] = frozenset(
    {
        "disable_shuffling",
        "disable_gradient_checkpointing",
        "tune_mm_vision",
        "tune_mm_mlp",
        "tune_mm_llm",
        "finetune_vision_layers",
        "finetune_language_layers",
    }
)
"""Keys that say the opposite of our name: `disable_shuffling: true` is `shuffle` off."""


@cache
def _by_key(framework: str) -> dict[str, str]:
    """Key to name: the framework's own keys first, then every other key and alias, then our names themselves."""
    table: dict[str, str] = {}
    if framework:
        for name, keys in NAMES.items():
            if key := keys.key(framework):
                table.setdefault(key, name)
    for name, keys in NAMES.items():
        for key in (*(keys.key(other) for other in FRAMEWORKS), *keys.also, name):
            if key:
                table.setdefault(key, name)
    return table


def name_of(key: str, framework: str = "") -> str | None:
    """Our name for a framework's key, None where the vocabulary has none.

    A key that two frameworks use differently is read in the sense of `framework` first.
    """
    return _by_key(framework).get(key)


SPOKEN: dict[tuple[str, str], dict[Any, str]] = {
    ("llama-factory", "attention"): {"eager": "disabled", "flash_attention_2": "fa2", "flash_attention_3": "fa3"},
    ("transformers", "group_by_length"): {True: "group_by_length"},
    ("llama-factory", "group_by_length"): {True: "group_by_length"},
    ("llama-factory", "method"): {"qlora": "lora"},
    ("llama-factory", "stage"): {"reward": "rm"},
    ("ms-swift", "method"): {"qlora": "lora"},
    ("ms-swift", "stage"): {"reward": "rm"},
}
"""Values that a framework calls otherwise than we do. QLoRA is LoRA with `quantization_bits` beside it there."""


def paste(name: str, value: Any, framework: str) -> str | None:
    """The line to paste to set `name` in `framework`; None where the framework has no such setting.

    YAML for LLaMA-Factory, axolotl and torchtune; a flag for ms-swift; a keyword argument for the Trainer and its kin.
    """
    names = NAMES.get(name)
    key = names.key(framework) if names else ""
    if not key:
        return None
    if key in INVERTED and isinstance(value, bool):
        value = not value
    if not isinstance(value, (list, tuple)):
        value = SPOKEN.get((SAME_KEYS.get(framework, framework), name), {}).get(value, value)
    if framework in {"llama-factory", "axolotl", "torchtune"}:
        return f"{key}: {_yaml(value)}"
    if framework == "ms-swift":
        return f"--{key} {_yaml(value)}"
    return f"{key}={value!r}"


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # YAML 1.1 reads 2e-05 as a string: a dot before the exponent makes it a number for every reader
        mantissa, exponent, power = f"{value:g}".partition("e")
        return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    return str(value)
