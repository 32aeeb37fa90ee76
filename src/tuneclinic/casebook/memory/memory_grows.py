"""Memory grows over the run at equal lengths."""

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Metrics, Series

ENOUGH_ROWS = 20
"""Rows before a course of the memory is judged."""
GROWTH = 0.10
"""Relative growth from the first to the last third that counts: peaks of healthy runs move by a few percent as longer batches come."""
STEADY = 0.8
"""Share of blocks that must be no lower than the one before: a leak rises all the time, one long batch lifts the peak once."""


class MemoryGrows(Case):
    id = "memory-grows"
    symptoms = {"oom-late": 0.07}
    stage = "environment"
    needs = ("metrics",)
    probe = "memory"
    search = (
        "memory leak during training",
        "GPU memory slowly increases",
        "allocated memory grows until OOM",
        "显存泄漏",
        "训练中显存缓慢上涨",
        "跑几个小时后 OOM",
    )

    en = Card(
        title="Memory grows step by step",
        sign="The logged memory climbs steadily from step to step although lengths are alike, until it runs out.",
        cause="Something keeps the results of each step: tensors in a list, hooks that store activations, a generation cache in an RL loop, prefetched batches on the GPU, or a kernel's autotune cache with ever new shapes.",
        remedy="First find what is kept: call torch.cuda.memory._record_memory_history(), run 20 steps, save with torch.cuda.memory._dump_snapshot('mem.pickle'), and look in pytorch.org/memory_viz for blocks that outlive a step. In your own loop, search for lists and sums of tensors. Until then, save often and restart from the checkpoint.",
        verify="Allocated memory after each optimizer step is flat over 200 steps.",
        prevention="Log allocated memory next to the loss, and stop the run at 10 % growth instead of waiting for out of memory.",
        question="At equal lengths, is the allocated memory after the optimizer step higher at step 1,000 than at step 100?",
        quiz="Peak memory jumped once at step 300 and stayed there. Is it a leak? More likely one long batch: a leak keeps growing.",
    )
    zh = Card(
        title="显存逐步上涨",
        sign="样本长度差不多，日志里的显存却一步步往上爬，最后爆掉。",
        cause="有东西把每一步的结果留住了：列表里的张量、存激活的 hook、RL 里生成阶段的缓存、预取到显存里的 batch，或形状一直变化的算子 autotune 缓存。",
        remedy="先找出是谁：torch.cuda.memory._record_memory_history() 打开，跑 20 步，用 torch.cuda.memory._dump_snapshot('mem.pickle') 存下来，在 pytorch.org/memory_viz 里看哪些块活过了一步；手写循环里搜列表和张量累加。临时办法是勤存 checkpoint，爆了就从 checkpoint 恢复。",
        verify="连续 200 步，每次优化器更新后的已分配显存持平。",
        prevention="日志里把已分配显存打在 loss 旁边，涨 10% 就停，不要等到爆显存。",
        question="长度相同的情况下，第 1000 步优化器更新后的显存是否高于第 100 步？",
        quiz="峰值在第 300 步跳了一次就不动了，是泄漏吗？更像是来了一条长样本；泄漏会一直涨。",
    )
    sick = Lazy(
        lambda: [
            Evidence(metrics=Metrics({"memory_gib": Series.of(np.linspace(20, 70, 100))})),
            Evidence(metrics=Metrics({"memory_gib": Series.of(10 + 0.02 * np.arange(300) + 0.05 * (np.arange(300) % 3))})),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(metrics=Metrics({"memory_gib": Series.of(np.concatenate([np.full(60, 40.0), np.full(140, 52.0)]))})),
            Evidence(metrics=Metrics({"memory_gib": Series.of(40 + 0.3 * np.sin(np.arange(200)))})),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        memory = seen.metrics.get("memory_gib") if seen.metrics else None
        if memory is None or len(memory) < ENOUGH_ROWS:
            return self.not_checked("metrics")
        values = memory.values[np.isfinite(memory.values)]
        blocks = np.array([median(block) for block in np.array_split(values, min(12, len(values)))])
        growth = float(blocks[-1] / max(blocks[1], 1e-9) - 1)  # the first block holds the warm-up of the allocator
        steady = float(np.mean(np.diff(blocks[1:]) > 0))
        text = facts.said(
            f"memory goes from {blocks[1]:.1f} to {blocks[-1]:.1f} GiB, rising in {steady:.0%} of the blocks",
            f"显存从 {blocks[1]:.1f} 涨到 {blocks[-1]:.1f} GiB，{steady:.0%} 的区段都在上涨",
            6.0 if growth > GROWTH and steady >= STEADY else -5.0,
            "metrics",
            memory.where(len(memory) - 1),
        )
        return self.confirmed(text) if text.weight > 0 else self.ruled_out(text)
