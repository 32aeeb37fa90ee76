"""One rank is slower, and all wait for it."""

from __future__ import annotations

import numpy as np

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import alone, processes
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import lines, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment, Metrics, Series

TIMES = (
    "data_time",
    "data_seconds",
    "data_loading_seconds",
    "dataloader_seconds",
    "forward_seconds",
    "forward_time",
    "backward_seconds",
    "compute_seconds",
    "batch_seconds",
    "step_seconds",
)
"""Series of seconds that ranks log for themselves. Whole steps end together, so a step's own time shows little; its parts show much."""
WHOLE = frozenset({"step_seconds", "batch_seconds"})
SLOWER = 1.5
"""Ratio of a rank's median to that of the middle rank from which it holds the others up; even ranks differ by a few per cent."""
EVEN = 1.15
"""Ratio below which ranks are even."""
POINTS = 10
"""Rows of each rank before medians are compared."""


def _ranks(slow: float) -> Metrics:
    held = {
        rank: {"loss": Series.of(make.falling(40)), "forward_seconds": Series.of(np.full(40, slow if rank == 2 else 0.4))}
        for rank in range(4)
    }
    return Metrics({"loss": held[0]["loss"]}, by_rank=held, source="rank0.log")


class SlowRank(Case):
    id = "slow-rank"
    symptoms = {"slow": 0.06, "hangs": 0.1}
    stage = "environment"
    needs = ("metrics", "environment", "log")
    probe = "environment"
    signatures = (
        r"hw (thermal |power brake )?slowdown\s*:\s*active",
        r"straggler (detected|found|rank)",
        r"rank \d+ is (a straggler|slow(er)?)",
    )
    search = (
        "one GPU slower than the others in DDP",
        "straggler rank slows down training",
        "GPU thermal throttling training",
        "有一张卡特别慢 拖累全部",
        "多卡训练 某个 rank 慢",
        "GPU 过热降频",
    )

    en = Card(
        title="One slow rank slows down all ranks",
        sign="The whole job runs at the pace of one GPU: its data or forward time is well above the others', while the others show 100 % use in an all-reduce.",
        cause="Synchronous training waits for the slowest rank. That GPU is a different model, is throttled by heat or power, shares its machine with another job, reads from a slower disk, or always gets the longer samples.",
        remedy="On each node run nvidia-smi -q -d PERFORMANCE,CLOCK (look for HW Slowdown and low clocks), check nvidia-smi for other processes, and time the DataLoader on each rank. Move the job to another node, or stop the other process. Group by length so that ranks get batches of similar length (group_by_length: true; from transformers 5 train_sampling_strategy: group_by_length). Use one type of GPU per job.",
        verify="The median data and forward times of all ranks lie within 10 % of each other, and the speed rises to that of the fastest rank before.",
        prevention="Log data and forward time on every rank. Before a long job, run ten matrix products on each GPU: a throttled one shows.",
        question="What are the data and forward times of each rank, and the clocks of each GPU?",
        quiz="Seven GPUs show 100 % use and one shows 60 %. Which one is slow? Waiting in an all-reduce counts as use, so compare times instead; often it is the one that never waits.",
    )
    zh = Card(
        title="一个 rank 拖慢全部",
        sign="整个任务的速度由一张卡决定：它的取数或前向时间明显高于别人，而别人都 100% 地等在 all-reduce 里。",
        cause="同步训练等最慢的。那张卡可能型号不同、因过热或功耗限制降频、机器上有别人的任务、读的盘更慢，或者总分到更长的样本。",
        remedy="每个节点看 nvidia-smi -q -d PERFORMANCE,CLOCK（有没有 HW Slowdown、频率低不低），再看 nvidia-smi 有没有别的进程，给每个 rank 的 DataLoader 计时。换节点，或停掉别的进程；按长度分组让各 rank 的 batch 长度接近（group_by_length: true，transformers 5 起是 train_sampling_strategy: group_by_length）；一个任务只用一种卡。",
        verify="各 rank 取数和前向时间的中位数相差 10% 以内，速度回到原来最快那张卡的水平。",
        prevention="每个 rank 都记录取数和前向时间；长训前在每张卡上跑十步矩阵乘，能找出降频的卡。",
        question="各 rank 的取数、前向时间是多少？各卡的频率呢？",
        quiz="七张卡利用率 100%，一张 60%，慢的是哪张？在 all-reduce 里等也算利用率，所以要看时间；往往就是那张不用等的。",
    )
    change = {"group_by_length": True}
    sick = make.Lazy(
        lambda: [
            Evidence(metrics=_ranks(1.1)),
            Evidence(
                environment=Environment(processes=8),
                log=make.logged("        HW Thermal Slowdown               : Active"),
                metrics=_ranks(0.7),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(metrics=_ranks(0.42)),
            Evidence(
                environment=Environment(processes=1, gpus=("NVIDIA A100", "Tesla T4")), metrics=make.ran(loss=make.falling())
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        told = lines(seen, *self.signatures, weight=4.0)
        slowest = _slowest(seen)
        if slowest is not None and slowest.weight > 0:
            return self.confirmed(slowest, *told, *_mixed(seen))
        if slowest is not None and slowest.weight < 0 and not told:
            return self.ruled_out(slowest)
        mixed = _mixed(seen)
        if told or mixed:
            return self.suspected(*told, *mixed)
        return self.not_checked("metrics", exhibits=(slowest,) if slowest is not None else ())


def _slowest(seen: Evidence) -> Exhibit | None:
    """The slowest rank beside the middle one, by the series in which they differ most; None where two ranks log no time."""
    best: tuple[float, str, int, float, float] | None = None
    for name in TIMES if seen.metrics is not None else ():
        medians = {
            rank: float(np.median(values))
            for rank, held in (seen.metrics.by_rank.items() if seen.metrics is not None else ())
            if name in held and len(values := held[name].values[np.isfinite(held[name].values)]) >= POINTS
        }
        middle = float(np.median(list(medians.values()))) if len(medians) >= 2 else 0.0
        if middle <= 0:
            continue
        if len(medians) == 2:
            middle = min(medians.values())
        rank = max(medians, key=lambda one: medians[one])
        if middle > 0 and (best is None or medians[rank] / middle > best[0]):
            best = (medians[rank] / middle, name, rank, medians[rank], middle)
    if best is None:
        return None
    ratio, name, rank, mine, middle = best
    weight = 7.0 if ratio >= SLOWER else 0.0 if ratio > EVEN or name in WHOLE else -5.0
    return say(
        f"rank {rank}: {name} {mine:.3g} s against {middle:.3g} s on the others ({ratio:.1f} times)",
        f"rank {rank}：{name} {mine:.3g} 秒，其他 rank {middle:.3g} 秒（{ratio:.1f} 倍）",
        weight,
    )


def _mixed(seen: Evidence) -> tuple[Exhibit, ...]:
    """Cards of different kinds in one job of several processes."""
    kinds = sorted(set(seen.environment.gpus)) if seen.environment is not None else []
    count = processes(seen)
    if len(kinds) < 2 or count is None or count < 2:
        return ()
    listed = ", ".join(kinds[:4])
    return (say(f"different GPU types in one job: {listed}", f"一个任务里有不同型号的卡：{listed}", 2.0, section="environment"),)
