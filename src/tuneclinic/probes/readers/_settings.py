"""From a file's own keys to `Settings`: the part that all readers of configurations share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._derive import derive
from tuneclinic.probes.readers._normalise import typed
from tuneclinic.probes.readers._tree import Node, flat
from tuneclinic.probes.reading import Reading
from tuneclinic.sections import Setting, Settings
from tuneclinic.values import dataclass
from tuneclinic.vocabulary import NAMES, name_of
from tuneclinic.words import Text, Words

UNKNOWN = 400
"""How many keys without a name are kept: a TrainingArguments dump has about 150, a Megatron one 300."""
DEFAULT = 5
"""From this rank on an entry is a default or a constant of a script, not what was passed."""
LONGEST = 2000
"""Characters of a text value that are kept."""
SECRET = pattern(
    r"(?i)(api_?key|hf_token|hub_token|access_token|auth_token|_secret\b|secret_|password|passwd|credential|webhook)"
)
"""Keys whose values are nobody's business and are not read."""
WRAPPERS = frozenset(
    {
        "args",
        "bnb_config",
        "config",
        "data",
        "deepspeed",
        "deepspeed_config",
        "deepspeed_plugin",
        "finetuning",
        "hparams",
        "hyperparameters",
        "lora",
        "lora_config",
        "model",
        "model_args",
        "optim",
        "optimizer",
        "peft",
        "peft_config",
        "quantization",
        "quantization_config",
        "scheduler",
        "sft",
        "top",
        "train",
        "trainer",
        "training",
        "training_args",
        "training_arguments",
        "trl",
    }
)
"""Sections that people put around the same keys."""
OTHERWISE = {
    ("axolotl", "batch_size"): "global_batch",
    ("deepspeed", "optimizer.params.lr"): "learning_rate",
    ("deepspeed", "scheduler.params.warmup_max_lr"): "learning_rate",
    ("deepspeed", "zero_optimization"): "zero_stage",
    ("deepspeed", "optimizer.params.torch_adam"): "",
    ("llama-factory", "infer_dtype"): "",
}
"""Keys that one framework reads in a sense of its own; axolotl's `batch_size` is the total over devices and
accumulation, LLaMA-Factory's `infer_dtype` does not touch training."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key as the file has it. `rank` orders entries for the same name: the lower one is believed, from `DEFAULT` on defaults."""

    key: str
    value: Any
    where: str
    written: str = ""
    rank: int = 0


def named(key: str, framework: str) -> str | None:
    """The vocabulary's name for a key, also behind dashes and below a usual section."""
    if (framework, key) in OTHERWISE:
        return OTHERWISE[framework, key] or None
    plain = key.replace("-", "_").removesuffix(".value")  # W&B writes `learning_rate: {value: 1e-4}`
    while True:
        name = name_of(plain, framework)
        head, dot, rest = plain.partition(".")
        if name is None and head == "lora":
            name = name_of(f"lora_{rest}", framework)
        if name or not dot or head not in WRAPPERS:
            return name
        plain = rest


def settings_of(entries: Iterable[Entry], framework: str, source: str) -> Settings:
    """All entries under the vocabulary's names, typed, with what they imply; keys without a name in `unknown`."""
    best: dict[str, tuple[tuple[int, bool], Setting]] = {}
    others: dict[str, list[Setting]] = {}
    unknown: dict[str, Setting] = {}
    for entry in entries:
        if SECRET.search(entry.key) or entry.value is None:
            continue
        name = named(entry.key, framework)
        value = typed(name or "", entry.key, entry.value)
        value = value[:LONGEST] if isinstance(value, str) else value
        written = entry.written or (f"{entry.key}: {entry.value}" if _differs(value, entry.value) else "")
        setting = Setting(value, entry.where, source, entry.key, written[:200], entry.rank >= DEFAULT)
        if framework == "deepspeed" and value == "auto":
            name = None  # taken from the Trainer's arguments: nothing that could disagree with them
        if name is None or value is None:
            if name is None and len(unknown) < UNKNOWN and entry.value != "":
                unknown.setdefault(entry.key, setting)
            continue
        rank = (entry.rank, NAMES[name].key(framework) != entry.key)
        have = best.get(name)
        if have is None or rank < have[0]:
            best[name] = (rank, setting)
        if have is not None:
            others.setdefault(name, []).append(have[1] if rank < have[0] else setting)
    values = derive({name: setting for name, (_, setting) in best.items()}, unknown, framework)
    conflicts = {
        name: kept
        for name, settings in others.items()
        if (kept := tuple(other for other in settings if not other.default and _differs(best[name][1].value, other.value)))
    }
    return Settings(values, framework, unknown, conflicts)


def _differs(one: Any, other: Any) -> bool:
    return bool(one != other)


def entries_of(root: Node, file: str) -> list[Entry]:
    """Every leaf of a tree as an entry whose place is the file and line."""
    found = []
    for key, node in flat(root):
        text = node.text if node.text and node.text != str(node.value) else ""
        written = f"{key}: {text}" if text else ""
        found.append(Entry(key, node.value, f"{file}:{node.line}" if node.line else file, written[:200]))
    return found


NOTHING = Text(
    "No training setting that is known here was found in this file.",
    "这个文件里没有找到认识的训练参数。",
)
CUT_SHORT = Text("Reading stopped early ({why}); what stands before it was used.", "读到中途停下了（{why}），只用了前面的部分。")
POINTER = Text(
    "This is a Git LFS pointer, not the file itself: run git lfs pull.",
    "这是 Git LFS 指针，不是文件本身：先运行 git lfs pull。",
)
LINK = Text(
    "This file only holds the path of another file (a symbolic link that was copied as text).",
    "文件内容只是另一个文件的路径（符号链接被当成文本拷贝了）。",
)


def reading_of(settings: Settings, why: str = "", skipped: dict[str, int] | None = None) -> Reading:
    """The reading of a file of settings; says so where nothing was understood or reading stopped early."""
    note: Words = CUT_SHORT.format(why=why) if why else ""
    counts = {**({"unknown keys": len(settings.unknown)} if settings.unknown else {}), **(skipped or {})}
    if not settings.values:
        return Reading(skipped=counts, note=note or NOTHING)
    return Reading(Evidence(settings=settings), {"settings": len(settings.values)}, counts, note)


def stand_in(text: str) -> Words:
    """What to say of a text that stands in for a file that is elsewhere: an LFS pointer or a copied link; "" else."""
    if text.startswith("version https://git-lfs.github.com/spec"):
        return POINTER
    line = text.strip()
    if len(line) < 400 and "\n" not in line and re.fullmatch(r"(\.{0,2}/)?[\w.\-/]+\.(json|ya?ml|jinja|txt|py|model)", line):
        return LINK
    return ""


def with_place(reading: Reading, note: Words) -> Reading:
    """`reading` with `note` where it has none of its own."""
    return reading if reading.note else replace(reading, note=note)
