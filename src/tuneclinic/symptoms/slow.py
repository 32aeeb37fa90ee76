"""Slow from the start, slower and slower, or a sudden drop."""

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves.machine import SECONDS, SPEEDS
from tuneclinic.curves.thresholds import SLOW_POINTS
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit, from_line
from tuneclinic.examples import Lazy
from tuneclinic.sections import Environment, Log, LogLine, Series
from tuneclinic.signature import first_line
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, jitter, run
from tuneclinic.symptoms._series import course, curve, look, number, stated
from tuneclinic.words import Text

PACE = (*SECONDS, *SPEEDS)
"""Series that show how fast the run goes."""

UNINTENDED = (
    r"using cpu_amp half precision backend",
    r"no gpu/tpu found, falling back to cpu",
    r"cuda is not available.{0,60}(cpu|slow)",
    r"torch was not compiled with cuda|torch not compiled with cuda",
    r"gpu available: false",
)
"""Lines by which transformers, torch and Lightning say that they fell back to the processor."""

ON_CPU = (r"process rank: \d+, (world size: \d+, )?device: cpu", r"^.{0,60}\bdevice: cpu\b.{0,30}distributed training")
"""Lines by which transformers, LLaMA-Factory and ms-swift merely name the processor as the device."""

SMALL_ENOUGH = 1e7
"""Parameters up to which a processor is no hindrance: a step of such a model takes milliseconds there."""

TOO_LARGE = 3e8
"""Parameters from which nobody trains on the processor on purpose: a step of a 0.3B model takes seconds there."""


class Slow(Symptom):
    id = "slow"
    letter = "R"
    needs = ("metrics", "log", "environment")
    search = (
        "training is very slow",
        "GPU utilization is low, waiting for data",
        "step time keeps increasing",
        "speed dropped suddenly during training",
        "it takes 60 s/it on an A100",
        "训练速度骤降",
        "训练特别慢，GPU 利用率很低",
        "越训越慢",
        "low throughput, few tokens per second",
        "estimated time is hundreds of hours",
        "微调太慢了，it/s 很低",
        "数据加载慢，GPU 等着",
        "steps get slower over time",
        "速度越跑越慢",
        "GPU usage is only a few percent",
        "dataloader is the bottleneck",
        "GPU 占用率上不去，训练很慢",
    )

    en = SymptomCard(
        title="Training is slow",
        seen="Steps take far longer than they should on this GPU, get slower and slower, or suddenly take twice as long.",
        check="Time four things separately over twenty steps: waiting for data, forward, backward, optimizer. Is the model on the GPU at all? Who else uses the machine? What share of a batch is padding?",
        treatment="Waiting for data: more dataloader_num_workers, pinned memory, decode and tokenise in advance. Padding: group by length or use packing. Synchronisation: log every 10 steps, no .item() or empty_cache() in each step. If memory allows, turn gradient checkpointing off.",
        prevention="Log these four times; the slow phase is then visible at once.",
    )
    zh = SymptomCard(
        title="训练慢、速度骤降",
        seen="每步用时远超这张卡该有的水平，或者越跑越慢，或者突然掉一半速度。",
        check="跑 20 步，把四段时间分开量：等数据、前向、反向、优化器。模型到底在不在 GPU 上？机器上还有谁在跑？一个 batch 里有多少是 padding？",
        treatment="等数据：调大 dataloader_num_workers，开 pin_memory，提前解码和分词。padding 多：按长度分组或用 packing。同步多：每 10 步打一次日志，别每步 .item()、empty_cache()。显存够就关掉梯度检查点。",
        prevention="四段耗时写进日志，慢在哪一段一眼就看得出。",
    )
    sick = Lazy(
        lambda: [
            run(loss=falling(120), step_seconds=np.linspace(1.0, 4.0, 120) * (1 + jitter(120, 0.02))),
            run(loss=falling(120), step_seconds=np.concatenate([np.full(60, 1.0), np.full(60, 3.1)]) * (1 + jitter(120, 0.02))),
            Evidence(environment=Environment(device="cpu", gpus=("NVIDIA A100",), places={"device": "train.log:3"})),
            Evidence(log=Log((LogLine("Using cpu_amp half precision backend", "train.log:7", "train.log"),), 40)),
        ]
    )
    healthy = Lazy(lambda: [run(loss=falling(120), step_seconds=1.2 * (1 + jitter(120, 0.05)))])

    def see(self, seen: Evidence) -> Sighting:
        line = _on_cpu(seen)
        if line is not None:
            return self.shown(line)
        shape = look(seen)
        paces = [(name, series) for name in PACE if (series := curve(seen, name)) is not None]
        if paces and shape.throughput_dropped_from is not None:
            name, series = paces[0]
            text = Text("the speed drops here and does not recover", "速度从这里掉下去，没再恢复")
            exhibits = [stated(text, series, shape.throughput_dropped_from), _medians(name, series)]
            return self.shown(*exhibits, first_step=shape.throughput_dropped_from)
        if paces and shape.throughput_decays is not None:
            name, series = paces[0]
            factor = number(shape.throughput_decays)
            text = Text(f"each step gets slower by a factor of {factor} over the run", f"整个过程每步耗时变成 {factor} 倍")
            exhibits = [stated(text, series, float(series.steps[-1])), _medians(name, series)]
            return self.shown(*exhibits, first_step=float(series.steps[0]))
        if paces and len(paces[0][1]) >= SLOW_POINTS:
            return self.absent(course(*paces[0]))
        return self.not_checked("metrics", "log")


def _on_cpu(seen: Evidence) -> Exhibit | None:
    """What says that the run is on the processor though it was meant for a card."""
    if seen.settings is not None and seen.settings.flag("use_cpu"):
        return None
    parameters = seen.model.parameters if seen.model is not None else None
    fallback = _line(seen, UNINTENDED)
    if fallback is not None and (parameters is None or parameters > SMALL_ENOUGH):
        return fallback
    meant = (seen.environment is not None and seen.environment.gpus) or (parameters or 0) >= TOO_LARGE
    if not meant:
        return None
    if seen.environment is not None and (seen.environment.device or "").lower() == "cpu":
        return Exhibit("device: cpu", seen.environment.places.get("device", ""), section="environment")
    return _line(seen, ON_CPU)


def _line(seen: Evidence, patterns: tuple[str, ...]) -> Exhibit | None:
    """The first log line that matches one of `patterns`."""
    for pattern in patterns if seen.log is not None else ():
        line = first_line(seen.log, pattern) if seen.log is not None else None
        if line is not None:
            return from_line(line)
    return None


def _medians(name: str, series: Series) -> Exhibit:
    """The usual pace at the beginning and at the end, by the medians of the first and the last tenth."""
    part = max(1, len(series) // 10)
    values = series.values[np.isfinite(series.values)]
    a, b = number(float(median(values[:part]))), number(float(median(values[-part:])))
    text = Text(f"{name}: median {a} at the beginning, {b} at the end", f"{name}：开头中位数 {a}，结尾 {b}")
    return stated(text, series, float(series.steps[-1]))
