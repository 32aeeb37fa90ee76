"""Rank 0 does something alone that all ranks must do together, or keeps the others waiting."""

from __future__ import annotations

from dataclasses import replace

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import Timeout, alone, finished, own_error, processes, timeouts
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.sections import Crash, CrashError

CERTAIN = "rank-zero-collective"
SLOW = "rank-zero-save-without-barrier"
BUSY = pattern(r"save|checkpoint|eval|generate|push_to_hub|upload|download|snapshot")
"""What a rank is at alone, by the functions on its stack."""


def _watchdog(rank: int, *frames: str) -> CrashError:
    text = f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000)"
    return CrashError("DistBackendError", text, f"rank{rank}.log:90", f"rank{rank}.log", rank=rank, frames=frames)


class RankZeroWorkUnguarded(Case):
    id = "rank-zero-work-unguarded"
    symptoms = {"multi-gpu-odd": 0.1, "hangs": 0.3}
    stage = "environment"
    needs = ("script", "crash", "log")
    probe = "environment"
    search = (
        "training hangs after saving checkpoint on rank 0",
        "NCCL timeout while rank 0 evaluates",
        "if rank == 0 barrier deadlock",
        "ZeRO-3 save_pretrained hangs",
        "rank 0 保存时其他卡超时",
        "只在 rank 0 上 evaluate 卡死",
        "if local_rank == 0 里调 barrier 死锁",
    )

    en = Card(
        title="Rank 0 works while the others wait",
        sign="The run stops moving at a save, an evaluation or the first load. After the timeout every rank except 0 reports a collective that not all ranks joined.",
        cause="A collective is inside `if rank == 0` (barrier, all_reduce, gather, state dict under ZeRO-3 or FSDP, DeepSpeed's save_checkpoint), so the other ranks never call it. Or rank 0 saves, evaluates or tokenises for longer than the timeout while the others already wait in the next all-reduce.",
        remedy="Take the collective out of the if: accelerator.get_state_dict(model), engine.save_checkpoint(dir) and trainer.save_model() are called on all ranks and write on one. After work that only rank 0 does, every rank calls dist.barrier() (accelerator.wait_for_everyone()). Long tokenising: `with accelerator.main_process_first():` (Trainer: `with training_args.main_process_first():`). If the wait cannot be avoided, set ddp_timeout: 7200 (Trainer, LLaMA-Factory, axolotl).",
        verify="Ten steps on two processes with save_steps=2 and eval_steps=2 run to the end.",
        prevention="Search the script for `if rank == 0` and check each block for collectives. Keep the ten-step run as a test.",
        question="Does it stop at a save or an evaluation, and what is inside `if rank == 0` there?",
        quiz="if accelerator.is_main_process: accelerator.wait_for_everyone(). What happens? Rank 0 waits forever: the other ranks never enter the if.",
    )
    zh = Card(
        title="rank 0 独自干活，其他 rank 在等",
        sign="在保存、评估或首次加载处卡住，超时后除 0 以外的 rank 都报集合通信超时。",
        cause="if rank == 0 里面有集合通信（barrier、all_reduce、gather、ZeRO-3/FSDP 下取 state dict、DeepSpeed 的 save_checkpoint），别的 rank 根本不会调；或者 rank 0 保存、评估、分词的时间超过了超时上限，别人早就在下一个 all-reduce 里等着。",
        remedy="把集合通信挪出 if：accelerator.get_state_dict(model)、engine.save_checkpoint(dir)、trainer.save_model() 要所有 rank 都调，由一个 rank 写盘。只让 rank 0 干的活，后面让每个 rank 都执行 dist.barrier()（accelerator.wait_for_everyone()）。分词时间长用 `with accelerator.main_process_first():`（Trainer 用 `with training_args.main_process_first():`）。实在避免不了就设 ddp_timeout: 7200（Trainer、LLaMA-Factory、axolotl 都有）。",
        verify="两个进程，save_steps=2、eval_steps=2，十步能跑完。",
        prevention="脚本里搜 if rank == 0，逐个看里面有没有集合通信；那十步测试留着。",
        question="是不是停在保存或评估？那里的 if rank == 0 里面写了什么？",
        quiz="if accelerator.is_main_process: accelerator.wait_for_everyone()，会怎样？rank 0 永远等下去，别的 rank 进不了这个 if。",
    )
    change = {"ddp_timeout": 7200}
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(CERTAIN, quote="dist.barrier()")),
            Evidence(
                script=make.scripted(SLOW, quote="model.save_pretrained(out)"),
                crash=Crash((_watchdog(1), _watchdog(0, "train.py:88 in save_checkpoint", "serialization.py:850 in save"))),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=(CERTAIN, SLOW)), crash=Crash((_watchdog(1), _watchdog(0)))),
            Evidence(  # a save without a barrier that no one had to wait for
                script=make.scripted(SLOW, quote="torch.save(state, path)"),
                metrics=replace(make.ran(loss=make.falling()), finished=True),
            ),
            Evidence(crash=make.crashed("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        certain, slow = facts(seen, CERTAIN, weight=8.0), facts(seen, SLOW, weight=2.0)
        late = timeouts(seen)
        told = tuple(one.exhibit for one in late[:2])
        if certain:
            return self.confirmed(*certain, *told)
        busy = (*_busy(seen), *_absent(seen, late))
        if late and slow and busy:
            return self.confirmed(*slow, *busy, *told)
        over, died = finished(seen), own_error(seen)
        if over or (died is not None and not late):
            return self.ruled_out(*over, *([died] if died is not None else []))
        against = clean(seen, CERTAIN)
        if against and not busy:
            return self.ruled_out(*against)
        if late and (slow or busy):
            return self.suspected(*slow, *busy, *told)
        return self.not_checked("script", exhibits=(*slow, *told))


def _busy(seen: Evidence) -> tuple[Exhibit, ...]:
    """A rank whose stack shows it saving, evaluating or downloading."""
    for error in seen.crash.errors if seen.crash is not None else ():
        frame = next((frame for frame in reversed(error.frames) if BUSY.search(frame.lower().rsplit(" in ", 1)[-1])), None)
        if error.phase in {"save", "evaluation"} or frame is not None:
            rank = "?" if error.rank is None else error.rank
            place = frame or error.phase
            return (say(f"rank {rank} was in: {place}", f"rank {rank} 当时在：{place}", 3.0, section="crash", where=error.where),)
    return ()


def _absent(seen: Evidence, late: tuple[Timeout, ...]) -> tuple[Exhibit, ...]:
    """Rank 0 missing among the ranks that timed out, where all others did."""
    ranks, count = {one.rank for one in late if one.rank is not None}, processes(seen)
    if 0 in ranks or len(ranks) < 1 or count is None or len(ranks) != count - 1:
        return ()
    return (
        say(
            f"all ranks except 0 timed out ({len(ranks)} of {count})",
            f"除 rank 0 外全部超时（{len(ranks)}/{count}）",
            3.0,
            section="crash",
        ),
    )
