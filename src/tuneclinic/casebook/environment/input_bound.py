"""The cards wait for data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.case import Card, Case
from tuneclinic.casebook.environment._facts import slows
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import facts, finite, lines, number, say, setting
from tuneclinic.curves.machine import SECONDS
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

WAITING = (
    "data_time",
    "data_seconds",
    "data_loading_seconds",
    "dataloader_seconds",
    "data_loading_time",
    "dataloader_time",
    "data_load_time",
    "data_loading(s)",
    "time_metrics/data_loading(s)",
)
"""What trainers call the seconds a step waits for its batch (mmengine, torchtitan, Megatron, timm and their kin)."""
SHARES = ("time_metrics/data_loading(%)", "data_loading(%)")
STEPS = (*SECONDS, "time", "time_metrics/end_to_end(s)", "iter_time", "batch_time")
WAITS = 0.3
"""Share of a step spent waiting from which data are the bottleneck: mending it saves at least that share of the bill."""
BUSY = 0.1
"""Share below which data are not what makes the run slow: no more than a tenth could be won."""
POINTS = 10
"""Rows of timings before their median means anything: the first ones hold the workers' start and the compiler."""


class InputBound(Case):
    id = "input-bound"
    symptoms = {"slow": 0.22}
    stage = "environment"
    needs = ("metrics", "script", "settings", "log")
    probe = "environment"
    signatures = (r"does not have many workers which may be a bottleneck", r"dataloader is (too slow|the bottleneck)")
    search = (
        "GPU utilization low waiting for dataloader",
        "data loading is the bottleneck in training",
        "dataloader_num_workers slow training",
        "GPU 等数据",
        "数据加载成瓶颈 GPU 利用率低",
        "num_workers 设多少",
        "GPU utilization jumps between 0 and 100",
    )

    en = Card(
        title="The GPU waits for data",
        sign="GPU use swings between 0 and 100 %, loading data takes a third of a step or more, and a smaller model is hardly faster.",
        cause="Batches are produced more slowly than the GPU uses them: dataloader_num_workers is 0 (the Trainer's default), pictures or audio are decoded and resized in every step, text is tokenised on the fly, or the files are on a network disk.",
        remedy="dataloader_num_workers: 4 to 8 per card, dataloader_prefetch_factor: 2, dataloader_pin_memory: true (the same names in Trainer, TRL, LLaMA-Factory and axolotl). Tokenise and resize once into a cache (datasets.map; preprocessing_num_workers in LLaMA-Factory). Copy the data to a local SSD. Do not use more workers in all than the machine has cores.",
        verify="Train twenty steps on the same batch held in memory: that is the speed without data loading. The real speed is now within 10 % of it.",
        prevention="Log the data time next to the step time, and warn when it is more than a tenth.",
        question="How fast are twenty steps on the same batch again and again, compared with the real loader?",
        quiz="GPU use is 40 %, and halving the model changes nothing. What is the bottleneck? The input: the steps were not waiting for the GPU.",
    )
    zh = Card(
        title="GPU 在等数据",
        sign="GPU 利用率在 0 和 100% 之间来回跳，每步里等数据的时间占到三成以上，换个小模型也快不了多少。",
        cause="出 batch 比 GPU 用得慢：dataloader_num_workers 是 0（Trainer 默认值），图片、音频每步现解码现缩放，文本现分词，或者数据放在网络盘上。",
        remedy="每卡 dataloader_num_workers: 4～8，dataloader_prefetch_factor: 2，dataloader_pin_memory: true（Trainer、TRL、LLaMA-Factory、axolotl 同名）。分词和缩放提前做好写缓存（datasets.map，LLaMA-Factory 是 preprocessing_num_workers）。数据拷到本地 SSD。worker 总数别超过 CPU 核数。",
        verify="拿内存里同一个 batch 连训 20 步，这就是不等数据的速度；真实速度与它相差在 10% 以内。",
        prevention="日志里把等数据的时间和每步时间一起打，超过一成就告警。",
        question="反复喂同一个 batch 跑 20 步，和正常读数据比，各是多快？",
        quiz="GPU 利用率 40%，模型砍一半速度不变，瓶颈在哪？在输入：每一步等的本来就不是 GPU。",
    )
    change = {"workers": 4}
    sick = make.Lazy(
        lambda: [
            Evidence(metrics=make.ran(loss=make.falling(60), step_seconds=[2.0] * 60, data_time=[1.3] * 60)),
            Evidence(
                metrics=make.ran(loss=make.falling(60), time=[1.0, 1.1] * 30, data_time=[0.45, 0.5] * 30),
                settings=make.configured(workers=0),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(metrics=make.ran(loss=make.falling(60), step_seconds=[2.0] * 60, data_time=[0.02] * 60)),
            Evidence(  # no workers, and no waiting either: text that was tokenised before
                metrics=make.ran(loss=make.falling(60), step_seconds=[2.0] * 60, data_time=[0.05] * 60),
                settings=make.configured(workers=0),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        share = _share(seen)
        no_workers = (
            *facts(seen, "workers-zero", weight=1.0),
            *(setting(seen, "workers", 1.0) if number(seen, "workers") == 0 else ()),
        )
        told = lines(seen, *self.signatures, weight=1.0)
        if share is not None:
            weight = 8.0 if share >= WAITS else 1.0 if share >= BUSY else -7.0
            waits = say(
                f"a step spends {share:.0%} of its time waiting for data (median)",
                f"每步有 {share:.0%} 的时间在等数据（中位数）",
                weight,
            )
            if share >= WAITS:
                return self.confirmed(waits, *no_workers, *told)
            if share < BUSY:
                return self.ruled_out(waits)
            return self.suspected(waits, *no_workers, *told)
        slow = slows(seen)
        if slow and (no_workers or told):
            return self.suspected(*slow, *no_workers, *told)
        return self.not_checked("metrics", exhibits=(*no_workers, *told))


def _share(seen: Evidence) -> float | None:
    """The median share of a step spent waiting for its batch; None where the log does not time both."""
    for name in SHARES:
        held = finite(seen, name)
        if len(held) >= POINTS:
            return _bounded(float(median(held)) / 100)
    waiting, step = _first(seen, WAITING), _first(seen, STEPS)
    if waiting is None or step is None:
        return None
    whole = float(median(step))
    return _bounded(float(median(waiting)) / whole) if whole > 0 else None


def _bounded(share: float) -> float | None:
    """A share is a share: anything outside 0 to 1 was logged in other units than it seems."""
    return share if 0 <= share <= 1 else None


def _first(seen: Evidence, names: tuple[str, ...]) -> np.ndarray[Any, np.dtype[Any]] | None:
    return next((held for name in names if len(held := finite(seen, name)) >= POINTS), None)
