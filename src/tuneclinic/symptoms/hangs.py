"""No progress, a collective that timed out."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, CrashError, Log, LogLine
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._crash import ended_by, went_well

_WATCHDOG = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=512, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) "
    "ran for 600011 milliseconds before timing out."
)


class Hangs(Symptom):
    id = "hangs"
    letter = "R"
    needs = ("crash", "log")
    search = (
        "training hangs",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, Timeout(ms)=1800000)",
        "NCCL timeout on all ranks",
        "multi-gpu training stuck at 0%, GPU utilization 100%",
        "process freezes at the end of an epoch, no error",
        "训练卡住不动",
        "NCCL 超时",
        "多卡训练挂起，没有报错也不动",
        "stuck forever at a barrier",
        "deadlock after saving a checkpoint",
        "多卡卡住不走了",
        "程序没反应，进度条不动",
        "卡死，日志不再更新",
        "stuck at step 0, nothing happens",
        "停在第一步不动",
    )

    en = SymptomCard(
        title="The run hangs",
        seen="No more steps. GPU use is at 100 % or at 0. After 10 or 30 minutes the watchdog reports a collective that timed out.",
        check="Dump the stack of every rank (py-spy dump --pid PID). In which collective is each rank, and which rank is missing? The missing rank is busy alone (saving, evaluating, downloading), has run out of batches, or stopped earlier with its own error.",
        treatment="Let every rank take the same path: no collective inside `if rank == 0`, equal batch counts (dataloader_drop_last: true), every barrier reached by all ranks. A longer ddp_timeout helps only when one rank really is slow.",
        prevention="Run the distributed checklist automatically before training, and log the step number on every rank.",
    )
    zh = SymptomCard(
        title="卡死或集合通信超时",
        seen="步数不再前进，GPU 利用率顶在 100% 或者掉到 0，过 10 分钟或 30 分钟 watchdog 报集合通信超时。",
        check="对每个 rank 抓堆栈（py-spy dump --pid）：各自停在哪个 collective，缺的是哪个 rank？缺席的那个要么在单独干活（保存、评估、下载），要么 batch 已经跑完，要么早就报错退出了。",
        treatment="让所有 rank 走同样的路：`if rank == 0` 里不要有集合通信，各 rank 的 batch 数一致（dataloader_drop_last: true），barrier 每个 rank 都要走到。只有确实是某个 rank 慢，调大 ddp_timeout 才有用。",
        prevention="分布式检查清单做成开训前的自动检查，每个 rank 都打步数日志。",
    )
    sick = Lazy(
        lambda: [
            Evidence(crash=Crash((CrashError("RuntimeError", _WATCHDOG, "train.log:501", "train.log", rank=1),))),
            Evidence(log=Log((LogLine(_WATCHDOG, "train.log:501", "train.log"),), 800)),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (
                        CrashError("RuntimeError", _WATCHDOG, "train.log:501", "train.log", rank=1),
                        CrashError("ValueError", "image is truncated", "train.log:480", "train.log", rank=0),
                    )
                )
            ),
            Evidence(
                crash=Crash(
                    (CrashError("DistStoreError", "Timed out after 901 seconds waiting for clients. 1/2 clients joined."),)
                )
            ),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        found = ended_by(seen, "timeout")
        if found is not None:
            error, exhibit = found
            return self.shown(exhibit, first_step=error.step if error is not None else None)
        clean = went_well(seen)
        return self.not_checked("crash", "log") if clean is None else self.absent(*clean)
