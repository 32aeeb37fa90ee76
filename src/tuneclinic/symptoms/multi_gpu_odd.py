"""Several cards: slower than one, jittery, or all on the same data."""

import numpy as np

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit, from_fact, from_setting
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, CrashError, Environment, Metrics, Script, ScriptFact, Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._crash import ended_by
from tuneclinic.words import Text

SAME_ROWS = 5
"""Rows in which two ranks must log one and the same loss before it means anything; a value repeats by chance once or twice."""

LOADER_FACTS = ("loader-not-distributed", "loader-doubly-distributed", "set-epoch-missing")
"""Facts of the script by which equal losses come from equal data, and not from a loss averaged before it is logged."""


def _ranks(shift: float, *, script: bool = False) -> Evidence:
    """Two ranks whose losses differ by `shift`, with or without a loader that every rank reads from the start."""
    loss = 2.0 * 0.98 ** np.arange(20)
    ranks = {rank: {"loss": Series.of(loss + rank * shift, source=f"rank{rank}.log")} for rank in (0, 1)}
    fact = ScriptFact("loader-not-distributed", "loader = DataLoader(dataset, batch_size=4, shuffle=True)", 31, "train.py")
    section = Script((fact,), frozenset(LOADER_FACTS), ("train.py",)) if script else None
    return Evidence(metrics=Metrics({"loss": ranks[0]["loss"]}, by_rank=ranks, source="rank0.log"), script=section)


class MultiGpuOdd(Symptom):
    id = "multi-gpu-odd"
    letter = "R"
    needs = ("crash", "log", "metrics")
    search = (
        "DDP slower than single GPU",
        "all GPUs see the same data",
        "loss identical on every rank",
        "NCCL error when starting multi-gpu training",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp",
        "多卡比单卡还慢",
        "DDP 每张卡数据一样",
        "多卡训练 NCCL error",
        "multiple GPUs give no speedup",
        "adding GPUs makes training slower",
        "each rank gets identical batches",
        "ncclUnhandledCudaError",
        "多卡没有加速",
        "8 卡比单卡慢",
        "每个 rank 读到相同的数据",
    )

    en = SymptomCard(
        title="Multi-GPU training behaves oddly",
        seen="More GPUs bring no speed or a noisier loss, every rank logs the same losses, or the process group cannot be created.",
        check="Go down the list. Does each rank get its own samples (print the ids)? Is set_epoch called? How large is the global batch now, and does the learning rate fit it? Is every parameter used on every rank? Does the logged learning rate follow the planned schedule? For an NCCL error set NCCL_DEBUG=INFO and read the first failing call.",
        treatment="Use a DistributedSampler or the framework's prepared loader, never both. Call set_epoch each epoch. Keep the global batch by lowering accumulation, or adapt the learning rate. NCCL: one process per GPU, a free port, the right network interface (NCCL_SOCKET_IFNAME).",
        prevention="Run the list as an automatic check before training, with two processes and ten steps.",
    )
    zh = SymptomCard(
        title="多卡异常（DDP）",
        seen="加了卡速度没上去、loss 反而更抖，或者每个 rank 的 loss 一模一样，或者进程组根本建不起来。",
        check="按清单过：每个 rank 拿到的样本是不是自己的（把 id 打出来）、set_epoch 调没调、global batch 现在多大、学习率配不配、每个参数是不是每个 rank 都用到、日志里的学习率走势和计划的一样吗。NCCL 报错就设 NCCL_DEBUG=INFO，看第一个失败的调用。",
        treatment="DistributedSampler 和框架包装好的 loader 二选一，不能叠着用；每个 epoch 调 set_epoch；减梯度累积保持 global batch，或者学习率跟着调。NCCL：一卡一进程、端口空闲、网卡选对（NCCL_SOCKET_IFNAME）。",
        prevention="把清单做成开训前检查，两个进程跑 10 步。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (
                        CrashError(
                            "torch.distributed.DistBackendError",
                            "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:317, invalid usage",
                            "train.log:41",
                            "train.log",
                        ),
                    )
                )
            ),
            _ranks(0.0, script=True),
        ]
    )
    healthy = Lazy(
        lambda: [
            _ranks(0.013),
            Evidence(environment=Environment(processes=1, places={"processes": "train.log:3"})),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        found = ended_by(seen, "collective")
        if found is not None:
            error, exhibit = found
            return self.shown(exhibit, first_step=error.step if error is not None else None)
        same = _same(seen.metrics) if seen.metrics is not None else None
        if same is not None and same[0]:
            facts = [fact for name in LOADER_FACTS if seen.script is not None and (fact := seen.script.fact(name)) is not None]
            if facts:
                return self.shown(same[1], *(from_fact(fact) for fact in facts))
            return self.not_checked("script")
        if same is not None:
            return self.absent(same[1])
        alone = _alone(seen)
        return self.not_checked("crash", "log", "metrics") if alone is None else self.absent(alone)


def _alone(seen: Evidence) -> Exhibit | None:
    """What says that the run had one process only; None where that is not known."""
    if seen.settings is not None and seen.settings.number("processes") == 1:
        return from_setting(seen.settings.values["processes"])
    if seen.environment is not None and seen.environment.processes == 1:
        text = Text("one process", "只有一个进程")
        return Exhibit(text, seen.environment.places.get("processes", ""), section="environment")
    return None


def _same(metrics: Metrics) -> tuple[bool, Exhibit] | None:
    """Whether two ranks log the same losses to the last digit, and the exhibit; None without two ranks."""
    ranks = {rank: series["loss"] for rank, series in metrics.by_rank.items() if "loss" in series and len(series["loss"])}
    if len(ranks) < 2:
        return None
    (a, mine), (b, other) = sorted(ranks.items())[:2]
    count = min(len(mine), len(other))
    equal = int(np.sum(mine.values[:count] == other.values[:count]))
    text = Text(
        f"ranks {a} and {b} log the same loss in {equal} of {count} rows",
        f"rank {a} 和 rank {b} 有 {equal}/{count} 行 loss 完全相同",
    )
    exhibit = Exhibit(text, f"{mine.source}, {other.source}", mine.source, section="metrics")
    return equal == count >= SAME_ROWS, exhibit
