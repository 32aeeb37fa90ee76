"""One rank runs out of batches before the others."""

from __future__ import annotations

import numpy as np

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import alone, finished, own_error, timeouts
from tuneclinic.casebook.environment._facts import named
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, say, series, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_error
from tuneclinic.sections import Crash, CrashError, Environment

BORDER = 0.02
"""Distance from a whole epoch within which a hang stands at its end: one step in fifty, and two printed decimals."""


def _late(rank: int) -> CrashError:
    text = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9120, OpType=ALLREDUCE, Timeout(ms)=600000)"
    )
    return CrashError("DistBackendError", text, f"rank{rank}.log:70", f"rank{rank}.log", rank=rank)


class UnequalBatches(Case):
    id = "unequal-batches"
    symptoms = {"hangs": 0.25}
    stage = "environment"
    needs = ("crash", "log", "metrics", "settings")
    probe = "environment"
    signatures = (
        r"at least one rank (that )?(has )?exhausted inputs",
        r"uneven inputs|unequal number of batches|different number of batches",
        r"generator raised stopiteration",
    )
    search = (
        "DDP hangs at the end of an epoch",
        "Detected at least one rank that exhausted inputs",
        "iterable dataset uneven batches across ranks hang",
        "每个 epoch 结束时卡住",
        "各卡 batch 数不一致 挂起",
        "streaming 数据 多卡 最后一步卡死",
    )

    en = Card(
        title="Ranks have different numbers of batches",
        sign="The run hangs at the end of an epoch or of the evaluation: one rank has left the loop, the others wait in an all-reduce.",
        cause="Each rank must take part in every step. One rank gets a batch more when a streamed or hand-split data set does not divide evenly, when each rank filters, packs or buckets its own rows, or when your own batch sampler does not drop the last batch.",
        remedy="Set dataloader_drop_last: true. Pad the shards to one length (DistributedSampler and accelerate's even_batches do this). For streamed data stop all ranks at the same max_steps. In your own loop: `with model.join():` for DDP, or all_reduce a flag 'I have a batch' in each step and leave the loop together.",
        verify="len(loader) is the same number on all ranks, and two epochs of a tiny data set with an odd number of rows run to the end on two processes.",
        prevention="Before the first long run, test with a number of rows for which rows % (ranks × batch) = 1.",
        question="At which point of the epoch does it hang, and how many batches does each rank count?",
        quiz="101 rows, batch 10, two ranks with 51 and 50 rows. Which rank hangs? Rank 0 in its sixth step: rank 1 has only five.",
    )
    zh = Card(
        title="各 rank 的 batch 数不等",
        sign="卡在 epoch 末尾或评估末尾：有一个 rank 已经出了循环，其他的还在 all-reduce 里等。",
        cause="每一步都要所有 rank 参加。流式或手工切分的数据长度除不尽、各 rank 自己过滤样本、各 rank 自己 packing 或按长度分桶、自写 batch sampler 没有 drop_last，都会让某个 rank 多出一个 batch。",
        remedy="设 dataloader_drop_last: true；各分片补齐到同样长度（DistributedSampler 和 accelerate 的 even_batches 会做）；流式数据所有 rank 都停在同一个 max_steps。自己的循环：DDP 用 `with model.join():`，或每步 all_reduce 一个“我还有 batch”的标志，一起退出。",
        verify="各 rank 的 len(loader) 收集起来是同一个数；奇数条的小数据集双进程跑满两个 epoch。",
        prevention="长训之前先测一遍：样本数取到 rows % (ranks × batch) = 1。",
        question="卡在 epoch 的哪个位置？每个 rank 各数到多少个 batch？",
        quiz="101 条，batch 10，两个 rank 各分 51 和 50 条，谁会卡？rank 0 在第六步，rank 1 只有五步。",
    )
    change = {"drop_last": True}
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed("RuntimeError", "Detected at least one rank that exhausted inputs. Throwing across all ranks.")
            ),
            Evidence(
                crash=Crash((_late(0), CrashError("StopIteration", "", "rank1.log:66", "rank1.log", rank=1))),
                environment=Environment(processes=2),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same time-out, in the middle of an epoch
                crash=Crash((_late(0), _late(1))),
                metrics=make.ran(loss=make.falling(), epoch=np.linspace(0.01, 1.43, 200)),
            ),
            Evidence(crash=make.crashed("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        proof, late = named(seen, self.signatures, PROOF), timeouts(seen)
        if proof:
            return self.confirmed(*proof)
        ran_out = [
            from_error(error, 7.0)
            for error in (seen.crash.errors if seen.crash is not None else ())
            if "stopiteration" in error.kind.lower()
        ]
        told = tuple(one.exhibit for one in late[:2])
        if ran_out and late:
            return self.confirmed(*ran_out, *told)
        over, died = finished(seen), own_error(seen)
        if over or (died is not None and not late):
            return self.ruled_out(*over, *([died] if died is not None else []))
        if not late:
            return self.not_checked("crash", "log")
        place = _place(seen)
        streams = setting(seen, "streaming", 1.5) if seen.settings is not None and seen.settings.flag("streaming") else ()
        if place is not None and place.weight < 0 and not streams:
            return self.ruled_out(place, *told)
        if place is None and not streams:
            return self.not_checked("metrics", exhibits=told)
        return self.suspected(*([place] if place is not None else []), *streams, *told)


def _place(seen: Evidence) -> Exhibit | None:
    """Where in the epoch the last logged row stands; None where no epoch was logged."""
    epochs = series(seen, "epoch")
    if epochs is None or not np.isfinite(epochs.values[-1]) or epochs.values[-1] <= 0:
        return None
    last = float(epochs.values[-1])
    border = abs(last - round(last)) <= BORDER and round(last) >= 1
    return say(
        f"the last logged row is at epoch {last:.2f}",
        f"最后一条记录在 epoch {last:.2f}",
        3.0 if border else -3.0,
        where=epochs.where(-1),
    )
