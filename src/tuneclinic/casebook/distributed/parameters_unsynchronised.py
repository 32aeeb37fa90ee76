"""Some parameters are used on some ranks only, or differ between ranks."""

from __future__ import annotations

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import Timeout, alone, finished, own_error, timeouts
from tuneclinic.casebook.environment._facts import named
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, lines, number, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Crash, CrashError, Model

ALL_USED = (r"did not find any unused parameters in the forward pass",)


def _late(rank: int, sequence: int, operation: str) -> CrashError:
    text = f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, OpType={operation}, Timeout(ms)=1800000)"
    return CrashError("DistBackendError", text, f"rank{rank}.log:70", f"rank{rank}.log", rank=rank)


class ParametersUnsynchronised(Case):
    id = "parameters-unsynchronised"
    symptoms = {"multi-gpu-odd": 0.09, "hangs": 0.15}
    stage = "environment"
    needs = ("crash", "log", "model", "settings")
    probe = "environment"
    signatures = (
        r"expected to have finished reduction in the prior iteration",
        r"parameters that were not used in producing (the )?loss",
        r"parameter indices which did not receive grad for rank",
        r"expects same model across all ranks",
        r"params? .{0,60}(inconsistent|different) .{0,40}across (ranks|processes)",
        r"appears not to match (sizes|strides) of the same param in process 0",
    )
    search = (
        "Expected to have finished reduction in the prior iteration before starting a new one",
        "find_unused_parameters=True DDP",
        "Parameter indices which did not receive grad for rank",
        "ZeRO-3 hangs with mixed image and text batches",
        "DDP 有参数没用到 报错",
        "图文混合数据 ZeRO-3 卡住",
        "MoE 多卡训练挂起",
    )

    en = Card(
        title="A parameter is used on some ranks only",
        sign="DDP stops with 'Expected to have finished reduction', or the run hangs on mixed batches: one rank has images (or uses other experts), another has not, and each waits in a different collective.",
        cause="DDP and ZeRO-3 reduce or gather each parameter on all ranks together. If one rank skips a branch (no image in the batch, an expert without tokens, a conditional head), the others wait for it. If it does not hang, the copies slowly drift apart.",
        remedy="Let every rank use every parameter: if a batch has no image, feed a dummy image and add 0.0 * features.sum() to the loss, or group batches by modality. For heads that are never used, call requires_grad_(False) before wrapping. As a quick fix set ddp_find_unused_parameters: true (it walks the graph in every step). MoE under ZeRO-3: deepspeed.utils.set_z3_leaf_modules(model, [YourMoEBlock]).",
        verify="Ten steps with a text-only batch on rank 0 and images on rank 1 run through, and each parameter has the same norm on both ranks.",
        prevention="Keep a two-process test that gives each rank a different kind of batch.",
        question="Does the forward pass have branches that depend on the batch (images, experts, tasks)? With TORCH_DISTRIBUTED_DEBUG=DETAIL, which parameter is named?",
        quiz="A VLM under ZeRO-3 hangs as soon as text-only rows are mixed in. Why? The rank without images never gathers the vision tower's weights, and the others wait for it.",
    )
    zh = Card(
        title="有的参数只在部分 rank 上用到",
        sign="DDP 报 Expected to have finished reduction，或者混合数据时卡住：一个 rank 有图（或走了别的专家），另一个没有，各等各的集合通信。",
        cause="DDP 和 ZeRO-3 的每个参数都要所有 rank 一起 reduce 或 gather。某个 rank 跳过的分支（这个 batch 没有图、某个专家没分到 token、条件分支里的头）会让别人一直等；就算不卡死，各卡的参数也会慢慢不一致。",
        remedy="让每个 rank 都用到每个参数：没有图就喂一张假图，再给 loss 加 0.0 * features.sum()；或者按模态分组组 batch。永远用不到的头，包装之前 requires_grad_(False)。应急设 ddp_find_unused_parameters: true（每步多遍历一次图）。MoE + ZeRO-3：deepspeed.utils.set_z3_leaf_modules(model, [YourMoEBlock])。",
        verify="rank 0 喂纯文本、rank 1 喂带图的 batch，十步能过，且每个参数在两个 rank 上范数一致。",
        prevention="留一个双进程测试：不同 rank 喂不同类型的 batch。",
        question="前向里有没有跟 batch 内容走的分支（图片、专家、任务）？TORCH_DISTRIBUTED_DEBUG=DETAIL 点名了哪个参数？",
        quiz="VLM 用 ZeRO-3，一混入纯文本数据就卡，为什么？没有图的 rank 不会去 gather 视觉塔的权重，其他 rank 一直等它。",
    )
    change = {"find_unused_parameters": True}
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed(
                    "RuntimeError",
                    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.",
                )
            ),
            Evidence(
                crash=Crash((_late(0, 3645, "_ALLGATHER_BASE"), _late(1, 3647, "_REDUCE_SCATTER_BASE"))),
                model=Model(vision=True),
                settings=make.configured(zero_stage=3),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the switch is on and found nothing
                log=make.logged(
                    "UserWarning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass."
                )
            ),
            Evidence(crash=Crash((_late(1, 812, "ALLREDUCE"), _late(2, 812, "ALLREDUCE"))), model=Model(vision=False)),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        proof = named(seen, self.signatures, PROOF)
        if proof:
            return self.confirmed(*proof)
        used = lines(seen, *ALL_USED, weight=-6.0)
        late, over, died = timeouts(seen), finished(seen), own_error(seen)
        if used or over or (died is not None and not late):
            return self.ruled_out(*used, *over, *([died] if died is not None else []))
        apart, branches = _apart(late), _branches(seen)
        if apart is not None and apart.weight < 0:
            return self.ruled_out(apart)
        if apart is not None and branches:
            return self.confirmed(apart, *branches)
        if apart is not None:
            return self.suspected(apart, *(one.exhibit for one in late[:2]))
        if late and branches:
            return self.suspected(*branches, *(one.exhibit for one in late[:2]))
        return self.not_checked("crash", "log")


def _apart(late: tuple[Timeout, ...]) -> Exhibit | None:
    """Whether ranks timed out in different collectives; None with fewer than two that name theirs."""
    told = [one for one in late if one.operation]
    if len(told) < 2:
        return None
    first, other = told[0], next((one for one in told if one.operation != told[0].operation), told[1])
    differ = first.operation != other.operation
    text = (
        f"rank {first.rank} waits in {first.operation} {first.sequence}, rank {other.rank} in {other.operation} {other.sequence}"
    )
    text_zh = (
        f"rank {first.rank} 等在 {first.operation} {first.sequence}，rank {other.rank} 等在 {other.operation} {other.sequence}"
    )
    return say(
        text,
        text_zh,
        5.0 if differ else -2.5,
        section="crash",
        where=first.exhibit.where if isinstance(first.exhibit.where, str) else "",
    )


def _branches(seen: Evidence) -> tuple[Exhibit, ...]:
    """What makes the forward pass differ between ranks: pictures or experts, under a strategy that gathers module by module."""
    model = seen.model
    if model is None or number(seen, "zero_stage") != 3:
        return ()
    if model.vision:
        return (say("a vision model under ZeRO-3", "视觉模型 + ZeRO-3", 1.5, section="model"),)
    if model.experts:
        return (say(f"{model.experts} experts under ZeRO-3", f"{model.experts} 个专家 + ZeRO-3", 1.5, section="model"),)
    return ()
