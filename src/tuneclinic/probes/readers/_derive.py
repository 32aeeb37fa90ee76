"""What settings imply: method from adapter and bits, precision flags from one word, the ZeRO stage from a file's name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.sections import Setting

Values = dict[str, Setting]

ZERO_NAME = pattern(r"(?:zero|stage|ds[_-]?z|(?<![a-z])z)[_-]?(?:stage)?[_-]?([0-3])(?![0-9])", re.IGNORECASE)
"""`zero3.json`, `ds_z2_offload_config.json`, `zero_stage1_config.json`, `stage_2.json`."""
QLORA_BITS = 4
"""QLoRA is LoRA on a base of 4 bits or fewer (Dettmers et al. 2023); on 8 bits people say LoRA."""


def derive(values: Values, unknown: Mapping[str, Setting], framework: str) -> Values:
    """`values` with what they imply. A value derived here quotes the line that it follows from."""
    values = dict(values)
    _precision(values, unknown)
    if framework == "torchtune" and values.get("dtype") is not None and values["dtype"].value == "bfloat16":
        follow(values, "bf16", value=True, origin=values["dtype"])
        follow(values, "pure_bf16", value=True, origin=values["dtype"])  # torchtune casts the weights themselves
    _quantization(values, unknown)
    _method(values, unknown, framework)
    _stage(values, unknown, framework)
    _zero(values, unknown)
    _rest(values, unknown)
    return values


def follow(values: Values, name: str, value: Any, origin: Setting) -> None:
    """Sets `name` as a consequence of `origin` where nothing sets it itself."""
    if name not in values:
        values[name] = replace(origin, value=value, written=origin.quote)


def _precision(values: Values, unknown: Mapping[str, Setting]) -> None:
    mixed = values.get("mixed_precision")
    if mixed is not None:
        word = str(mixed.value).lower()
        if word.startswith("bf16"):
            follow(values, "bf16", value=True, origin=mixed)
        elif word.startswith(("fp16", "16")):
            follow(values, "fp16", value=True, origin=mixed)
        if word.endswith("-true"):
            kind = {"bf16-true": "bfloat16", "16-true": "float16"}.get(word)
            if kind:
                follow(values, "dtype", kind, mixed)
            if word == "bf16-true":
                follow(values, "pure_bf16", value=True, origin=mixed)
    bf16 = values.get("bf16")
    if bf16 is not None and bf16.value == "full":  # axolotl: weights and optimizer states in bf16, no autocast
        values["bf16"] = replace(bf16, value=True, written=bf16.quote)
        follow(values, "pure_bf16", value=True, origin=bf16)
    for key, kind in (("bfloat16", "bfloat16"), ("float16", "float16")):
        whole = unknown.get(key)
        if whole is not None and whole.value is True:
            follow(values, "dtype", kind, whole)
            follow(values, "bf16" if kind == "bfloat16" else "fp16", value=True, origin=whole)
            if kind == "bfloat16":
                follow(values, "pure_bf16", value=True, origin=whole)


def _quantization(values: Values, unknown: Mapping[str, Setting]) -> None:
    for name, bits in (("load_in_4bit", 4), ("load_in_8bit", 8)):
        switch = values.get(name)
        if switch is not None and switch.value is True:
            follow(values, "quantization_bits", bits, switch)
    kind = unknown.get("peft.loftq_config.loftq_bits")
    if kind is not None:
        follow(values, "quantization_bits", kind.value, kind)
    bits_set = values.get("quantization_bits")
    if bits_set is not None and (not isinstance(bits_set.value, (int, float)) or not 0 < bits_set.value <= QLORA_BITS * 2):
        del values["quantization_bits"]  # `--bits 16`, `quant_bits: 0`: not quantised


def _method(values: Values, unknown: Mapping[str, Setting], framework: str) -> None:
    rank, whole = values.get("lora_rank"), unknown.get("full_finetune")
    parts = unknown.get("model._component_")
    if parts is not None and framework == "torchtune":
        found = re.search(r"\.(qlora|lora|dora|qdora)_", str(parts.value))
        follow(values, "method", {"dora": "lora", "qdora": "qlora"}.get(found[1], found[1]) if found else "full", parts)
        if found and found[1].startswith("q"):
            follow(values, "quantization_bits", QLORA_BITS, parts)
    if whole is not None and whole.value is True:
        follow(values, "method", "full", whole)
    switch = unknown.get("use_peft")
    if switch is not None and switch.value is False:
        follow(values, "method", "full", switch)
    # axolotl, which people leave old lora_ keys in, goes by `adapter` alone
    if framework != "axolotl" and rank is not None and isinstance(rank.value, (int, float)) and rank.value > 0:
        follow(values, "method", "lora", rank)
    if framework == "axolotl" and "method" not in values and "adapter_path" not in values:
        origin = values.get("model")
        if origin is not None:
            # axolotl trains all weights unless `adapter` names one
            values["method"] = Setting("full", origin.where, origin.source, "adapter", f"{origin.quote}  # adapter: -")
    _bits_make_qlora(values)


def _bits_make_qlora(values: Values) -> None:
    method, bits = values.get("method"), values.get("quantization_bits")
    if method is None:
        return
    if method.value == "lora" and bits is not None and bits.value <= QLORA_BITS:
        values["method"] = replace(method, value="qlora", written=f"{method.quote}, {bits.quote}")
    elif method.value == "qlora":
        follow(values, "quantization_bits", QLORA_BITS, method)


def _stage(values: Values, unknown: Mapping[str, Setting], framework: str) -> None:
    if framework == "axolotl":
        origin = values.get("dataset") or values.get("model")
        kind = unknown.get("datasets.0.type")
        if kind is not None and kind.value in {"completion", "pretrain"}:
            follow(values, "stage", "pt", kind)
        elif origin is not None:
            follow(values, "stage", "sft", origin)
    loss = unknown.get("loss._component_")
    if framework == "torchtune" and loss is not None:
        found = re.search(r"(DPO|PPO|GRPO|RSO)", str(loss.value))
        follow(values, "stage", found[1].lower() if found else "sft", loss)
    if values.get("generations") is not None:
        follow(values, "stage", "grpo", values["generations"])


def _zero(values: Values, unknown: Mapping[str, Setting]) -> None:
    origin = (
        values.get("deepspeed") or unknown.get("deepspeed_config_file") or unknown.get("deepspeed_config.deepspeed_config_file")
    )
    if origin is not None and isinstance(origin.value, str):
        base = origin.value.replace("\\", "/").rsplit("/", 1)[-1]
        found = ZERO_NAME.search(base)
        if found:
            follow(values, "zero_stage", int(found[1]), origin)
            if "offload" in base.lower():
                follow(values, "offload_optimizer", "cpu", origin)
                if found[1] == "3":
                    follow(values, "offload_parameters", "cpu", origin)


def _rest(values: Values, unknown: Mapping[str, Setting]) -> None:
    warmup = values.get("warmup_steps")
    if warmup is not None and isinstance(warmup.value, float) and 0 < warmup.value < 1:
        # transformers 5 takes a share of the steps under the same key
        del values["warmup_steps"]
        follow(values, "warmup_ratio", warmup.value, warmup)
    parts = values.get("tunable_parts")
    if parts is not None:
        for name, part in (
            ("freeze_vision", "vision_tower"),
            ("freeze_projector", "mlp_adapter"),
            ("freeze_language", "language_model"),
        ):
            follow(values, name, value=part not in str(parts.value), origin=parts)
    for key in ("betas", "optimizer.betas", "optimizer.params.betas", "optim_wrapper.optimizer.betas"):
        pair = unknown.get(key)
        if pair is not None and isinstance(pair.value, tuple) and len(pair.value) == 2:
            follow(values, "adam_beta2", pair.value[1], pair)
    evaluations = values.get("evals_per_epoch")
    if evaluations is not None and evaluations.value:
        follow(values, "eval_strategy", "steps", evaluations)
