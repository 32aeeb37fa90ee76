"""The logits of a batch do not fit."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, Model

LOSS_FRAMES = ("cross_entropy", "loss_utils", "lm_head", "ForCausalLMLoss", "logits", "log_softmax", "selective_log_softmax")
COPIES = (2.0, 4.0)
"""Bytes of one logit in the copies that a loss makes: 16-bit output and its fp32 cast."""
NEAR = 0.12
"""Relative distance at which the size asked for is the size of one copy of the logits: padding to the longest row moves it by some percent."""


class LogitsDoNotFit(Case):
    id = "logits-do-not-fit"
    symptoms = {"oom-at-start": 0.13, "oom-late": 0.05}
    stage = "environment"
    needs = ("crash",)
    probe = "memory"
    change = {"liger": True}
    search = (
        "OOM in cross_entropy",
        "out of memory logits.float()",
        "tried to allocate many GiB at lm_head",
        "计算 loss 时爆显存",
        "logits 太大 OOM",
        "大词表 交叉熵 显存",
    )

    en = Card(
        title="The logits do not fit",
        sign="Out of memory in the loss: the traceback ends at lm_head, logits.float() or cross_entropy, and one allocation asks for several GiB. LoRA or QLoRA makes no difference.",
        cause="Logits are tokens × vocabulary: 8 × 4,096 tokens with a vocabulary of 152k are 10 GB in bf16, and the loss adds an fp32 copy and its gradient. It happens when a large vocabulary meets long batches; adapters and quantised weights do not help.",
        remedy="Use a fused or chunked cross-entropy that never builds the full matrix: use_liger_kernel=True (Trainer, TRL), enable_liger_kernel: true (LLaMA-Factory), in axolotl the liger plugin with liger_fused_linear_cross_entropy: true, or the cut_cross_entropy plugin. Otherwise halve the batch per device and double the accumulation, or shorten the longest samples.",
        verify="The same batch passes, and the peak falls by about tokens × vocabulary × 10 bytes.",
        prevention="Before the start compute batch × length × vocabulary × 10 bytes. If it is above a tenth of the GPU, use the fused loss.",
        question="Which line does the traceback end at, and how many GiB did it ask for at once?",
        quiz="A QLoRA run of a 3B model fails at logits.float() and asks for 9.3 GiB. Would a lower rank help? No: the logits are tokens × vocabulary, and rank does not appear there.",
    )
    zh = Card(
        title="logits 放不下",
        sign="算 loss 时爆显存：堆栈停在 lm_head、logits.float() 或 cross_entropy，一次就要申请好几 GiB；换 LoRA、QLoRA 也一样。",
        cause="logits 的大小是 token 数 × 词表：8×4096 个 token 配 15.2 万词表，bf16 就有 10 GB，loss 还要再加一份 fp32 拷贝和它的梯度。大词表遇上长 batch 就会撞上，与 adapter、权重量化无关。",
        remedy="用融合或分块的交叉熵，不生成完整矩阵：Trainer、TRL 设 use_liger_kernel=True，LLaMA-Factory 设 enable_liger_kernel: true，axolotl 用 liger 插件加 liger_fused_linear_cross_entropy: true，或 cut_cross_entropy 插件。否则把每卡 batch 减半、梯度累积翻倍，或截短最长的样本。",
        verify="同一个 batch 能过，峰值显存大约下降 token 数 × 词表 × 10 字节。",
        prevention="开跑前算一下 batch × 长度 × 词表 × 10 字节，超过显存的十分之一就用融合 loss。",
        question="堆栈停在哪一行？一次申请了多少 GiB？",
        quiz="3B 模型 QLoRA 在 logits.float() 处申请 9.3 GiB 失败，降 rank 有用吗？没用：logits 是 token 数 × 词表，跟 rank 无关。",
    )
    sick = Lazy(
        lambda: [
            facts.failing(
                phase="forward",
                frames=("loss_utils.py:36 in ForCausalLMLoss", "functional.py:3400 in cross_entropy"),
                asked=9.28,
                capacity=23.6,
                free=5.1,
                allocated=14.0,
            ),
            Evidence(
                model=Model(parameters=3.1e9, hidden=2048, layers=36, vocabulary=151936, dtype="bfloat16"),
                settings=facts.set_to(method="lora", batch_per_device=4, max_length=4096, gradient_checkpointing=True),
                crash=Crash((facts.crash_example(phase="forward", asked=9.27, capacity=23.6, free=6.0, allocated=14.0),)),
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            facts.at_optimizer(),
            facts.at_load(),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = facts.card_error(seen)
        if branch is None:
            return self.not_checked("crash")
        if branch.phase in {"load", "optimizer", "data", "save"}:
            return self.ruled_out(
                facts.said(
                    f"it failed during {branch.phase}, where no logits are",
                    f"在{facts.PHASES_ZH[branch.phase]}阶段出错，那里没有 logits",
                    -6.0,
                )
            )
        frame = facts.frames_with(branch, *LOSS_FRAMES)
        exhibits = [x for x in (_asked_is_logits(seen, branch), facts.part(seen, "logits", branch.memory.capacity)) if x]
        if frame and branch.phase != "evaluation":
            return self.confirmed(
                facts.said(
                    f"the stack ends in the loss: {frame}", f"堆栈停在 loss 计算处：{frame}", 5.0, where=branch.error.where
                ),
                *exhibits,
                facts.told(branch),
            )
        if any(exhibit.weight >= 5 for exhibit in exhibits):
            return self.confirmed(*exhibits, facts.told(branch))
        if sum(exhibit.weight for exhibit in exhibits) > 0:
            return self.suspected(*exhibits, facts.told(branch))
        return self.not_checked("model", "settings", exhibits=tuple(exhibits))


def _asked_is_logits(seen: Evidence, branch: facts.Branch) -> Exhibit | None:
    """The size asked for, where it is one copy of the batch's logits: tokens × vocabulary × 2 or 4 bytes."""
    settings, vocabulary = seen.settings, seen.model.vocabulary if seen.model else None
    asked = branch.memory.asked
    if not (settings and vocabulary and asked):
        return None
    tokens = (settings.number("batch_per_device") or 0.0) * (settings.number("max_length") or 0.0)
    for size in COPIES:
        gib = tokens * vocabulary * size / 2**30
        if gib and abs(asked - gib) <= NEAR * gib:
            return facts.said(
                f"{asked:.2f} GiB were asked for at once: {tokens:,.0f} tokens × {vocabulary:,} entries × {size:.0f} bytes are {gib:.2f} GiB",
                f"一次申请 {asked:.2f} GiB，恰好是 {tokens:,.0f} 个 token × {vocabulary:,} 词表 × {size:.0f} 字节 = {gib:.2f} GiB",
                6.0,
                where=branch.error.where,
            )
    return None
