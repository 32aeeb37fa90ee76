"""Hyperparameters that a logger kept beside its metrics, under the names of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneclinic.probes.frameworks import framework_of
from tuneclinic.probes.readers._settings import Entry, settings_of
from tuneclinic.probes.reading import SourceFile
from tuneclinic.sections import Model, Settings

MOST_KEYS = 2000
"""Keys read of one configuration; TrainingArguments has about 150, a model's configuration about 100."""
DEPTH = 4
"""Levels of nested configuration that are joined with dots: a DeepSpeed section in a Trainer's arguments has three."""
LARGEST_SIZE = 1 << 31
"""No dimension of a model comes near it; larger numbers are junk."""
GENERATION_DEFAULTS: Mapping[str, Any] = {
    "max_length": 20,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 50,
    "do_sample": False,
    "repetition_penalty": 1.0,
}
"""Defaults of transformers' PretrainedConfig before version 5. The Trainer's callbacks log the model's configuration and the
arguments in one mapping, where these would pass for settings of the run."""
_SHAPE = {
    "vocab_size": "vocabulary",
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "key_value_heads",
    "intermediate_size": "intermediate",
}


def logged_settings(config: Mapping[str, Any], source: str) -> Settings | None:
    """Settings from a logger's copy of the configuration; None where no key is a setting we know."""
    flat: dict[str, Any] = {}
    _flatten(config, "", DEPTH, flat)
    mixed = "model_type" in flat or "architectures" in flat
    entries = []
    for key, value in flat.items():
        if mixed and (key == "eos_token_id" or (key in GENERATION_DEFAULTS and GENERATION_DEFAULTS[key] == value)):
            continue
        entries.append(Entry(key, value, source))
    settings = settings_of(entries, framework_of(flat), source)
    return settings if settings.values else None


def _flatten(config: Mapping[str, Any], prefix: str, depth: int, out: dict[str, Any]) -> None:
    for key, value in config.items():
        if len(out) >= MOST_KEYS or key == "_wandb" or len(str(key)) > 100:
            continue
        if isinstance(value, dict):
            if depth > 1:
                _flatten(value, f"{prefix}{key}.", depth - 1, out)
        elif isinstance(value, list):
            out[f"{prefix}{key}"] = tuple(item for item in value[:100] if isinstance(item, (str, int, float, bool)))
        elif isinstance(value, (str, int, float)):
            out[f"{prefix}{key}"] = value


def logged_model(config: Mapping[str, Any], source: str) -> Model | None:
    """The model's shape where a logger kept the model's own configuration, at the top or below `model` or `model_config`."""
    for nested in ("model", "model_config"):
        below = config.get(nested)
        config = {**below, **config} if isinstance(below, dict) else config
    sizes: dict[str, Any] = {}
    for key, field in _SHAPE.items():
        value = _whole(config.get(key))
        if value is not None:
            sizes[field] = value
    family, architectures = config.get("model_type"), config.get("architectures")
    if isinstance(family, str):
        sizes["family"] = family[:100]
    if isinstance(architectures, (list, tuple)) and architectures and isinstance(architectures[0], str):
        sizes["architecture"] = architectures[0][:100]
    return Model(sources=(source,), **sizes) if "vocabulary" in sizes or "architecture" in sizes else None


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_SIZE else None


def unwrapped_yaml(file: SourceFile) -> tuple[dict[str, Any], str]:
    """The values of a W&B `config.yaml`, which keeps each below `value`, as a nested mapping, and why reading stopped early."""
    from tuneclinic.probes.readers._tree import DOCUMENT_BYTES, flat  # noqa: PLC0415 - with YAML, which is slow to import
    from tuneclinic.probes.readers._yaml_tree import yaml_tree  # noqa: PLC0415 - as above

    root, problem = yaml_tree(file.text(DOCUMENT_BYTES))
    config: dict[str, Any] = {}
    if root is None or not isinstance(root.value, dict):
        return config, problem
    for key, node in flat(root):
        parts = key.split(".")
        if parts[0] in {"_wandb", "wandb_version"} or len(parts) > DEPTH + 1 or isinstance(node.value, dict):
            continue
        parts = [parts[0], *parts[2:]] if len(parts) > 1 and parts[1] == "value" else parts
        below = config
        for part in parts[:-1]:
            step = below.setdefault(part, {})
            if not isinstance(step, dict):
                break
            below = step
        else:
            below[parts[-1]] = node.value
    return config, problem
