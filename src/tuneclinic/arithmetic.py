"""Memory by arithmetic: what a training set-up needs on one card, part by part, in GiB.

Parameters times bytes by method, precision and optimizer; activations by Korthikanti et al. 2022, "Reducing Activation Recomputation in
Large Transformer Models" (34 bytes a token and hidden unit in 16 bit, with attention scores added where they are stored); logits by
tokens times vocabulary. The sum leaves out the CUDA context (about 0.5 GiB) and fragmentation. It is meant to tell which part is
large, not to promise that something fits.
"""

from __future__ import annotations

from dataclasses import fields

from tuneclinic.sections import Model, Settings
from tuneclinic.values import dataclass

GIB = 2**30
BYTES = {
    "float32": 4.0,
    "fp32": 4.0,
    "float16": 2.0,
    "fp16": 2.0,
    "bfloat16": 2.0,
    "bf16": 2.0,
    "float8": 1.0,
    "int8": 1.0,
    "nf4": 0.56,
    "int4": 0.56,
}
"""Bytes a parameter. 4-bit weights carry a scale per block of 64 values (QLoRA, Dettmers et al. 2023: 0.5 bit with double quantisation off)."""
ADAM_STATES = 8.0
"""Bytes a trainable parameter: two moments in fp32."""
ADAM_8BIT_STATES = 2.0
"""Bytes a trainable parameter: two moments in 8 bit (Dettmers et al. 2022)."""
LOGIT_BYTES = 10.0
"""Bytes a logit at the peak of the loss: 16-bit output, its fp32 copy, and the fp32 gradient, as transformers' causal loss makes them."""
ACTIVATION_BYTES = 34.0
"""Bytes a token, layer and hidden unit without attention scores, 16 bit (Korthikanti et al. 2022, equation 2)."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one card holds at the peak, in GiB by part."""

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return sum(float(getattr(self, part.name)) for part in fields(self))

    @property
    def largest(self) -> str:
        """The name of the largest part."""
        return max((part.name for part in fields(self)), key=lambda name: float(getattr(self, name)))


def need(model: Model, settings: Settings) -> MemoryNeed | None:
    """What `model` trained by `settings` needs on one card; None where the number of parameters is unknown."""
    parameters = model.parameters
    if not parameters:
        return None
    trainable = _trainable(model, settings, parameters)
    stage, ranks = _sharding(settings)
    tokens = (settings.number("batch_per_device") or 1.0) * (settings.number("max_length") or 0.0)
    weights = parameters * weight_bytes(model, settings) / (ranks if stage >= 3 else 1)
    return MemoryNeed(
        weights=weights / GIB,
        gradients=trainable * gradient_bytes(model, settings) / (ranks if stage >= 2 else 1) / GIB,
        optimizer=trainable * state_bytes(model, settings) / (ranks if stage >= 1 else 1) / GIB,
        activations=_activations(model, settings, tokens) / GIB,
        logits=_logits(model, settings, tokens) / GIB,
    )


def weight_bytes(model: Model, settings: Settings) -> float:
    """Bytes a parameter of the loaded weights."""
    bits = settings.number("quantization_bits")
    if bits == 4 or settings.flag("load_in_4bit") or settings.get("method") == "qlora":
        return BYTES["nf4"]
    if bits == 8 or settings.flag("load_in_8bit"):
        return BYTES["int8"]
    if _full(settings) and _mixed(settings) and not _deepspeed(settings):
        return BYTES["float32"]  # autocast keeps the master weights in fp32
    return BYTES.get(str(settings.get("dtype") or model.dtype or "bfloat16").rsplit(".", 1)[-1], 2.0)


def gradient_bytes(model: Model, settings: Settings) -> float:
    """Bytes a trainable parameter of its gradient: the weight's own precision."""
    return BYTES["float32"] if not _full(settings) else weight_bytes(model, settings)


def state_bytes(model: Model, settings: Settings) -> float:
    """Bytes a trainable parameter of optimizer state, fp32 master weights included where DeepSpeed keeps them."""
    if settings.get("offload_optimizer") in {"cpu", "nvme"}:
        return 0.0
    name = str(settings.get("optimizer") or "adamw").lower()
    if "8bit" in name or "4bit" in name:
        states = ADAM_8BIT_STATES
    elif "adafactor" in name or name == "sgd":
        states = 0.1  # row and column factors, or none
    elif "adam" in name or "lamb" in name:
        states = (
            ADAM_STATES if weight_bytes(model, settings) >= 4 or _deepspeed(settings) or not _full(settings) else ADAM_STATES / 2
        )
    else:
        states = ADAM_STATES / 2
    return states + (BYTES["float32"] if _deepspeed(settings) and _mixed(settings) and _full(settings) else 0.0)


def _trainable(model: Model, settings: Settings, parameters: float) -> float:
    if model.trainable:
        return model.trainable
    if _full(settings):
        return parameters
    rank = settings.number("lora_rank") or (model.adapter.rank if model.adapter else None) or 8.0
    if model.hidden and model.layers:
        inner = model.intermediate or 4 * model.hidden
        # seven linear layers a block: four of attention (two of them narrow with grouped queries) and three of the MLP
        return rank * model.layers * (4 * 2 * model.hidden + 3 * (model.hidden + inner))
    return 0.01 * parameters


def _activations(model: Model, settings: Settings, tokens: float) -> float:
    if not (tokens and model.hidden and model.layers):
        return 0.0
    layer = ACTIVATION_BYTES * tokens * model.hidden
    if str(settings.get("attention") or "").lower() in {"eager", "disabled", "false"}:
        length = settings.number("max_length") or 0.0
        layer += 5.0 * (model.heads or 1) * length * tokens
    if settings.flag("gradient_checkpointing"):
        return layer + 2.0 * tokens * model.hidden * model.layers  # one block in full, and each block's 16-bit input
    return layer * model.layers


def _logits(model: Model, settings: Settings, tokens: float) -> float:
    if settings.flag("liger"):
        return 0.0
    return LOGIT_BYTES * tokens * (model.vocabulary or 0)


def _full(settings: Settings) -> bool:
    return str(settings.get("method") or "full").lower() in {"full", "freeze", ""}


def _mixed(settings: Settings) -> bool:
    return bool((settings.flag("bf16") or settings.flag("fp16")) and not settings.flag("pure_bf16"))


def _deepspeed(settings: Settings) -> bool:
    return bool(settings.get("deepspeed")) or settings.number("zero_stage") is not None


def _sharding(settings: Settings) -> tuple[float, float]:
    """(ZeRO stage or its FSDP equal, number of cards)."""
    ranks = settings.number("processes") or 1.0
    if settings.get("fsdp"):
        return 3.0, ranks
    return settings.number("zero_stage") or 0.0, ranks
