"""Settings from Python training scripts, xtuner configurations and notebooks, read off the syntax tree."""

from __future__ import annotations

import ast
import re

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._python_calls import ARGUMENTS, GENERATING, OPTIMIZERS, Finder, visit
from tuneclinic.probes.readers._python_source import (
    SOURCE_BYTES,
    UNKNOWN,
    Source,
    fields_of,
    names_of,
    option_of,
    pairs,
    parse,
    parse_notebook,
    symbol,
)
from tuneclinic.probes.readers._settings import Entry, named, reading_of, settings_of, stand_in
from tuneclinic.probes.readers._xtuner import xtuner_entries
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.words import Text

TRAINING = pattern(
    rb"\b(?:import|from)\s+(?:torch|transformers|trl|peft|lightning|pytorch_lightning|accelerate|unsloth|deepspeed|xtuner|mmengine|"
    rb"swift|datasets|bitsandbytes|torchtune|axolotl)\b|TrainingArguments|learning_rate"
)
"""What the head of a training script or notebook holds."""
KEYS = {
    "model_name": "model_name_or_path",
    "model_path": "model_name_or_path",
    "base_model_name": "model_name_or_path",
    "train_batch_size": "per_device_train_batch_size",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "bs": "per_device_train_batch_size",
    "max_len": "max_length",
    "wd": "weight_decay",
    "accumulation_steps": "gradient_accumulation_steps",
    "accum_steps": "gradient_accumulation_steps",
    "grad_accumulation_steps": "gradient_accumulation_steps",
    "gradient_accumulation": "gradient_accumulation_steps",
    "grad_accum": "gradient_accumulation_steps",
    "num_workers": "dataloader_num_workers",
    "epoch": "",
    "epochs_num": "epochs",
    "num_epoch": "epochs",
}
"""What people call settings in scripts of their own, beyond the frameworks' keys."""
CONSTANTS = frozenset(
    {
        "model",
        "learning_rate",
        "batch_per_device",
        "accumulation",
        "epochs",
        "max_steps",
        "max_length",
        "weight_decay",
        "warmup_steps",
        "warmup_ratio",
        "max_grad_norm",
        "scheduler",
        "lora_rank",
        "lora_alpha",
        "lora_dropout",
        "load_in_4bit",
        "seed",
        "output_dir",
        "packing",
        "eval_batch_per_device",
    }
)
"""Settings that a variable of that name sets; `rank`, `beta` or `stage` as a variable mean too much else."""
NOT_CONSTANTS = frozenset({"rank", "r", "model", "block_size", "bits", "lr_scheduler", "scheduler", "optimizer"})
_ATTRIBUTE_OWNERS = pattern(
    r"(?i)(?:training_?)?arg(?:ument)?s|cfg|config|(?:sft|dpo|grpo|trainer)_(?:config|args)|tokenizer|processor"
)
UNREADABLE = Text("No statement of this file parses as Python 3 ({why}).", "这个文件没有一条语句能按 Python 3 解析（{why}）。")


class PythonSettings(Reader):
    """Python scripts and notebooks that train a model."""

    kind = "training script (settings)"
    precedence = 40

    def claims(self, file: SourceFile) -> float:
        """Python files and notebooks whose head imports a training library."""
        if not file.base.endswith((".py", ".ipynb")) or file.binary:
            return 0.0
        if file.base.endswith(".ipynb"):
            return 0.6 if b'"cells"' in file.head else 0.0
        return 0.6 if TRAINING.search(file.head) else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """The settings that the script's text gives, with their lines; expressions that need running are left out."""
        notebook = file.base.endswith(".ipynb")
        try:
            text = file.text(SOURCE_BYTES * (8 if notebook else 1))
        except (OSError, EOFError) as error:
            return [Reading(note=type(error).__name__)]
        pointer = stand_in(text)
        if pointer:
            return [Reading(note=pointer)]
        source = (parse_notebook if notebook else parse)(text, file.name)
        if source is None:
            return [Reading(note=UNREADABLE.format(why="syntax"))]
        find = collect(source)
        framework = _framework(find, text)
        _whole_model(find, text)
        entries, left = (find.entries, 0) if trains(find) else _of_inference(find.entries)
        skipped = {"settings of a script that does not train": left} if left else {}
        return [reading_of(settings_of(entries, framework, file.name), source.problem, skipped)]


def trains(find: Finder) -> bool:
    """Whether a script trains, or is a list of settings: a precision that only serves must not pass for the run's own."""
    calls = find.seen & {"backward", "fit", "training_step", "train_step", "zero_grad"}
    made = any(ARGUMENTS.fullmatch(name) or OPTIMIZERS.fullmatch(name) or name.endswith("Trainer") for name in find.seen)
    return bool(calls or made or not find.seen & {"generate", "from_pretrained", "pipeline", "LLM"}) or any(
        named(entry.key, "") in {"learning_rate", "epochs", "method"} for entry in find.entries
    )


def _of_inference(entries: list[Entry]) -> tuple[list[Entry], int]:
    kept = [entry for entry in entries if entry.key in GENERATING or entry.key == "model_name_or_path"]
    return kept, len(entries) - len(kept)


def collect(source: Source) -> Finder:
    """All entries of a script: from calls, attribute assignments, dictionaries, constants, argument classes, argparse."""
    find = Finder(source, names_of(source))
    targets: dict[int, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            _assignment(node, find, targets)
        elif isinstance(node, ast.Call):
            if symbol(node.func).endswith("add_argument"):
                _option(node, find)
            else:
                visit(node, targets.get(id(node), ""), find)
        elif isinstance(node, ast.ClassDef):
            _argument_class(node, find)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            find.seen.update(_modules(node))
    find.entries.extend(xtuner_entries(source, find.names))
    return find


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [f"import {alias.name.partition('.')[0]}" for alias in node.names]
    return [f"import {(node.module or '').partition('.')[0]}"]


def _assignment(node: ast.Assign, find: Finder, targets: dict[int, str]) -> None:
    target = node.targets[0]
    name = symbol(target)
    if isinstance(node.value, ast.Call):
        targets[id(node.value)] = name
    if isinstance(target, ast.Attribute) and _ATTRIBUTE_OWNERS.fullmatch(name.split(".")[-2] if "." in name else ""):
        find.add(target.attr, node.value, node, 2)
    elif isinstance(target, ast.Name):
        entries = list(pairs(node.value))
        hits = [(key, value) for key, value in entries if named(KEYS.get(key, key), "") in CONSTANTS]
        if len(hits) > 1 and not (isinstance(node.value, ast.Call) and any(key == "type" for key, _ in entries)):
            for key, value in entries:
                find.add(KEYS.get(key, key), value, node, 3)
        elif not entries:
            _constant(target.id, node.value, node, find)


def _constant(name: str, value: ast.expr, node: ast.AST, find: Finder) -> None:
    plain = name.lower()
    key = KEYS.get(plain, plain)
    if key and plain not in NOT_CONSTANTS and named(key, "") in CONSTANTS:
        text = find.source.text(value)
        find.add(key, value, node, 6, word=f"{name} = {text}" if text else "")


def _option(call: ast.Call, find: Finder) -> None:
    option = option_of(call)
    if option is None:
        return
    key = KEYS.get(option[0], option[0])
    if key and named(key, "") and option[0] not in NOT_CONSTANTS - {"model"}:
        text = find.source.text(option[1])
        find.add(key, option[1], call, 5, word=f"--{option[0]} default={text}" if text else "")


def _argument_class(node: ast.ClassDef, find: Finder) -> None:
    for name, value, statement in fields_of(node):
        key = KEYS.get(name, name)
        if key and named(key, ""):
            find.add(key, value, statement, 5, word=f"{node.name}.{name} = {find.source.text(value)}")


_IMPORTS = (
    ("unsloth", "import unsloth"),
    ("xtuner", "import xtuner"),
    ("xtuner", "import mmengine"),
    ("lightning", "import lightning"),
    ("lightning", "import pytorch_lightning"),
    ("ms-swift", "import swift"),
    ("llama-factory", "import llamafactory"),
)


def _framework(find: Finder, text: str) -> str:
    for framework, module in _IMPORTS:
        if module in find.seen:
            return framework
    if "import trl" in find.seen or any(
        re.fullmatch(r"(?:SFT|DPO|KTO|ORPO|GRPO|PPO|Reward)(?:Trainer|Config)", name) for name in find.seen
    ):
        return "trl"
    if any(ARGUMENTS.fullmatch(name) for name in find.seen) or re.search(r"\bTrainingArguments\b", text):
        return "transformers"
    return "pytorch" if "import torch" in find.seen or "import accelerate" in find.seen else ""


def _whole_model(find: Finder, text: str) -> None:
    """A script that loads and trains a model and never speaks of adapters or freezing trains all of it."""
    trains = any(name.endswith("Trainer") for name in find.seen) or any(entry.key == "optim" for entry in find.entries)
    if not trains or "from_pretrained" not in find.seen:
        return
    if re.search(r"(?i)peft|lora|adapter|freeze|requires_grad|finetuning_type|adapters|prefix_tuning", text):
        return
    model = next((entry for entry in find.entries if entry.key == "model_name_or_path"), None)
    if model is not None and model.value is not UNKNOWN:
        find.entries.append(type(model)("method", "full", model.where, model.written, 9))
