"""Brings values of settings into one form: types, and the words frameworks use for the same thing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from tuneclinic.probes.readers._tree import number
from tuneclinic.vocabulary import INVERTED

TEXT_NAMES = frozenset(
    {
        "model",
        "model_revision",
        "dataset",
        "eval_dataset",
        "template",
        "output_dir",
        "resume",
        "adapter_path",
        "visible_devices",
        "allocator",
        "eos_token",
        "pad_token",
        "bos_token",
        "eot_tokens",
        "new_tokens",
        "stop_words",
        "system",
        "reference_model",
        "dataset_text_field",
    }
)
"""Names whose value is text even where it looks like a number or a switch."""

_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "16": "float16",
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
    "32": "float32",
    "float64": "float64",
    "fp8": "float8",
}
_ATTENTION = {
    "fa2": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "flash_attn_2": "flash_attention_2",
    "flash_attention": "flash_attention_2",
    "fa3": "flash_attention_3",
    "disabled": "eager",
    "sdp": "sdpa",
    "sdp_attention": "sdpa",
    "xformers_attention": "xformers",
    "eager_attention": "eager",
    "use_flash_attn": "flash_attention_2",
    "use_flash_attention_2": "flash_attention_2",
}
_STAGES = {
    "rm": "reward",
    "reward": "reward",
    "pretrain": "pt",
    "pretraining": "pt",
    "cpt": "pt",
    "finetune": "sft",
    "ipo": "dpo",
    "gdpo": "dpo",
}
_METHODS = {"none": "full", "lora_llm": "lora", "llama-adapter": "llama-adapter"}
_SCHEDULERS = {
    "CosineAnnealingLR": "cosine",
    "CosineAnnealingWarmRestarts": "cosine_with_restarts",
    "LinearLR": "linear",
    "ConstantLR": "constant",
    "WarmupLR": "constant_with_warmup",
    "WarmupDecayLR": "linear",
    "WarmupCosineLR": "cosine",
    "OneCycleLR": "one_cycle",
    "get_cosine_schedule_with_warmup": "cosine",
    "get_linear_schedule_with_warmup": "linear",
    "get_constant_schedule_with_warmup": "constant_with_warmup",
    "get_constant_schedule": "constant",
}


def typed(name: str, key: str, value: Any) -> Any:
    """`value` of the setting `name` in the one form that cases read; None where it says nothing."""
    if isinstance(value, str):
        value = value.strip()
        if name not in TEXT_NAMES:
            value = _from_text(value)
    if isinstance(value, (list, tuple)):
        value = tuple(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**18:
        value = float(value) if abs(value) < 10**300 else math.inf
    if key.rsplit(".", 1)[-1] in INVERTED and isinstance(value, bool):
        value = not value
    special = _SPECIAL.get(name)
    return special(key.rsplit(".", 1)[-1], value) if special and value is not None else value


def _from_text(text: str) -> Any:
    lowered = text.lower()
    if lowered in {"true", "false"}:
        return lowered == "true"
    if lowered in {"", "none", "null"}:
        return None
    found = number(text) if len(text) < 64 else None
    return text if found is None else found


def _word(value: Any) -> str:
    return str(value).strip().lower().removeprefix("torch.")


def _dtype(_: str, value: Any) -> Any:
    return _DTYPES.get(_word(value), value if isinstance(value, bool) else _word(value))


def _attention(key: str, value: Any) -> Any:
    if isinstance(value, bool):
        return _ATTENTION.get(key.lower(), "flash_attention_2") if value else None
    return _ATTENTION.get(_word(value), _word(value))


def _stage(_: str, value: Any) -> Any:
    if not isinstance(value, str):
        return None
    return _STAGES.get(_word(value), _word(value))


def _method(_: str, value: Any) -> Any:
    if value is False or value is None:
        return "full"
    return _METHODS.get(_word(value), _word(value)) if isinstance(value, str) else None


def _scheduler(_: str, value: Any) -> Any:
    last = str(value).rsplit(".", 1)[-1]
    return _SCHEDULERS.get(last, last.lower() if last.isupper() else last)


def _optimizer(_: str, value: Any) -> Any:
    return str(value).rsplit(".", 1)[-1]


def _checkpointing(_: str, value: Any) -> Any:
    return True if isinstance(value, str) and _word(value) in {"offload", "offload_disk", "unsloth"} else value


def _use_cpu(_: str, value: Any) -> Any:
    return value if isinstance(value, bool) else _word(value) == "cpu"


def _modules(key: str, value: Any) -> Any:
    if isinstance(value, bool):
        return "all-linear" if value and key == "lora_target_linear" else None
    if isinstance(value, str) and "," in value and re.fullmatch(r"[\w.\-, ]+", value):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, tuple):
        return (value[0] if len(value) == 1 and value[0] in {"all-linear", "all"} else value) or None
    return value


def _strategy(_: str, value: Any) -> Any:
    return {True: "steps", False: "no"}.get(value) if isinstance(value, bool) else value


def _deepspeed(_: str, value: Any) -> Any:
    return value if isinstance(value, str) else None


def _zero_stage(_: str, value: Any) -> Any:
    # `"zero_optimization": true` is the first form of DeepSpeed's configuration and means stage 1
    return int(value) if isinstance(value, (bool, int, float)) and 0 <= value <= 3 else value


_SPECIAL: dict[str, Callable[[str, Any], Any]] = {
    "dtype": _dtype,
    "compute_dtype": _dtype,
    "attention": _attention,
    "stage": _stage,
    "method": _method,
    "scheduler": _scheduler,
    "optimizer": _optimizer,
    "gradient_checkpointing": _checkpointing,
    "use_cpu": _use_cpu,
    "target_modules": _modules,
    "modules_to_save": _modules,
    "eval_strategy": _strategy,
    "save_strategy": _strategy,
    "deepspeed": _deepspeed,
    "zero_stage": _zero_stage,
}
