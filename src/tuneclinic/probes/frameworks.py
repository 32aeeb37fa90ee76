"""Which framework a configuration belongs to, told by keys that only one of them reads."""

from __future__ import annotations

from collections.abc import Iterable

SIGNS: tuple[tuple[str, frozenset[str]], ...] = (
    (
        "llama-factory",
        frozenset(
            {
                "finetuning_type",
                "cutoff_len",
                "lora_target",
                "pref_beta",
                "freeze_trainable_layers",
                "freeze_vision_tower",
                "top.finetuning_type",
                "train.cutoff_len",
                "dataset_dir",
                "quantization_bit",
                "enable_liger_kernel",
            }
        ),
    ),
    (
        "ms-swift",
        frozenset(
            {
                "tuner_type",
                "train_type",
                "sft_type",
                "rlhf_type",
                "template_type",
                "attn_impl",
                "freeze_vit",
                "freeze_aligner",
                "split_dataset_ratio",
                "truncation_strategy",
                "train_dataloader_shuffle",
                "model_id_or_path",
                "custom_train_dataset_path",
                "val_dataset",
            }
        ),
    ),
    (
        "axolotl",
        frozenset(
            {
                "base_model",
                "sequence_len",
                "val_set_size",
                "sample_packing",
                "lora_target_linear",
                "dataset_prepared_path",
                "train_on_inputs",
                "lora_model_dir",
            }
        ),
    ),
    (
        "accelerate",
        frozenset({"distributed_type", "compute_environment", "machine_rank", "main_training_function", "downcast_bf16"}),
    ),
    ("deepspeed", frozenset({"train_micro_batch_size_per_gpu", "zero_optimization", "zero_allow_untested_optimizer"})),
    ("megatron", frozenset({"micro_batch_size", "tensor_model_parallel_size", "train_iters", "lr_decay_style"})),
    (
        "trl",
        frozenset(
            {
                "dataset_text_field",
                "completion_only_loss",
                "assistant_only_loss",
                "max_prompt_length",
                "num_generations",
                "chat_template_path",
                "model_init_kwargs",
                "precompute_ref_log_probs",
            }
        ),
    ),
    (
        "transformers",
        frozenset(
            {
                "per_device_train_batch_size",
                "per_device_eval_batch_size",
                "num_train_epochs",
                "lr_scheduler_type",
                "gradient_accumulation_steps",
                "model_name_or_path",
                "logging_nan_inf_filter",
            }
        ),
    ),
    ("xtuner", frozenset({"accumulative_counts", "pack_to_max_length"})),
    ("lightning", frozenset({"max_epochs", "accumulate_grad_batches", "gradient_clip_val", "trainer.max_epochs"})),
)
"""In the order of how specific the keys are; a framework built on another comes before it."""


def framework_of(keys: Iterable[str]) -> str:
    """The framework whose own keys `keys` holds most of; "" where none is told by them.

    Of two with equally many, the more specific one. torchtune is told by its `_component_` keys alone.
    """
    seen = {key.replace("-", "_") for key in keys}
    if any(key.endswith("_component_") for key in seen):
        return "torchtune"
    tops = seen | {key.partition(".")[0] for key in seen}
    counts = {name: len(signs & tops) for name, signs in SIGNS}
    best = max(counts, key=lambda name: counts[name])
    if best in {"transformers", "trl"}:
        # LLaMA-Factory, ms-swift and TRL read every key of transformers beside their own
        return next((name for name in ("llama-factory", "ms-swift", "trl") if counts[name]), best if counts[best] else "")
    return best if counts[best] else ""
