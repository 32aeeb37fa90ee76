"""The activations of a batch do not fit."""

from typing import Any

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.casebook.memory.logits_do_not_fit import LOSS_FRAMES
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, from_setting
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, Model

OVERFULL = (
    "weights, gradients and states alone are more than the card holds: the batch is not what is too large",
    "光权重、梯度和优化器状态就超过这张卡的显存：不是 batch 的问题",
)


class ActivationsDoNotFit(Case):
    id = "activations-do-not-fit"
    symptoms = {"oom-at-start": 0.25}
    stage = "environment"
    needs = ("crash",)
    probe = "memory"
    change = {"gradient_checkpointing": True}
    search = (
        "OOM in the first backward",
        "out of memory with batch size 8 but not with 1",
        "activation memory too large",
        "第一次反向就爆显存",
        "batch size 大一点就 OOM",
        "激活值占满显存",
    )

    en = Card(
        title="The activations do not fit",
        sign="The model loads, and memory runs out in a layer's forward pass or in the backward pass of the first step. A smaller batch or shorter rows run.",
        cause="Without gradient checkpointing every layer keeps its activations until the backward pass: in 16 bit about 34 bytes per token, layer and hidden unit, plus a term with length² for eager attention. Batch × length decides, not only the number of parameters.",
        remedy="In this order, cheapest first. Gradient checkpointing (about a third more time): gradient_checkpointing: true in Trainer and axolotl; LLaMA-Factory has it on unless disable_gradient_checkpointing: true. Flash or SDPA attention instead of eager. Half the batch per device (micro_batch_size in axolotl) with twice the accumulation. A shorter maximum length. Then sequence parallelism or a larger GPU.",
        verify="The first step runs, and on the longest batch max_memory_allocated leaves 10 % of the GPU free.",
        prevention="Run the longest batch first: if it fits, all others fit. Before the start, estimate tokens × layers × hidden size × 34 bytes.",
        question="Does batch size 1 run, and is gradient checkpointing on?",
        quiz="Batch 1 runs, batch 4 fails in the backward pass. Which part of the memory grew? Activations and logits. Weights and optimizer states do not depend on the batch size.",
    )
    zh = Card(
        title="激活值放不下",
        sign="模型能加载，第一步的某层前向或反向爆显存；batch 小一点或样本短一点就能跑。",
        cause="不开梯度检查点时，每一层的激活都要留到反向：16 位下大约每 token、每层、每个隐藏单元 34 字节，eager attention 还要再加长度平方项。决定因素是 batch × 长度，不只是参数量。",
        remedy="按代价从小到大：开梯度检查点（慢三成左右），Trainer 和 axolotl 是 gradient_checkpointing: true，LLaMA-Factory 默认开着（别设 disable_gradient_checkpointing: true）；attention 从 eager 换成 flash 或 SDPA；每卡 batch 减半（axolotl 是 micro_batch_size）、梯度累积翻倍；缩短最大长度；再不行就序列并行或换大卡。",
        verify="第一步能跑过，最长的 batch 上按 max_memory_allocated 算还留有 10% 显存。",
        prevention="先拿最长的 batch 试：它能过，其他都能过。开跑前按 token 数 × 层数 × 隐藏维 × 34 字节估算。",
        question="batch size 设 1 能跑吗？梯度检查点开了没有？",
        quiz="batch 1 能跑，batch 4 反向爆显存，是哪部分变大了？激活值和 logits；权重和优化器状态与 batch size 无关。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                model=Model(parameters=7.6e9, hidden=3584, layers=28, heads=28, vocabulary=152064, dtype="bfloat16"),
                settings=facts.set_to(method="lora", bf16=True, batch_per_device=4, max_length=4096, liger=True),
                crash=Crash((facts.crash_example(phase="backward", asked=1.4, capacity=79.2, free=0.6, allocated=77.0),)),
            ),
            Evidence(
                settings=facts.set_to(method="lora", batch_per_device=16, max_length=2048, gradient_checkpointing=False),
                crash=Crash(
                    (
                        facts.crash_example(
                            phase="forward",
                            frames=("modeling_qwen2.py:240 in forward",),
                            asked=0.9,
                            capacity=23.6,
                            free=0.4,
                            allocated=22.0,
                        ),
                    )
                ),
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            facts.at_optimizer(),
            facts.after_steps(),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = facts.card_error(seen)
        if branch is None:
            return self.not_checked("crash")
        if branch.phase in {"load", "optimizer", "evaluation", "data", "save"}:
            return self.ruled_out(
                facts.said(
                    f"it failed during {branch.phase}",
                    f"出错阶段是{facts.PHASES_ZH[branch.phase]}",
                    -6.0,
                    where=branch.error.where,
                )
            )
        if not branch.early:
            return self.ruled_out(
                facts.said(
                    "steps had run before: a usual batch fits",
                    "之前已经跑过若干步，普通 batch 放得下",
                    -4.0,
                    where=branch.error.where,
                )
            )
        overfull = facts.overfull(seen, branch.memory.capacity)
        if overfull is not None:
            return self.not_checked("model", exhibits=(facts.said(*OVERFULL, -4.0, "model"),))
        if facts.frames_with(branch, *LOSS_FRAMES):
            return self.ruled_out(
                facts.said(
                    "the stack ends in the loss, not in a layer",
                    "堆栈停在 loss 计算处，而不是某一层",
                    -4.0,
                    where=branch.error.where,
                )
            )
        exhibits = [
            x
            for x in (
                facts.phase_is(branch, "forward", "backward", weight=3.0),
                facts.part(seen, "activations", branch.memory.capacity),
            )
            if x
        ]
        off = (
            seen.settings.values.get("gradient_checkpointing")
            if seen.settings and seen.settings.flag("gradient_checkpointing") is False
            else None
        )
        if off is not None:
            exhibits.append(from_setting(off, 2.0))
        proven = (
            bool(exhibits)
            and exhibits[0].weight >= 3
            and (off is not None or any(exhibit.weight >= 1.5 for exhibit in exhibits[1:]))
        )
        if proven:
            return self.confirmed(*exhibits, facts.told(branch), change=_cheapest(seen))
        if sum(exhibit.weight for exhibit in exhibits) > 0:
            return self.suspected(*exhibits, facts.told(branch), change=_cheapest(seen), missing=("settings", "model"))
        return self.not_checked("model", "settings", exhibits=tuple(exhibits))


def _cheapest(seen: Evidence) -> dict[str, Any]:
    """Checkpointing where it is off; else half the batch with twice the accumulation; else half the length."""
    settings = seen.settings
    if settings is None or not settings.flag("gradient_checkpointing"):
        return {"gradient_checkpointing": True}
    batch = int(settings.number("batch_per_device") or 1)
    if batch > 1:
        return {"batch_per_device": batch // 2, "accumulation": int(settings.number("accumulation") or 1) * 2}
    length = settings.number("max_length")
    return {"max_length": int(length) // 2} if length else {}
