"""The weights alone do not fit on the card."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, Model


class WeightsDoNotFit(Case):
    id = "weights-do-not-fit"
    symptoms = {"oom-at-start": 0.3}
    stage = "environment"
    needs = ("crash",)
    probe = "memory"
    change = {"load_in_4bit": True}
    search = (
        "out of memory while loading the model",
        "OOM in from_pretrained",
        "CUDA out of memory at model load",
        "加载模型就爆显存",
        "加载权重时 OOM",
        "from_pretrained 显存不足",
    )

    en = Card(
        title="The weights do not fit on the GPU",
        sign="Out of memory while the model is loaded or moved to the GPU, before the first batch. Batch size and length change nothing.",
        cause="Parameters × bytes is more than the free memory: 2 bytes per parameter in bf16, 4 in fp32. from_pretrained without a dtype loads the checkpoint's own type in new versions of transformers (5 and later) and fp32 in old ones, which doubles the size.",
        remedy='Load in bf16 first (dtype="bfloat16", torch_dtype in older versions). If that does not fit: 4-bit QLoRA, about 0.6 bytes per parameter (load_in_4bit=True in BitsAndBytesConfig, quantization_bit: 4 in LLaMA-Factory, load_in_4bit: true and adapter: qlora in axolotl), a smaller model, or sharded weights (ZeRO-3, FSDP full shard). With ZeRO-3 the config must be active before from_pretrained, otherwise every rank loads the full model.',
        verify="After loading, nvidia-smi shows parameters × bytes, with room left for the training step.",
        prevention="Multiply before you start: billions of parameters × 2 gives the gigabytes in bf16. Full tuning with Adam needs about 16 bytes per parameter instead of 2.",
        question='Does it fail in from_pretrained or .to("cuda"), before the first batch? How many parameters does the model have, and how much memory does the GPU have?',
        quiz="A 14B model on a 24 GB GPU runs out of memory while loading in bf16. Does batch size 1 help? No: 14 × 2 = 28 GB of weights do not fit before any batch.",
    )
    zh = Card(
        title="光权重就放不下",
        sign="还没喂一个 batch，加载模型或搬到显卡时就爆显存；调 batch size 和长度都没用。",
        cause="参数量 × 字节数超过可用显存：bf16 每个参数 2 字节，fp32 是 4 字节。from_pretrained 不写 dtype 时，新版 transformers（5 起）按 checkpoint 自身精度加载，老版本默认 fp32，直接翻倍。",
        remedy='先用 bf16 加载（dtype="bfloat16"，老版本叫 torch_dtype）。还放不下就上 4-bit QLoRA，约 0.6 字节/参数（BitsAndBytesConfig 的 load_in_4bit=True，LLaMA-Factory 设 quantization_bit: 4，axolotl 设 load_in_4bit: true 加 adapter: qlora）、换小模型，或权重分片（ZeRO-3、FSDP full shard）。用 ZeRO-3 要在 from_pretrained 之前就让配置生效，否则每张卡都会完整加载一份。',
        verify="加载完看 nvidia-smi：占用约等于参数量 × 字节数，并且留有训练一步的余量。",
        prevention="开跑前先乘一下：参数量（B）× 2 就是 bf16 的 GB 数；全参 Adam 训练不是 2 字节/参数，而是约 16 字节/参数。",
        question='是在 from_pretrained 或 .to("cuda") 时报错、第一个 batch 之前吗？模型多少参数，显卡多大？',
        quiz="14B 模型在 24 GB 卡上用 bf16 加载就 OOM，batch size 改成 1 有用吗？没用：权重本身就要 28 GB。",
    )
    sick = Lazy(
        lambda: [
            facts.failing(
                phase="load",
                frames=("modeling_utils.py:4000 in from_pretrained",),
                asked=0.21,
                capacity=23.6,
                free=0.1,
                allocated=23.2,
            ),
            Evidence(
                model=Model(parameters=14.8e9, hidden=5120, layers=48, vocabulary=152064, dtype="bfloat16"),
                settings=facts.set_to(method="lora", dtype="bfloat16"),
                crash=Crash((facts.crash_example(phase="load", asked=0.14, capacity=23.6, free=0.05, allocated=23.3),)),
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
        size = facts.part(seen, "weights", branch.memory.capacity)
        if branch.phase == "load":
            other = branch.memory.other_processes or 0.0
            at_load = facts.phase_is(branch, "load", weight=6.0)
            if other > facts.OTHER_SHARE * (branch.memory.capacity or 1e9):
                return self.suspected(*(x for x in (at_load, size) if x), facts.told(branch), missing=("model",))
            return self.confirmed(*(x for x in (at_load, size) if x), facts.told(branch))
        if not branch.early or branch.phase in {"optimizer", "evaluation", "backward", "forward", "save"}:
            went = facts.said(
                f"the model was loaded: it failed later, during {branch.phase or 'training'}",
                f"模型已经加载成功，是之后在{facts.PHASES_ZH.get(branch.phase, '训练')}阶段出错",
                -6.0,
                where=branch.error.where,
            )
            return self.ruled_out(went)
        if size is not None and size.weight >= 3:
            return self.suspected(size, facts.told(branch))
        return self.not_checked("model", exhibits=tuple(x for x in (size,) if x))
