"""What is usual: bands of healthy curves by kind of run, and of settings by method and model size.

People ask "is this normal?" before they ask what is wrong. The tables in `tables/` were read from published notebooks, model
cards, logs and recipes, each value with its source; a band says from how many runs or repositories it was taken, and one of
fewer than six runs says that it is weak.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import measured_loss, robust, vocabulary_of
from tuneclinic.curves.rows import PREFERENCE, REINFORCEMENT, Rows, kind_of
from tuneclinic.diagnosis import Comparison
from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.sections import Metrics
from tuneclinic.values import dataclass
from tuneclinic.words import Text

WEAK_RUNS = 6
"""Runs below which a band is called weak: its ends are then the smallest and the largest value."""
WEAK_REPOSITORIES = 3
"""Repositories below which a band of one model size gives way to the band of all sizes."""
FEWEST_RUNS = 3
"""Runs below which the band of a kind gives way to that of all kinds of tuning."""
TUNING = frozenset({"sft_chat_instruct_model", "sft_on_base", "domain_sft", "continued_pretraining"})
"""Kinds that share the pooled bands of gradient norm and evaluation gap."""
FEWEST_ROWS = 10
"""Rows of a loss before its course is compared; the first value is compared from one row on."""
NOTEBOOK_BATCH = 8.0
"""Samples behind a row of the notebooks that the noise bands of `NOTEBOOK_KINDS` come from: batch 8, one row a step."""
NOTEBOOK_KINDS = frozenset({"sft_chat_instruct_model", "sft_on_base", "vlm_stage2"})
"""Kinds whose noise band is of single steps and shrinks with the square root of the samples behind a row."""
SCRATCH_START = 0.75
"""Share of ln(vocabulary) from which the first loss is that of random weights; pretrained starts lie under 4 nats of 10 to 12."""
SCRATCH_NATS = 8.0
"""The same in nats, where no vocabulary was read: the lowest usual first row from scratch is 7.6, the highest pretrained one 3.8."""

KINDS: dict[str, Text] = {
    "sft_chat_instruct_model": Text("SFT of a chat model", "chat 模型 SFT"),
    "sft_on_base": Text("SFT of a base model", "base 模型 SFT"),
    "domain_sft": Text("SFT on domain data", "领域数据 SFT"),
    "continued_pretraining": Text("continued pre-training", "继续预训练"),
    "from_scratch_small_lm": Text("pre-training from scratch", "从头预训练"),
    "vlm_stage1": Text("VLM projector training", "VLM 第一阶段（projector 对齐）"),
    "vlm_stage2": Text("VLM fine-tuning", "VLM 微调"),
    "dpo": Text("DPO", "DPO"),
    "grpo": Text("GRPO", "GRPO"),
    "reward_model": Text("reward model", "奖励模型"),
}
"""Kinds of runs that the table of curves has bands for."""

MEASURES: dict[str, Text] = {
    "first_loss": Text("first loss", "起始 loss"),
    "loss_at_10pct": Text("loss at 10 % of the run", "训练到 10% 时的 loss"),
    "relative_drop_at_10pct": Text("fall of the loss by 10 % of the run, relative", "训练到 10% 时 loss 的相对降幅"),
    "relative_drop": Text("fall of the loss over the run, relative", "全程 loss 相对降幅"),
    "step_noise": Text("step noise over loss", "逐步噪声 / loss"),
    "grad_norm_median": Text("gradient norm, median", "grad_norm 中位数"),
    "eval_minus_train": Text("evaluation loss minus training loss", "eval loss 减 train loss"),
    "margin_end": Text("reward margin at the end", "结束时的 reward margin"),
    "accuracy_end": Text("pairs ranked right at the end", "结束时偏好对的准确率"),
    "rewards_chosen_end": Text("chosen reward at the end", "结束时 chosen 的 reward"),
    "abs_loss_median": Text("size of the loss, median", "loss 绝对值中位数"),
    "kl_end": Text("KL at the end", "结束时的 KL"),
    "zero_reward_std_share": Text("share of groups with equal rewards", "组内 reward 全相同的比例"),
}
"""Measures in the order they are shown."""

CHAT_NAME = pattern(r"instruct|chat|[-_]it\b|\bit[-_]|assistant|zephyr|vicuna|tulu|hermes|distill|thinking", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Band:
    """Usual values of a setting: 10th percentile, median and 90th percentile with every repository of equal weight.

    `size` says which models: "small" (under 3 billion parameters), "middle" (3 to 15), "large", or "any".
    """

    low: float
    median: float
    high: float
    repositories: int
    recipes: int
    size: str


@cache
def _table(name: str) -> dict[str, Any]:
    held: dict[str, Any] = json.loads((Path(__file__).parent / "tables" / f"{name}.json").read_text(encoding="utf-8"))
    return held


def setting(name: str, method: str, size_b: float | None = None) -> Band | None:
    """The usual values of a setting.

    Args:
        name: the vocabulary's name: learning_rate, epochs, lora_rank, lora_alpha, global_batch, batch_per_device, warmup_ratio,
            warmup_steps, weight_decay, max_grad_norm, lora_dropout, max_length.
        method: "full", "lora", "qlora", "dpo-full", "dpo-lora", "grpo", "kto", "reward", "cpt", "vlm-projector", "vlm-full",
            "vlm-lora" and others of the table; see `method_of`.
        size_b: the model's size in billions of parameters, None where it is not known.

    Returns:
        The band of this size where three repositories or more agree to it, else that of all sizes; None where the table has none.
    """
    held: dict[str, dict[str, Any]] = _table("usual_settings")["methods"].get(method, {}).get(name, {})
    size = "any" if size_b is None or not size_b > 0 else "small" if size_b < 3 else "middle" if size_b < 15 else "large"
    if held.get(size, {}).get("repositories", 0) < WEAK_REPOSITORIES:
        size = "any"
    band = held.get(size)
    return None if band is None else Band(size=size, **band)


def method_of(seen: Evidence) -> str:
    """Which row of the table of settings a run belongs to; "" where nothing tells full tuning from LoRA."""
    loss_kind = kind_of(seen.metrics) if seen.metrics is not None else ""
    stage = _text(seen, "stage")
    adapter = _adapter(seen)
    if loss_kind in {"grpo", "kto"} or stage in {"grpo", "kto"}:
        return loss_kind if loss_kind in {"grpo", "kto"} else stage
    if loss_kind == "reward" or stage in {"rm", "reward"}:
        return "reward"
    if not adapter:
        return ""
    whole = adapter == "full"
    if loss_kind in PREFERENCE or stage in PREFERENCE:
        name = stage if stage in PREFERENCE else loss_kind
        family = name if name in {"simpo", "orpo", "cpo"} else "dpo"
        return f"{family}-{'full' if whole else 'lora'}"
    if stage in {"pt", "pretrain", "cpt"}:
        return "cpt"
    if _vision(seen):
        return "vlm-full" if whole else "vlm-lora"
    return adapter


def size_of(seen: Evidence) -> float | None:
    """Billions of parameters: from the model's shapes, else from its name ("7B", "0.5b"); None where neither tells."""
    if seen.model is not None and seen.model.parameters:
        return seen.model.parameters / 1e9
    found = re.search(r"(?<![\w.])(\d{1,3}(?:\.\d{1,2})?)\s?([bm])(?![a-z])", _name(seen).replace("_", "-"), re.IGNORECASE)
    if found is None:
        return None
    return float(found.group(1)) * (1.0 if found.group(2).lower() == "b" else 1e-3)


def kind(seen: Evidence) -> tuple[str, bool]:
    """The kind of run for the table of curves, and whether the evidence tells it; "" where no band fits (diffusion …)."""
    loss_kind = kind_of(seen.metrics) if seen.metrics is not None else ""
    stage = _text(seen, "stage")
    if loss_kind == "dpo" or (not loss_kind and stage == "dpo"):
        return "dpo", True
    if loss_kind in REINFORCEMENT:
        return "grpo", loss_kind == "grpo"
    if loss_kind == "reward":
        return "reward_model", True
    if loss_kind not in {"", "causal-lm", "sft", "vlm", "pretrain"}:
        return "", False
    if _from_scratch(seen):
        return "from_scratch_small_lm", True
    if _vision(seen):
        projector_only = seen.settings is not None and seen.settings.flag("freeze_language") is True
        return ("vlm_stage1" if projector_only else "vlm_stage2"), True
    if stage in {"pt", "pretrain", "cpt"}:
        return "continued_pretraining", True
    name = _name(seen)
    if not name:
        return "sft_chat_instruct_model", False
    return ("sft_chat_instruct_model" if CHAT_NAME.search(name) else "sft_on_base"), True


def compare(seen: Evidence) -> tuple[Comparison, ...]:
    """This run's numbers beside the usual band of its kind; empty where no loss was read or no band fits.

    The first line names the kind of run that the bands are of, and says where it is only the nearest one.
    """
    if seen.metrics is None:
        return ()
    name, sure = kind(seen)
    if not name:
        return ()
    with np.errstate(all="ignore"):
        return (*_curves(seen, seen.metrics, name, sure=sure), *_settings(seen))


def _curves(seen: Evidence, metrics: Metrics, name: str, *, sure: bool) -> list[Comparison]:
    measured = dict(_measures(metrics))
    found: list[Comparison] = []
    for measure in MEASURES:
        band = _band(name, measure)
        if measure not in measured or band is None:
            continue
        scale = _scale(seen, name) if measure == "step_noise" else 1.0
        words = _words(measure, weak=band["runs"] < WEAK_RUNS, of=None if found else (name, sure))
        value, where = measured[measure]
        low, high = band["low"] * scale, band["high"] * scale
        found.append(Comparison(words, value, low, high, where, band["runs"], ", ".join(band["from"])))
    return found


def _band(name: str, measure: str) -> dict[str, Any] | None:
    """The band of one measure; where a kind has it of one or two runs only, that of all kinds of tuning."""
    kinds = _table("usual_curves")["kinds"]
    band: dict[str, Any] | None = kinds.get(name, {}).get(measure)
    if (band is None or band["runs"] < FEWEST_RUNS) and name in TUNING:
        band = kinds["any_tuning"].get(measure, band)
    return None if band is None or band["runs"] < 2 else band


def _words(measure: str, *, weak: bool, of: tuple[str, bool] | None) -> Text:
    said = MEASURES[measure]
    english, chinese = [], []
    if of is not None:
        kind_said = KINDS[of[0]]
        english.append(f"beside {kind_said.en}" + ("" if of[1] else ", the nearest kind"))
        chinese.append(f"对照：{kind_said.zh}" + ("" if of[1] else "，按最接近的类型"))
    if weak:
        english.append("few runs, a weak band")
        chinese.append("样本少，仅供参考")
    if not english:
        return said
    return Text(f"{said.en} ({'; '.join(english)})", f"{said.zh}（{'；'.join(chinese)}）")


def _measures(metrics: Metrics) -> Iterator[tuple[str, tuple[float, str]]]:
    """Each measure of the table that this run has, with its value and place; definitions as in the table."""
    series = measured_loss(metrics)
    if series is not None:
        rows = Rows.of(series)
        good = np.isfinite(rows.values)
        yield from _of_loss(rows.steps[good], rows.values[good])
    for measure, names in (
        ("margin_end", "rewards/margins"),
        ("accuracy_end", "rewards/accuracies"),
        ("rewards_chosen_end", "rewards/chosen"),
        ("kl_end", "kl"),
        ("eval_minus_train", "eval_loss"),
    ):
        other = Rows.of(metrics.get(names))
        good = np.isfinite(other.values)
        if not good.any():
            continue
        value, where = robust.tail(other.values[good]), f"step {other.steps[good][-1]:g}"
        if measure != "eval_minus_train":
            yield measure, (value, where)
        elif series is not None and np.isfinite(series.values).sum() >= FEWEST_ROWS:
            yield measure, (float(other.values[good][-1]) - robust.tail(series.values[np.isfinite(series.values)]), where)
    norms = Rows.of(metrics.get("grad_norm")).values
    norms = norms[np.isfinite(norms) & (norms > 0)]
    if len(norms) >= FEWEST_ROWS:
        yield "grad_norm_median", (float(median(norms)), f"{len(norms)} rows")
    spread = Rows.of(metrics.get("reward_std")).values
    if len(spread) >= FEWEST_ROWS:
        yield "zero_reward_std_share", (float(np.mean(spread == 0)), f"{len(spread)} rows")


def _of_loss(steps: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> Iterator[tuple[str, tuple[float, str]]]:
    if not len(values):
        return
    first, count = float(values[0]), len(values)
    yield "first_loss", (first, f"step {steps[0]:g}")
    if count < FEWEST_ROWS:
        return
    at = int(0.1 * (count - 1))
    early = float(median(values[max(0, at - 1) : at + 2]))
    yield "loss_at_10pct", (early, f"step {steps[at]:g}")
    if first > 0:
        yield "relative_drop_at_10pct", ((first - early) / first, f"step {steps[at]:g}")
        yield "relative_drop", ((first - robust.tail(values)) / first, f"step {steps[-1]:g}")
    later = values[count // 3 :]
    level = float(median(later))
    if level > 0:
        yield "step_noise", (robust.jitter(later) / level, f"step {steps[count // 3]:g} to {steps[-1]:g}")
    yield "abs_loss_median", (float(median(np.abs(values))), f"{count} rows")


def _scale(seen: Evidence, name: str) -> float:
    """What the noise band is multiplied by: rows that average more samples than the notebooks' have less noise."""
    series = seen.metrics.get("loss") if seen.metrics is not None else None
    if name not in NOTEBOOK_KINDS or series is None or len(series) < 2:
        return 1.0
    gap = max(1.0, float(median(np.abs(np.diff(series.steps)))))
    batch = _batch(seen) or NOTEBOOK_BATCH
    return 1.0 / math.sqrt(max(1.0, gap) * max(batch, 1.0) / NOTEBOOK_BATCH)


def _batch(seen: Evidence) -> float | None:
    """Samples a step, as far as the settings tell: cards are not counted where their number was not read."""
    if seen.settings is None:
        return None
    total = seen.settings.number("global_batch")
    if total:
        return total
    single = seen.settings.number("batch_per_device")
    if single is None:
        return None
    return single * (seen.settings.number("accumulation") or 1.0) * (seen.settings.number("processes") or 1.0)


def _settings(seen: Evidence) -> Iterator[Comparison]:
    """Learning rate, epochs and rank beside the usual ones of this method and model size."""
    method, size = method_of(seen), size_of(seen)
    if seen.settings is None or not method:
        return
    for name, said in (
        ("learning_rate", Text("learning rate", "学习率")),
        ("epochs", Text("epochs", "epoch 数")),
        ("lora_rank", Text("LoRA rank", "LoRA rank")),
        ("weight_decay", Text("weight decay", "weight decay")),
    ):
        value, band = seen.settings.number(name), setting(name, method, size)
        if value is None or band is None or not math.isfinite(value) or (name == "lora_rank" and method.endswith("full")):
            continue
        of = method if band.size == "any" or size is None else f"{method}, {size:.3g}B"
        held = seen.settings.values[name]
        words = Text(f"{said.en} ({of})", f"{said.zh}（{of}）")
        source = f"{band.recipes} recipes of {band.repositories} repositories"
        yield Comparison(words, value, band.low, band.high, held.where, band.recipes, source)


def _text(seen: Evidence, name: str) -> str:
    value = seen.settings.get(name) if seen.settings is not None else None
    return str(value).strip().lower() if value is not None else ""


def _name(seen: Evidence) -> str:
    named = (seen.model.name if seen.model is not None else None) or _text(seen, "model")
    return str(named or "").rstrip("/").rsplit("/", 1)[-1]


def _adapter(seen: Evidence) -> str:
    """Which of "full", "lora" and "qlora" it is; empty where nothing tells."""
    method = _text(seen, "method")
    quantised = any(_text(seen, name) in {"true", "4", "8"} for name in ("load_in_4bit", "load_in_8bit", "quantization_bits"))
    adapted = method in {"lora", "qlora", "dora", "longlora"} or (seen.model is not None and seen.model.adapter is not None)
    if adapted or (not method and seen.settings is not None and "lora_rank" in seen.settings):
        return "qlora" if quantised or method == "qlora" else "lora"
    return "full" if method == "full" else ""


def _vision(seen: Evidence) -> bool:
    if seen.model is not None and seen.model.vision is not None:
        return seen.model.vision
    return bool(re.search(r"[-_]vl\b|[-_]vl[-_]|llava|vision|internvl|minicpm-v|paligemma", _name(seen), re.IGNORECASE))


def _from_scratch(seen: Evidence) -> bool:
    series = seen.metrics.get("loss") if seen.metrics is not None else None
    if series is None:
        return False
    rows = vocabulary_of(seen.model, seen.tokenizer)
    uniform = math.log(rows) if rows and rows > 1 else None
    first = float(series.values[0])
    if not math.isfinite(first):
        return False
    if uniform is None:
        return SCRATCH_NATS <= first < 2 * SCRATCH_NATS
    adapted = _adapter(seen) in {"lora", "qlora"}
    return not adapted and SCRATCH_START * uniform <= first <= uniform + 1
