"""Which calls of a Python script set hyperparameters, and what their keywords are called in the vocabulary's keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._python_source import UNKNOWN, Names, Source, pairs, symbol
from tuneclinic.probes.readers._settings import Entry
from tuneclinic.values import dataclass

ARGUMENTS = pattern(
    r"(?:\w*TrainingArguments|(?:SFT|DPO|KTO|ORPO|CPO|GRPO|RLOO|PPO|Reward|GKD|OnlineDPO|BCO|PRM|NashMD|XPO|SDPO|Distillation)"
    r"(?:v2)?Config)"
)
"""Classes whose keywords are transformers' and TRL's own keys."""
STAGES = pattern(r"(SFT|DPO|KTO|ORPO|CPO|GRPO|RLOO|PPO|Reward|GKD|BCO|PRM)(?:v2)?(?:Config|Trainer)")
"""TRL classes that name what is trained."""
ADAPTERS = {
    "LoraConfig": "lora",
    "LoHaConfig": "loha",
    "LoKrConfig": "lokr",
    "AdaLoraConfig": "adalora",
    "VeraConfig": "vera",
    "OFTConfig": "oft",
    "BOFTConfig": "boft",
    "IA3Config": "ia3",
    "PrefixTuningConfig": "prefix",
    "PromptTuningConfig": "prompt",
    "PromptEncoderConfig": "p-tuning",
    "LoRAConfig": "lora",
}
"""PEFT's configurations and the method each makes."""
OPTIMIZERS = pattern(
    r"(?:AdamW?(?:8bit|32bit)?|PagedAdamW?(?:8bit|32bit)?|SGD|Adafactor|Lion(?:8bit)?|RMSprop|Adagrad|NAdam|RAdam|LAMB|Lamb|FusedAdam|"
    r"DeepSpeedCPUAdam|CPUAdam|AdamWScheduleFree|Muon|Sophia\w*|Prodigy|AnyPrecisionAdamW)"
)
"""Optimizer classes of torch, bitsandbytes, DeepSpeed and kin."""
LIGHTNING = frozenset(
    {"max_epochs", "accelerator", "devices", "precision", "gradient_clip_val", "accumulate_grad_batches", "log_every_n_steps"}
)
"""Keywords that tell Lightning's Trainer from transformers'."""
OLD_TRAINER = frozenset(
    {
        "max_seq_length",
        "packing",
        "dataset_text_field",
        "beta",
        "max_prompt_length",
        "max_length",
        "neftune_noise_alpha",
        "loss_type",
        "label_smoothing",
        "dataset_num_proc",
    }
)
"""Keywords that TRL's trainers took themselves before their configurations did."""
ENTRIES = 5000
"""How many entries of one script are kept."""
_SCHEDULE = pattern(r"get_(?:\w+_)?schedule(?:_with_\w+)?|get_scheduler|\w+LR|\w+WarmRestarts")


@dataclass(slots=True)
class Finder:
    """Collects entries from the calls of one script."""

    source: Source
    names: Names
    entries: list[Entry] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def add(self, key: str, node: ast.expr | None, at: ast.AST, rank: int, *, value: Any = UNKNOWN, word: str = "") -> None:
        """Adds an entry for `key` where the value of `node` is known. A name or expression is quoted with its value."""
        found = self.names.value(node) if value is UNKNOWN else value
        if found is UNKNOWN or found is None or len(self.entries) > ENTRIES:
            return
        line = getattr(node if node is not None else at, "lineno", getattr(at, "lineno", 0))
        text = self.source.text(node) if node is not None else ""
        written = word or (f"{key.rsplit('.', 1)[-1]}={text}" if text else "") or self.source.text(at)
        if isinstance(node, (ast.Name, ast.Attribute, ast.BinOp, ast.Subscript)):
            written = f"{written}  # {str(found)[:60]}" if str(found) not in written else written
        self.entries.append(Entry(key, found, self.source.where(line), written, rank))

    def keywords(self, call: ast.Call, renamed: dict[str, str] | None, rank: int, only: frozenset[str] | None = None) -> None:
        """All keywords of a call under their own or `renamed` keys, those of a `**dictionary` too."""
        for keyword in call.keywords:
            if keyword.arg is None:
                for key, value in self._spread(keyword.value):
                    self._keyword(key, value, call, rank, renamed, only=only)
            else:
                self._keyword(keyword.arg, keyword.value, call, rank, renamed, only=only)

    def _keyword(
        self,
        name: str,
        value: ast.expr,
        call: ast.Call,
        rank: int,
        renamed: dict[str, str] | None,
        *,
        only: frozenset[str] | None,
    ) -> None:
        if (only is None or name in only) and (renamed is None or name in renamed):
            text = self.source.text(value)
            self.add(renamed[name] if renamed else name, value, call, rank, word=f"{name}={text}" if text else "")

    def _spread(self, node: ast.expr) -> list[tuple[str, ast.expr]]:
        if isinstance(node, ast.Name):
            bound = self.names.assigned.get(node.id, [])
            return list(pairs(bound[-1][1])) if bound else []
        return list(pairs(node))


_LORA = {
    "r": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "target_modules",
    "modules_to_save": "modules_to_save",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
    "use_gradient_checkpointing": "gradient_checkpointing",
    "finetune_vision_layers": "finetune_vision_layers",
    "finetune_language_layers": "finetune_language_layers",
}
_LOADING = {
    "torch_dtype": "dtype",
    "dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "use_flash_attention_2": "use_flash_attention_2",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "revision": "model_revision",
    "max_seq_length": "max_seq_length",
    "model_name": "model_name_or_path",
    "pretrained_model_name_or_path": "model_name_or_path",
    "device_map": "device_map",
}
_QUANTISING = {
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "bnb_4bit_compute_dtype": "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_type": "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant": "bnb_4bit_use_double_quant",
}
_OPTIMISING = {"lr": "learning_rate", "weight_decay": "weight_decay", "eps": "adam_epsilon", "betas": "betas"}
_LOADER = {"batch_size": "batch_size", "shuffle": "shuffle", "num_workers": "dataloader_num_workers", "drop_last": "drop_last"}
GENERATING = frozenset({"max_new_tokens", "temperature", "top_p", "top_k", "do_sample", "repetition_penalty"})
"""Keywords of generation."""


def visit(call: ast.Call, target: str, find: Finder) -> None:
    """Takes in one call; `target` is the name its result is bound to."""
    path = symbol(call.func)
    last = path.rsplit(".", 1)[-1]
    if not last:
        return
    find.seen.add(last)
    staged = STAGES.fullmatch(last)
    if staged:
        find.add("stage", None, call, 0, value=staged[1].lower(), word=f"{last}(…)")
    if ARGUMENTS.fullmatch(last):
        find.keywords(call, None, 0)
    elif last in ADAPTERS:
        find.add("method", None, call, 0, value=ADAPTERS[last], word=f"{last}(…)")
        find.keywords(call, _LORA, 0)
    elif last == "BitsAndBytesConfig":
        find.keywords(call, _QUANTISING, 1)
    elif last in _SIMPLE:
        _SIMPLE[last](call, target, find)
    elif OPTIMIZERS.fullmatch(last) and (call.args or call.keywords):
        find.add("optim", None, call, 1, value=last, word=f"{path}(…)")
        find.keywords(call, _OPTIMISING, 1)
        if len(call.args) > 1:
            find.add("learning_rate", call.args[1], call, 1)
    elif last.endswith("Trainer"):
        lightning = any(keyword.arg in LIGHTNING for keyword in call.keywords)
        find.keywords(call, None, 1, None if lightning else OLD_TRAINER)
    elif _SCHEDULE.fullmatch(last):
        _schedule(call, last, find)


def _loading(call: ast.Call, _: str, find: Finder) -> None:
    owner = symbol(call.func).rsplit(".", 2)
    name = owner[-2] if len(owner) > 1 else ""
    if name in {"FastLanguageModel", "FastVisionModel", "FastModel"}:
        find.seen.add("unsloth")
    elif re.search(r"Tokenizer|Processor", name):
        find.keywords(call, {"padding_side": "padding_side", "model_max_length": "model_max_length"}, 2)
        return
    elif re.search(r"Config|PeftModel|Adapter|Dataset", name) or not name[:1].isupper():
        return
    if call.args:
        find.add("model_name_or_path", call.args[0], call, 1)
    find.keywords(call, _LOADING, 1)


def _adapting(call: ast.Call, _: str, find: Finder) -> None:
    find.add("method", None, call, 1, value="lora", word=f"{symbol(call.func)}(…)")
    find.keywords(call, _LORA, 0)


def _data_loader(call: ast.Call, target: str, find: Finder) -> None:
    if re.search(r"(?i)val|eval|test|dev", target):
        find.keywords(call, {"batch_size": "per_device_eval_batch_size"}, 2)
        return
    find.keywords(call, _LOADER, 1 if re.search(r"(?i)train", target) else 3)
    if len(call.args) > 1:
        find.add("batch_size", call.args[1], call, 1)


def _schedule(call: ast.Call, last: str, find: Finder) -> None:
    kind: Any = last
    if last == "get_scheduler":
        named = next((keyword.value for keyword in call.keywords if keyword.arg == "name"), call.args[0] if call.args else None)
        kind = find.names.value(named)
    find.add("lr_scheduler_type", None, call, 1, value=kind, word=f"{last}(…)")
    find.keywords(
        call,
        {"num_warmup_steps": "warmup_steps", "num_training_steps": "max_steps", "eta_min": "eta_min", "max_lr": "learning_rate"},
        2,
    )
    if last.endswith("_with_warmup") and len(call.args) > 1:
        find.add("warmup_steps", call.args[1], call, 2)


def _accelerator(call: ast.Call, _: str, find: Finder) -> None:
    find.keywords(
        call,
        {"mixed_precision": "mixed_precision", "gradient_accumulation_steps": "gradient_accumulation_steps"},
        1,
    )


def _clip(call: ast.Call, _: str, find: Finder) -> None:
    if len(call.args) > 1:
        find.add("max_grad_norm", call.args[1], call, 1)
    find.keywords(call, {"max_norm": "max_grad_norm"}, 1)


def _seed(call: ast.Call, _: str, find: Finder) -> None:
    if call.args:
        find.add("seed", call.args[0], call, 3)


def _autocast(call: ast.Call, _: str, find: Finder) -> None:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"] + call.args[1:2]
    kind = find.names.value(given[0]) if given else UNKNOWN
    if kind in {"float16", "bfloat16"}:
        find.add("fp16" if kind == "float16" else "bf16", None, call, 1, value=True, word=f"autocast(dtype=torch.{kind})")


def _cross_entropy(call: ast.Call, _: str, find: Finder) -> None:
    find.keywords(call, {"label_smoothing": "label_smoothing"}, 1)


def _generate(call: ast.Call, _: str, find: Finder) -> None:
    find.keywords(call, None, 4, GENERATING)


def _collator(call: ast.Call, _: str, find: Finder) -> None:
    find.add("collator", None, call, 1, value=symbol(call.func).rsplit(".", 1)[-1], word=f"{symbol(call.func)}(…)")


def _train(call: ast.Call, _: str, find: Finder) -> None:
    find.keywords(call, {"resume_from_checkpoint": "resume_from_checkpoint"}, 1)


def _switch(key: str, value: Any) -> Callable[[ast.Call, str, Finder], None]:
    def found(call: ast.Call, _: str, find: Finder) -> None:
        find.add(key, None, call, 2, value=value, word=f"{symbol(call.func)}()")

    return found


_SIMPLE: dict[str, Callable[[ast.Call, str, Finder], None]] = {
    "from_pretrained": _loading,
    "get_peft_model": _adapting,
    "DataLoader": _data_loader,
    "Accelerator": _accelerator,
    "clip_grad_norm_": _clip,
    "set_seed": _seed,
    "manual_seed": _seed,
    "seed_everything": _seed,
    "autocast": _autocast,
    "GradScaler": _switch("fp16", value=True),
    "gradient_checkpointing_enable": _switch("gradient_checkpointing", value=True),
    "CrossEntropyLoss": _cross_entropy,
    "cross_entropy": _cross_entropy,
    "generate": _generate,
    "GenerationConfig": _generate,
    "train": _train,
    "DataCollatorForCompletionOnlyLM": _collator,
    "DataCollatorForLanguageModeling": _collator,
    "DataCollatorForSeq2Seq": _collator,
    "DataCollatorWithPadding": _collator,
    "DataCollatorWithFlattening": _collator,
}
