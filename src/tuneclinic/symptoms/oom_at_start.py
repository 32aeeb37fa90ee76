"""No memory at load or in the first steps."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, CrashError, OutOfMemory
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._crash import ended_by, went_well
from tuneclinic.symptoms._examples import falling, run
from tuneclinic.symptoms._memory import happened_late, parts

_ERROR = CrashError(
    "torch.OutOfMemoryError",
    "CUDA out of memory. Tried to allocate 1.02 GiB.",
    "train.log:88",
    "train.log",
    phase="load",
    memory=OutOfMemory("cuda", asked=1.02, capacity=23.69, free=0.4),
)


class OomAtStart(Symptom):
    id = "oom-at-start"
    letter = "R"
    needs = ("crash", "log")
    search = (
        "CUDA out of memory at first step",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "OOM when loading the model",
        "out of memory as soon as training starts",
        "RuntimeError: CUDA out of memory even with batch size 1",
        "第一步就 OOM",
        "一启动就爆显存",
        "加载模型就显存不足",
        "runs out of memory immediately",
        "not enough GPU memory to start training",
        "HIP out of memory",
        "MPS backend out of memory",
        "刚开始训练就 OOM",
        "显存不够，跑不起来",
        "CUDA out of memory，batch size 1 也不行",
        "model is too large for my card",
        "模型太大，显存放不下",
    )

    en = SymptomCard(
        title="Out of memory at the start",
        seen="The GPU runs out of memory while the model loads, in the first forward or backward pass, or at the first optimizer step.",
        check="First nvidia-smi: is another process on the GPU? Then see where it failed. At load: the weights. In forward or backward: activations or logits. At the first optimizer.step(): the optimizer states. Add up parameters × bytes for your method before changing anything.",
        treatment="At load: 4-bit (QLoRA), bf16, or a smaller model. In forward or backward: batch size 1 with accumulation, gradient checkpointing, fused cross-entropy for a large vocabulary. At the optimizer: an 8-bit optimizer, LoRA, or sharding; a smaller batch does not help there.",
        prevention="Estimate before the start: bytes for weights, gradients and optimizer states, and tokens × vocabulary for the logits.",
    )
    zh = SymptomCard(
        title="一开始就 OOM",
        seen="加载模型、第一次前向/反向、或者第一次 optimizer.step 就爆显存。",
        check="先 nvidia-smi，卡上有没有别的进程。再看爆在哪：加载时是权重，前向/反向是激活或 logits，第一次 optimizer.step 是优化器状态。动手之前先按“参数量 × 字节数”算一遍。",
        treatment="加载就爆：4-bit（QLoRA）、bf16 或换小模型。单步爆：batch 设 1 加梯度累积，开 gradient_checkpointing，词表大的用融合交叉熵。优化器爆：8-bit 优化器、LoRA 或分片，这时减 batch 没用。",
        prevention="开训前先估显存：权重、梯度、优化器状态各多少，logits 是 token 数 × 词表。",
    )
    sick = Lazy(
        lambda: [
            Evidence(crash=Crash((_ERROR,))),
            run(loss=[2.1], every=1).merge(Evidence(crash=Crash((_ERROR,)))),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(80)).merge(
                Evidence(crash=Crash((CrashError("OutOfMemoryError", "CUDA out of memory.", "train.log:900"),)))
            ),
            Evidence(crash=Crash((CrashError("ValueError", "batch is empty", "train.log:9"),))),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        found = ended_by(seen, "memory")
        if found is None:
            clean = went_well(seen)
            return self.not_checked("crash", "log") if clean is None else self.absent(*clean)
        error, exhibit = found
        if happened_late(seen, error):
            return self.absent(exhibit)
        return self.shown(exhibit, *parts(error), first_step=error.step if error is not None else None)
