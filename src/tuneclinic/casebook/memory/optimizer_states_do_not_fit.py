"""Gradients and optimizer states do not fit."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, Model


class OptimizerStatesDoNotFit(Case):
    id = "optimizer-states-do-not-fit"
    symptoms = {"oom-at-start": 0.2}
    stage = "environment"
    needs = ("crash",)
    probe = "memory"
    change = {"optimizer": "paged_adamw_8bit"}
    search = (
        "out of memory in optimizer.step",
        "OOM at the first optimizer step",
        "full fine-tuning OOM with batch size 1",
        "optimizer.step 爆显存",
        "全参微调显存不够",
        "优化器状态放不下",
    )

    en = Card(
        title="The optimizer states do not fit",
        sign="Forward and backward pass run, then memory runs out in optimizer.step() of the very first step. Batch size 1 and gradient checkpointing do not help.",
        cause="Adam allocates its two moments at the first step: 8 bytes per trainable parameter in fp32, besides the gradients. Full tuning therefore needs about 16 bytes per parameter (about 8 to 10 with everything in bf16), whatever the batch size. Activations are not the problem here.",
        remedy="LoRA or QLoRA (states for less than 1 % of the parameters); an 8-bit optimizer (optim: adamw_8bit or paged_adamw_8bit in Trainer and LLaMA-Factory, optimizer: adamw_8bit in axolotl; 2 bytes instead of 8); Adafactor; sharding over several GPUs (ZeRO-2/3, FSDP); or offload the optimizer to main memory.",
        verify="The second step runs, and max_memory_allocated stays flat after it: the states are allocated once.",
        prevention="Estimate 16 bytes per parameter for full tuning before the first run. If lengths are alike, what fits at step 2 also fits at step 2,000.",
        question="Does the traceback end in optimizer.step() (or adamw.py, _init_group) of the first step, and is it full tuning?",
        quiz="Full tuning runs out of memory at the first optimizer.step(). Does gradient checkpointing help? No: it saves activations, and they are already freed at that moment.",
    )
    zh = Card(
        title="优化器状态放不下",
        sign="前向、反向都过了，第一步 optimizer.step() 爆显存；batch size 改 1、开梯度检查点都没用。",
        cause="Adam 在第一次 step 时才分配两份动量：fp32 下每个可训练参数 8 字节，另外还有梯度。所以全参训练约 16 字节/参数（全 bf16 约 8～10 字节），与 batch 无关，问题不在激活值上。",
        remedy="改 LoRA/QLoRA（只有不到 1% 的参数需要状态）；用 8-bit 优化器（Trainer、LLaMA-Factory 设 optim: adamw_8bit 或 paged_adamw_8bit，axolotl 设 optimizer: adamw_8bit，8 字节变 2 字节）或 Adafactor；多卡分片（ZeRO-2/3、FSDP）；或把优化器卸载到内存。",
        verify="第二步能跑过去，之后 max_memory_allocated 保持不变：状态只分配一次。",
        prevention="全参训练开跑前按 16 字节/参数估算。样本长度差不多的话，第 2 步能跑，第 2000 步也能跑。",
        question="报错堆栈是不是停在第一步的 optimizer.step()（或 adamw.py 的 _init_group）？是全参训练吗？",
        quiz="全参训练第一次 optimizer.step() 就爆显存，开梯度检查点有用吗？没用：它省的是激活值，而那时激活值早就释放了。",
    )
    sick = Lazy(
        lambda: [
            facts.failing(
                phase="optimizer", frames=("adamw.py:190 in _init_group",), asked=0.11, capacity=79.2, free=0.06, allocated=78.4
            ),
            Evidence(
                model=Model(parameters=7.6e9, hidden=3584, layers=28, vocabulary=152064, dtype="bfloat16"),
                settings=facts.set_to(method="full", bf16=True, batch_per_device=1, max_length=512),
                crash=Crash((facts.crash_example(phase="optimizer", asked=0.26, capacity=79.2, free=0.2, allocated=78.0),)),
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            facts.at_load(),
            facts.after_steps(),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = facts.card_error(seen)
        if branch is None:
            return self.not_checked("crash")
        size = facts.part(seen, "optimizer", branch.memory.capacity)
        at_step = facts.phase_is(branch, "optimizer", weight=6.0)
        if at_step and branch.early:
            return self.confirmed(at_step, *(x for x in (size,) if x), facts.told(branch))
        if not branch.early:
            return self.ruled_out(
                facts.said("steps had run before: the states were already there", "之前已经跑过若干步，优化器状态早已分配", -6.0)
            )
        if branch.phase in {"load", "evaluation", "data"}:
            return self.ruled_out(
                facts.said(
                    f"it failed during {branch.phase}, before any state existed",
                    f"在{facts.PHASES_ZH[branch.phase]}阶段出错，还没有优化器状态",
                    -5.0,
                )
            )
        overfull = facts.overfull(seen, branch.memory.capacity)
        if overfull is not None:
            return self.confirmed(overfull, facts.told(branch))
        if size is not None and size.weight >= 1.5:
            return self.suspected(size, facts.told(branch))
        return self.not_checked("model", "settings", exhibits=tuple(x for x in (size,) if x))
