"""xtuner and mmengine configurations: Python files whose nested dictionaries are the settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from tuneclinic.probes.readers._python_source import UNKNOWN, Names, Source, pairs, symbol
from tuneclinic.probes.readers._settings import Entry

PLACES: dict[str, str] = {
    "model.llm.pretrained_model_name_or_path": "model_name_or_path",
    "model.llm.torch_dtype": "dtype",
    "model.llm.quantization_config.load_in_4bit": "load_in_4bit",
    "model.llm.quantization_config.load_in_8bit": "load_in_8bit",
    "model.llm.quantization_config.bnb_4bit_compute_dtype": "bnb_4bit_compute_dtype",
    "model.lora.r": "lora_rank",
    "model.lora.lora_alpha": "lora_alpha",
    "model.lora.lora_dropout": "lora_dropout",
    "model.lora.target_modules": "target_modules",
    "model.lora.modules_to_save": "modules_to_save",
    "model.freeze_llm": "freeze_llm",
    "model.freeze_visual_encoder": "freeze_vit",
    "model.use_activation_checkpointing": "gradient_checkpointing",
    "train_dataset.max_length": "max_length",
    "train_dataset.pack_to_max_length": "pack_to_max_length",
    "train_dataloader.batch_size": "batch_size",
    "train_dataloader.num_workers": "dataloader_num_workers",
    "train_dataloader.sampler.shuffle": "shuffle",
    "optim_wrapper.optimizer.lr": "learning_rate",
    "optim_wrapper.optimizer.weight_decay": "weight_decay",
    "optim_wrapper.optimizer.betas": "betas",
    "optim_wrapper.clip_grad.max_norm": "max_grad_norm",
    "optim_wrapper.accumulative_counts": "accumulative_counts",
    "train_cfg.max_epochs": "max_epochs",
    "train_cfg.max_iters": "max_steps",
    "tokenizer.padding_side": "padding_side",
    "default_hooks.logger.interval": "logging_steps",
    "default_hooks.checkpoint.interval": "save_steps",
    "randomness.seed": "seed",
}
"""Where xtuner keeps what the vocabulary names; `load_from` and `resume` stand beside them."""
NODES = 5000
"""How many dictionary entries of one file are walked."""


def xtuner_entries(source: Source, names: Names) -> Iterator[Entry]:
    """Settings of an xtuner configuration; nothing for any other script."""
    if not any(name in names.assigned for name in ("optim_wrapper", "train_dataloader", "param_scheduler")):
        return
    leaves = {path: (node, value) for path, node, value in _leaves(source, names)}
    for path, (node, value) in leaves.items():
        key = PLACES.get(path)
        if key and value is not UNKNOWN and value is not None:
            yield _entry(source, key, value, node, path)
    if any(path.startswith("model.lora.") for path in leaves):
        node = next(node for path, (node, _) in leaves.items() if path.startswith("model.lora."))
        yield _entry(source, "method", "lora", node, "model.lora")
    elif "model.llm.pretrained_model_name_or_path" in leaves:
        yield _entry(source, "method", "full", leaves["model.llm.pretrained_model_name_or_path"][0], "model.llm")
    yield from _optimising(source, leaves)


def _optimising(source: Source, leaves: dict[str, tuple[ast.expr, Any]]) -> Iterator[Entry]:
    wrapper, kind = leaves.get("optim_wrapper.type"), leaves.get("optim_wrapper.dtype")
    if kind is not None and (wrapper is None or "Amp" in symbol(wrapper[0])):
        flag = {"float16": "fp16", "bfloat16": "bf16"}.get(str(kind[1]))
        if flag:
            yield _entry(source, flag, True, kind[0], f"AmpOptimWrapper dtype={kind[1]}")  # noqa: FBT003 - the value of the setting
    named = leaves.get("optim_wrapper.optimizer.type")
    if named is not None:
        word = symbol(named[0]) or str(named[1])
        yield _entry(source, "optim", word, named[0], "optim_wrapper.optimizer.type")
    for path, (node, value) in leaves.items():
        if re.fullmatch(r"param_scheduler(?:\.\d+)?\.type", path):
            word = symbol(node) or (value if isinstance(value, str) else "")
            if word and "LinearLR" not in word:
                yield _entry(source, "lr_scheduler_type", word, node, path)
        elif re.fullmatch(r"param_scheduler(?:\.\d+)?\.eta_min", path) and isinstance(value, (int, float)):
            yield _entry(source, "eta_min", value, node, path)


def _entry(source: Source, key: str, value: Any, node: ast.expr, path: str) -> Entry:
    return Entry(key, value, source.where(node.lineno), f"{path} = {value}", 1)


def _leaves(source: Source, names: Names) -> Iterator[tuple[str, ast.expr, Any]]:
    stack: list[tuple[str, ast.expr, int]] = [
        (statement.targets[0].id, statement.value, 0)
        for statement in source.tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    ]
    count = 0
    while stack and count < NODES:
        count += 1
        path, node, depth = stack.pop()
        below = list(pairs(node)) if depth < 8 else []
        if below:
            stack.extend((f"{path}.{key}", value, depth + 1) for key, value in below)
        elif isinstance(node, (ast.List, ast.Tuple)) and any(isinstance(item, ast.Call) for item in node.elts):
            stack.extend((f"{path}.{index}", item, depth + 1) for index, item in enumerate(node.elts[:16]))
        elif depth:
            bound = names.assigned.get(node.id, []) if isinstance(node, ast.Name) else []
            target = bound[-1][1] if path.endswith(".type") and bound and symbol(bound[-1][1]) else node
            yield path, target, names.value(node)
