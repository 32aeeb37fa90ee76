"""How many parameters a model has, added up from the shapes in its `config.json`.

The sum follows the modules that transformers builds for each family. It is exact for the Llama, Qwen, Mistral, Mixtral,
Gemma, Phi-3, GPT-2, GPT-NeoX, OPT, BLOOM and Falcon families, DeepSeek-V2/V3 without the multi-token head, and BERT; the vision
tower and projector of a vision-language model are counted by the usual layout and are right to a few per cent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneclinic.patterns import pattern

UNGATED = frozenset(
    {
        "gpt2",
        "gpt_neox",
        "gpt_neo",
        "gptj",
        "codegen",
        "opt",
        "bloom",
        "falcon",
        "refinedweb",
        "refinedwebmodel",
        "phi",
        "starcoder2",
        "gpt_bigcode",
        "mpt",
        "bert",
        "roberta",
        "xlm-roberta",
        "electra",
        "nemotron",
    }
)
"""Families whose feed-forward block has two matrices; all others have three (gate, up, down)."""
UNBIASED = frozenset({"falcon", "refinedweb", "refinedwebmodel", "mpt", "nemotron"})
"""Ungated families without biases on their projections."""
ONE_NORM = frozenset({"phi", "gptj", "codegen", "cohere"})
"""Families whose layers run attention and feed-forward side by side behind one norm."""
FOUR_NORMS = ("gemma2", "gemma3", "glm4")
"""Families with norms before and after each block."""
TIED = ("gemma", "gpt2", "opt", "bloom", "falcon", "cohere", "mpt", "starcoder2", "bert", "roberta", "gpt_bigcode")
"""Families that tie the output layer to the embedding where their config.json does not say."""
HYBRID = pattern(r"mamba|^ssm|^conv_|linear_num|state_size|rwkv|_d_conv|time_step")
"""Keys of state-space and hybrid models, whose shapes are not counted here."""
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
"""Where a vision-language model keeps its language model's shape."""

Config = Mapping[str, Any]


def whole(config: Config, *keys: str) -> int | None:
    """The first of `keys` that holds a sensible count."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e12:
            return int(value)
    return None


def text_config(config: Config) -> Config:
    """The language model's own part of a configuration: a nested one where there is one, else the whole."""
    for key in TEXT_CONFIGS:
        nested = config.get(key)
        if isinstance(nested, Mapping) and whole(nested, "hidden_size", "n_embd", "d_model"):
            return {**{k: v for k, v in config.items() if k in {"tie_word_embeddings", "vocab_size"}}, **nested}
    return config


def parameters_of(config: Config) -> float | None:
    """Parameters of the model that `config` (a config.json) describes; None where the shapes do not tell.

    Quantised checkpoints are counted by their logical shapes, so that bytes follow from the bits. An encoder-decoder or
    state-space model gives None.
    """
    text = text_config(config)
    hidden = whole(text, "hidden_size", "n_embd", "d_model", "dim")
    layers = whole(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    vocabulary = whole(text, "vocab_size", "padded_vocab_size")
    if hidden is None or layers is None or vocabulary is None or config.get("is_encoder_decoder") or layers > 10_000:
        return None
    if any(HYBRID.search(str(key)) for key in text) or "mamba" in str(text.get("layer_types")):
        return None
    family = str(text.get("model_type", "")).lower()
    total = vocabulary * hidden * (1 if tied(config) else 2) + _edges(text, family, hidden, vocabulary)
    attention, norms = _attention(text, family, hidden), _norms(text, family, hidden)
    feed_forward = sum(_feed_forward(text, family, hidden, layer) for layer in range(layers))
    return float(total + layers * (attention + norms) + feed_forward + _vision(config, hidden))


def tied(config: Config) -> bool:
    """Whether the output layer shares the embedding's weights, by the file or else by the family's default."""
    text = text_config(config)
    for part in (config, text):
        value = part.get("tie_word_embeddings")
        if isinstance(value, bool):
            return value
    return str(text.get("model_type", "")).lower().startswith(TIED)


def _edges(text: Config, family: str, hidden: int, vocabulary: int) -> int:
    """Final norm, learned positions, biases of the output layer: what stands before and after the layers."""
    layer_norm = 2 if family in UNGATED else 1
    total = hidden * layer_norm
    if family == "gpt2":
        total += (whole(text, "n_positions", "n_ctx") or 1024) * hidden
    elif family == "opt":
        total += ((whole(text, "max_position_embeddings") or 2048) + 2) * hidden
    elif family in {"bert", "roberta", "xlm-roberta", "electra"}:
        places = (whole(text, "max_position_embeddings") or 512) + (whole(text, "type_vocab_size") or 2)
        total += places * hidden + hidden * hidden + hidden
    elif family == "bloom":
        total += 2 * hidden
    elif family in {"phi", "gptj"}:
        total += vocabulary
    return total


def _attention(text: Config, family: str, hidden: int) -> int:
    heads = whole(text, "num_attention_heads", "n_head", "n_heads", "num_heads") or 1
    latent = whole(text, "kv_lora_rank")
    if latent is not None:
        return _latent_attention(text, hidden, heads, latent)
    groups = whole(text, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num") or heads
    if family in {"falcon", "refinedwebmodel"} and not text.get("new_decoder_architecture"):
        groups = 1 if text.get("multi_query", True) else heads
    size = whole(text, "head_dim") or hidden // heads
    query, keys = heads * size, groups * size
    total = hidden * query + 2 * hidden * keys + query * hidden
    biased = family in UNGATED and family not in UNBIASED
    if biased or text.get("attention_bias") is True:
        total += query + 2 * keys + hidden
    elif family.startswith(("qwen2", "chatglm")) or text.get("qkv_bias") or text.get("add_qkv_bias"):
        total += query + 2 * keys
    if family.startswith(("qwen3", "gemma3")):
        total += 2 * size
    elif family.startswith("olmo2"):
        total += query + keys
    return total


def _latent_attention(text: Config, hidden: int, heads: int, latent: int) -> int:
    """DeepSeek's multi-head latent attention: low-rank queries and a joint low-rank key and value."""
    plain, rotary = whole(text, "qk_nope_head_dim") or 128, whole(text, "qk_rope_head_dim") or 64
    value = whole(text, "v_head_dim") or 128
    rank = whole(text, "q_lora_rank")
    wide = heads * (plain + rotary)
    query = hidden * wide if rank is None else hidden * rank + rank + rank * wide
    keys = hidden * (latent + rotary) + latent + latent * heads * (plain + value)
    return query + keys + heads * value * hidden


def _norms(text: Config, family: str, hidden: int) -> int:
    count = 4 if family.startswith(FOUR_NORMS) else 2
    if family in ONE_NORM or (family in {"falcon", "refinedwebmodel"} and not text.get("new_decoder_architecture")):
        count = 1
    return count * hidden * (2 if family in UNGATED else 1)


def _feed_forward(text: Config, family: str, hidden: int, layer: int) -> int:
    wide = whole(text, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size") or 4 * hidden
    experts = whole(text, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    if experts is not None and experts > 1 and _sparse(text, layer):
        each = whole(text, "moe_intermediate_size", "expert_ffn_hidden_size") or wide
        shared = whole(text, "shared_expert_intermediate_size") or each * (whole(text, "n_shared_experts") or 0)
        gate = hidden if whole(text, "shared_expert_intermediate_size") else 0
        return 3 * hidden * (each * experts + shared) + hidden * experts + gate
    if family in UNGATED:
        return 2 * hidden * wide + (wide + hidden if family not in UNBIASED else 0)
    return 3 * hidden * wide + (2 * wide + hidden if text.get("mlp_bias") is True else 0)


def _sparse(text: Config, layer: int) -> bool:
    """Whether layer number `layer` (from 0) is a mixture of experts."""
    dense = text.get("mlp_only_layers")
    if isinstance(dense, (list, tuple)) and layer in dense:
        return False
    step = whole(text, "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step") or 1
    first = whole(text, "first_k_dense_replace") or 0
    return layer >= first and (layer + 1) % step == 0 if "decoder_sparse_step" in text else layer >= first and layer % step == 0


def _vision(config: Config, hidden: int) -> int:
    """Vision tower and projector by the usual layout; 0 for a text model."""
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return 0
    width = whole(vision, "embed_dim", "hidden_size", "width")
    depth = whole(vision, "num_hidden_layers", "depth", "layers")
    if width is None or depth is None or depth > 10_000:
        return 0
    ratio = vision.get("mlp_ratio")
    wide = whole(vision, "intermediate_size") or int(
        width * (ratio if isinstance(ratio, (int, float)) and 0 < ratio < 100 else 4)
    )
    gated = "2_5_vl" in str(vision.get("model_type", config.get("model_type", "")))
    block = 4 * (width * width + width) + (3 if gated else 2) * (width * wide) + wide + 5 * width
    patch = whole(vision, "patch_size") or 14
    embedding = 3 * patch * patch * width * (whole(vision, "temporal_patch_size") or 1)
    side = whole(vision, "image_size")
    positions = (side // patch) ** 2 * width if side else 0
    merge = whole(vision, "spatial_merge_size")
    joined = width * merge * merge if merge else width
    projector = joined * joined + joined * hidden if merge else joined * hidden + hidden * hidden
    return depth * block + embedding + positions + projector
