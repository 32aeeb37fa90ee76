"""A model's `config.json`: its shape, precision and end tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers._json_file import load, place
from tuneclinic.probes.readers._normalise import typed
from tuneclinic.probes.readers._parameters import parameters_of, text_config, tied, whole
from tuneclinic.probes.readers._settings import Entry, settings_of
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Model, Settings, Tokenizer
from tuneclinic.words import Text

BYTES = 4 << 20
"""The most of the file that is read: label maps of large classifiers reach 1 MB."""
SIGNS = (b'"architectures"', b'"model_type"')
OTHER = (
    "generation_config.json",
    "adapter_config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
NOT_A_MODEL = Text("No shape of a language model was found in this file.", "这个文件里没有找到语言模型的结构参数。")


class ModelConfig(Reader):
    """`config.json` of a model or of a checkpoint."""

    kind = "model configuration"
    precedence = 40

    def claims(self, file: SourceFile) -> float:
        """`config.json` that names an architecture or a model type."""
        if not file.base.endswith(".json") or file.binary or file.base.endswith(OTHER):
            return 0.0
        named = sum(sign in file.head for sign in SIGNS)
        if file.base.endswith("config.json") and named:
            return 0.9
        return 0.6 if named == 2 and b'"hidden_size"' in file.head else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """Shapes, dtype, quantisation and the number of parameters they add up to; end and pad ids for the tokenizer."""
        config, text, problem = load(file, BYTES)
        if problem:
            return [Reading(note=problem)]
        model = _model(config, text, file.name)
        known = sum(
            getattr(model, name) is not None for name in ("architecture", "family", "hidden", "layers", "vocabulary", "dtype")
        )
        if not known:
            return [Reading(note=NOT_A_MODEL)]
        ids = identifiers(_either(config, "eos_token_id"))
        pad = identifiers(_either(config, "pad_token_id"))
        tokenizer = None
        if ids or pad:
            places = {"config_eos": place(text, "eos_token_id", file.name), "config_pad": place(text, "pad_token_id", file.name)}
            tokenizer = Tokenizer(config_eos=ids or None, config_pad=pad[0] if pad else None, places=places, sources=(file.name,))
        return [
            Reading(
                Evidence(model=model, tokenizer=tokenizer, settings=_rope(config, text, file.name)), {"model settings": known}
            )
        ]


def identifiers(value: Any) -> tuple[int, ...]:
    """Token ids of a value that may be one id, a list of ids or absent."""
    values = value if isinstance(value, list) else [value]
    return tuple(item for item in values[:100] if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 31)


def _either(config: Mapping[str, Any], key: str) -> Any:
    """A value of the whole model's part, or of the language model's where it is nested."""
    value = config.get(key)
    return value if value is not None else text_config(config).get(key)


def _model(config: Mapping[str, Any], text: str, file: str) -> Model:
    inner = text_config(config)
    architectures = config.get("architectures")
    heads = whole(inner, "num_attention_heads", "n_head", "n_heads")
    hidden = whole(inner, "hidden_size", "n_embd", "d_model")
    dtype = _either(config, "dtype") or _either(config, "torch_dtype")
    places = {
        name: place(text, key, file)
        for name, keys in _PLACES.items()
        for key in [next((key for key in keys if f'"{key}"' in text), "")]
        if key
    }
    return Model(
        name=_text(config.get("_name_or_path")),
        architecture=_text(architectures[0]) if isinstance(architectures, list) and architectures else None,
        family=_text(config.get("model_type")),
        vocabulary=whole(inner, "vocab_size", "padded_vocab_size"),
        hidden=hidden,
        layers=whole(inner, "num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        heads=heads,
        key_value_heads=whole(inner, "num_key_value_heads", "num_kv_heads", "multi_query_group_num") or heads,
        intermediate=whole(inner, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
        head_dim=whole(inner, "head_dim") or (hidden // heads if hidden and heads else None),
        experts=whole(inner, "num_experts", "num_local_experts", "n_routed_experts"),
        max_positions=whole(inner, "max_position_embeddings", "n_positions", "seq_length", "max_sequence_length"),
        tied=tied(config),
        dtype=typed("dtype", "dtype", dtype) if isinstance(dtype, str) else None,
        quantization=_quantization(config.get("quantization_config")),
        parameters=parameters_of(config),
        vision=any(key in config for key in ("vision_config", "visual", "mm_vision_tower", "vision_tower")),
        image_token_id=next(iter(identifiers(config.get("image_token_id", config.get("image_token_index")))), None),
        places=places,
        sources=(file,),
    )


_PLACES = {
    "architecture": ("architectures",),
    "vocabulary": ("vocab_size",),
    "hidden": ("hidden_size", "n_embd"),
    "layers": ("num_hidden_layers", "n_layer"),
    "max_positions": ("max_position_embeddings", "n_positions"),
    "tied": ("tie_word_embeddings",),
    "dtype": ("dtype", "torch_dtype"),
    "quantization": ("quantization_config",),
    "image_token_id": ("image_token_id", "image_token_index"),
}


def _quantization(value: Any) -> str | None:
    """`bitsandbytes-4bit`, `gptq-4bit`, `fp8`."""
    if not isinstance(value, Mapping):
        return None
    method = str(value.get("quant_method") or "unknown")[:40]
    bits = value.get("bits") or (4 if value.get("load_in_4bit") else 8 if value.get("load_in_8bit") else None)
    return f"{method}-{bits}bit" if isinstance(bits, int) else method


def _rope(config: Mapping[str, Any], text: str, file: str) -> Settings | None:
    """A rope scaling that stretches the context, as a setting: its type, with its factor in `unknown`."""
    scaling = _either(config, "rope_scaling") or _either(config, "rope_parameters")
    if not isinstance(scaling, Mapping):
        return None
    kind = scaling.get("rope_type") or scaling.get("type")
    if not isinstance(kind, str) or kind in {"default", "mrope"}:
        return None
    where = place(text, "rope_scaling" if '"rope_scaling"' in text else "rope_parameters", file)
    entries = [Entry("rope_scaling", kind[:40], where)]
    if isinstance(scaling.get("factor"), (int, float)):
        entries.append(Entry("rope_scaling.factor", scaling["factor"], where))
    return settings_of(entries, "", file)


def _text(value: Any) -> str | None:
    return value[:1000] if isinstance(value, str) and value else None
