"""Facts that well-known lines state: versions, hardware, counts of parameters, the Trainer's opening block."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tuneclinic.probes.lines import VALUE
from tuneclinic.probes.lines._lazy import Lazy
from tuneclinic.values import dataclass

PACKAGES = (
    "torch", "pytorch", "transformers", "peft", "trl", "accelerate", "deepspeed", "datasets", "bitsandbytes", "flash-attn", "flash_attn", "flash attention", "vllm", "unsloth",
    "unsloth_zoo", "tokenizers", "numpy", "triton", "xformers", "axolotl", "llamafactory", "ms-swift", "swift", "torchtitan", "torchtune", "lightning", "nccl", "safetensors",
    "huggingface_hub", "liger-kernel", "liger_kernel", "optimum", "auto-gptq", "auto_gptq", "apex", "megatron-core", "mmengine", "xtuner", "verl", "ray", "torchao", "torchvision",
)  # fmt: skip
CANONICAL = {"pytorch": "torch", "swift": "ms-swift", "flash attention": "flash-attn"}
VERSION = Lazy(
    rf"(?<![\w/.-])`?(?P<name>{'|'.join(sorted(map(re.escape, PACKAGES), key=len, reverse=True))})`?(?:\s?==\s?|[\s_]version(?: \(GPU\?\))?['\"]?\s?[:=]?\s{{0,4}}['\"]?|: {{1,4}}|\s(?=\d+\.\d+\.\d+: (?:Fast|fast)))v?(?P<value>\d+\.\d+(?:\.\d+)?[\w.+-]{{0,40}})",
    re.IGNORECASE,
)
CONFIG_VERSION = Lazy(r"[\"']transformers_version[\"']\s?: ?[\"'](\d+\.\d+(?:\.\d+)?[\w.+-]{0,20})[\"']")
PYTHON = Lazy(r"\bPython(?: version)?\s?[:=]?\s?(3\.\d{1,2}(?:\.\d{1,2})?)\b")
CUDA = Lazy(
    r"\bCUDA(?: version| toolkit| Version| Toolkit)\s?[:=]?\s{0,4}(\d{1,2}\.\d{1,2})|\+cuda(\d{1,2}\.\d)\b|\btorch(?: version)?:? \d[\d.]*\+cu(\d{3})\b",
    re.IGNORECASE,
)
DRIVER = Lazy(r"\bDriver Version: (\d{3}\.\d{1,3}(?:\.\d{1,3})?)")
GPU = Lazy(
    r"\b((?:NVIDIA (?:GeForce |RTX |Quadro |Tesla |TITAN )?|Tesla |GeForce |AMD Instinct |Quadro )(?:[A-Z]{1,4}\d{1,4}\w{0,3}|RTX|GTX|\d{3,4}|MI\d{3}X?)(?:-[A-Z\d]{2,8}){0,3}(?: (?:RTX|GTX|Ti|SUPER|Super|Ada|Generation|PCIe|NVL|HBM\d\w?|\d{2,3} ?GB|D|Laptop|GPU|\d{3,4}\w{0,2})\b){0,5})"
)
GPU_MEMORY = Lazy(r"(?:\bwith |Max memory: ?)(?P<value>\d{1,4}(?:\.\d{1,4})?) ?(?:GiB|GB)\b")
WORLD = Lazy(
    r"\b(?:world[_ ]size|nproc_per_node|num_processes|Num GPUs(?: used)?)['\"]?\s?[:=]\s?['\"]?(\d{1,6})\b(?!/)|\bnproc_per_node[ =](\d{1,6})\b",
    re.IGNORECASE,
)
DEVICE = Lazy(r"Using (cuda|cpu|npu|xpu|mps)_amp\b|\bdevice: (cuda|cpu|npu|mps|xpu)\b|\bUsing device:? (cuda|cpu|npu|mps|xpu)\b")
TRAINABLE = Lazy(rf"trainable params: (?P<trainable>{VALUE}) \|\| all params: (?P<all>{VALUE})")
TRAINABLE_ONLY = Lazy(
    rf"(?:[Nn]umber of trainable parameters|Trainable parameters)\s?[=:]\s?(?P<trainable>{VALUE})(?: ?(?P<unit>[MB])\b)?(?:(?:/| of )(?P<all>{VALUE}))?"
)
PARAMETERS = Lazy(
    rf"(?:^\s{{0,4}}(?P<summed>{VALUE})(?: (?P<thousands>[KMB]))? {{1,12}}Total params$|\bsize: (?P<size>{VALUE}) total parameters|(?:[Nn]umber of parameters|[Tt]otal (?:number of )?param(?:eter)?s?(?: count)?): (?:dense )?(?P<all>{VALUE})(?: ?(?P<unit>[MB])\b)?)"
)
SETTINGS: tuple[tuple[str, Lazy], ...] = (
    ("num_examples", Lazy(r"\bNum examples ?= ?([\d,]{1,15})")),
    ("epochs", Lazy(r"\bNum Epochs ?= ?([\d,.]{1,12})")),
    ("batch_per_device", Lazy(r"\b(?:Instantaneous batch size per device|Batch size per device) ?= ?([\d,]{1,12})")),
    ("global_batch", Lazy(r"\bTotal (?:train )?batch size[^=\n]{0,80}=\s{0,4}([\d,]{1,12})")),
    ("accumulation", Lazy(r"\bGradient [Aa]ccumulation steps ?= ?([\d,]{1,12})")),
    ("total_steps", Lazy(r"\b(?:Total optimization steps|Total steps) ?= ?([\d,]{1,15})|, total steps ([\d,]{1,15})\b|\bCalculated number of iterations[^:\n]{0,60}: ([\d,]{1,15})")),
    ("accumulation", Lazy(r"=> gradient accumulation steps: ([\d,]{1,9})|, gradient accumulation steps ([\d,]{1,9}),")),
    ("batch_per_device", Lazy(r"\blocal batch size ([\d,]{1,9}), global batch size")),
    ("global_batch", Lazy(r"\bglobal batch size ([\d,]{1,9}), gradient accumulation")),
    ("max_length", Lazy(r", sequence length ([\d,]{1,9}), total steps")),
)  # fmt: skip
FRAMEWORKS: tuple[tuple[str, Lazy], ...] = (
    ("llama-factory", Lazy(r"\bllamafactory\b|\bllmtuner\b|\bLLaMA-?Factory\b")),
    ("axolotl", Lazy(r"\[axolotl[.\]]|\baxolotl\.(?:cli|utils|core|train)")),
    ("ms-swift", Lazy(r"\[INFO:swift\]|\bswift[/.](?:llm|cli|trainers)|\[(?:WARNING|ERROR):swift\]")),
    ("torchtune", Lazy(r"\btorchtune\b")),
    ("torchtitan", Lazy(r"\[titan\]|\btorchtitan\b")),
    ("unsloth", Lazy(r"🦥 Unsloth|\bUnsloth \d{4}\.")),
    ("megatron", Lazy(r"\bmegatron\.(?:training|core)|> building .{1,40} tokenizer")),
    ("lightning", Lazy(r"\b(?:pytorch_lightning|lightning\.pytorch)\b|GPU available: ")),
    ("trl", Lazy(r"\btrl[/.](?:trainer|SFT)")),
)
DIFFUSION = Lazy(
    r"\bdiffusers?\b|diffsynth|\bunet\b|controlnet|stable.diffusion|\bflux\b.{0,40}\blora\b|flow.matching", re.IGNORECASE
)
WORDS = (
    "version", "==", "nvidia", "tesla", "geforce", "instinct", "quadro", "world", "nproc_per_node", "num", "_amp", "device", "param", "batch", "accumulation", " steps", "iterations",
    "python", "cuda", "swift", "torch", "titan", "unsloth", "factory", "llmtuner", "axolotl", "megatron", "lightning", "trl", "gpu", "diffus", "diffsynth", "unet", "controlnet", "flux", "flow",
    "training", "logger", "checkpoint", "resum", "tokenizer", "successfully",
)  # fmt: skip
"""Lower case. A line without any of these states no fact."""
STARTED = Lazy(
    r"\*{5} Running training \*{5}|\bTraining starts at step 1\b|\bInitialized logger\b|\bStart(?:ing)? (?:\w{1,20} )?training\b"
)
RESUMED = Lazy(
    r"\b[Cc]ontinuing training from|\b[Rr]esum(?:ing|ed)\b.{0,40}\b(?:from|training|checkpoint)|\bloading checkpoint from .{1,200} at iteration [1-9]"
)
FINISHED = Lazy(
    r"\bTraining (?:is )?(?:completed?|done|finished|ended)\b|Training completed\. Do not forget|\btraining complete\b|Successfully completed all"
    r"|`Trainer\.fit` stopped: `max_",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that one line states. `section` is "settings", "environment", "model" or "run"."""

    section: str
    name: str
    value: Any
    line: int
    order: int
    text: str


def facts(text: str, line: int, order: int) -> Iterator[Fact]:
    """What a line states; nothing for most."""
    if len(text) > 2000:
        return
    low = text.lower()
    for words, section, read in READERS:
        if any(word in low for word in words):
            for name, value in read(text):
                yield Fact(section, name, value, line, order, text.strip()[:200])


def _settings(text: str) -> Iterator[tuple[str, Any]]:
    for name, pattern in SETTINGS:
        match = pattern.search(text)
        if match is not None:
            value = _float(next(group for group in match.groups() if group is not None))
            if value is not None:
                yield name, int(value) if value == int(value) else value


def _versions(text: str) -> Iterator[tuple[str, Any]]:
    for match in VERSION.finditer(text):
        name = match["name"].lower()
        yield "package", (CANONICAL.get(name, name.replace("_", "-").replace(" ", "-")), match["value"].rstrip(".-+"))
    yield from _first(text, "transformers", CONFIG_VERSION, str)
    yield from _first(text, "python", PYTHON, str)
    yield from _first(text, "cuda", CUDA, _dotted)
    yield from _first(text, "driver", DRIVER, str)


def _first(text: str, name: str, pattern: Lazy, convert: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
    found = pattern.search(text)
    if found is not None:
        yield name, convert(next(group for group in found.groups() if group is not None))


def _processes(text: str) -> Iterator[tuple[str, Any]]:
    yield from _first(text, "processes", WORLD, int)


def _device(text: str) -> Iterator[tuple[str, Any]]:
    yield from _first(text, "device", DEVICE, str)


def _gpu(text: str) -> Iterator[tuple[str, Any]]:
    gpu = GPU.search(text)
    if gpu is not None:
        yield "gpu", gpu[1].strip()
        memory = GPU_MEMORY.search(text)
        if memory is not None:
            yield "gpu_memory", float(memory["value"])


def _model(text: str) -> Iterator[tuple[str, Any]]:
    for pattern in (TRAINABLE, TRAINABLE_ONLY, PARAMETERS):
        match = pattern.search(text)
        if match is None:
            continue
        groups = match.groupdict()
        unit = groups.get("unit") or groups.get("thousands") or ""
        factor = {"K": 1e3, "M": 1e6, "B": 1e9}.get(unit, 1.0)
        for name, key in (("trainable", "trainable"), ("parameters", "all"), ("parameters", "size"), ("parameters", "summed")):
            value = _float(groups.get(key))
            if value is not None and (value or key == "trainable"):
                yield name, value * factor
        return


def _framework(text: str) -> Iterator[tuple[str, Any]]:
    for framework, pattern in FRAMEWORKS:
        if pattern.search(text):
            yield "framework", framework
            return


def _diffusion(text: str) -> Iterator[tuple[str, Any]]:
    if DIFFUSION.search(text):
        yield "diffusion", True


def _events(text: str) -> Iterator[tuple[str, Any]]:
    for name, pattern in (("started", STARTED), ("resumed", RESUMED), ("finished", FINISHED)):
        if pattern.search(text):
            yield name, True


READERS: tuple[tuple[tuple[str, ...], str, Callable[[str], Iterator[tuple[str, Any]]]], ...] = (
    (("num examples", "num epochs", "batch size", "accumulation", " steps", "iterations", "sequence length"), "settings", _settings),
    (("version", "==", "cuda", "python", "torch:", "transformers:", "unsloth"), "environment", _versions),
    (("world", "nproc", "num_processes", "num gpus"), "environment", _processes),
    (("_amp", "device"), "environment", _device),
    (("nvidia", "tesla", "geforce", "instinct", "quadro"), "environment", _gpu),
    (("param",), "model", _model),
    (("swift", "torch", "titan", "unsloth", "factory", "llmtuner", "axolotl", "megatron", "tokenizer", "lightning", "trl", "gpu available"), "run", _framework),
    (("diffus", "diffsynth", "unet", "controlnet", "flux", "flow"), "run", _diffusion),
    (("train", "logger", "resum", "checkpoint", "successfully"), "run", _events),
)  # fmt: skip
"""Words of which a line must hold one, lower case, before the patterns behind them are tried."""


def _dotted(text: str) -> str:
    return text if "." in text else f"{text[:-1]}.{text[-1]}"


def _float(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None
