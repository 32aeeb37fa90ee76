"""Gradient checkpointing is on although the card has room."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import finite, say, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Environment

IDLE = 0.15
"""Share of the card at the peak up to which checkpointing is needless for sure: were all of the peak activations, and grew they
five times without it (a block keeps about five tensors of its width where checkpointing keeps one), it would still fit."""
ROOMY = 0.5
"""Share up to which it is worth a try without it."""
POINTS = 5
"""Rows of memory from which the peak is known: the first steps reach it."""


class CheckpointingNeedless(Case):
    id = "checkpointing-needless"
    symptoms = {"slow": 0.1}
    stage = "environment"
    needs = ("settings", "metrics", "environment")
    probe = "memory"
    search = (
        "gradient checkpointing slows training memory is free",
        "turn off gradient_checkpointing to speed up",
        "GPU memory mostly unused but training slow",
        "显存还剩很多 要不要关 gradient checkpointing",
        "梯度检查点拖慢训练",
        "activation checkpointing 没必要开",
    )

    en = Card(
        title="Gradient checkpointing without need",
        sign="The speed is a quarter to a third below what the card can do, and most of its memory is empty.",
        cause="Checkpointing throws activations away and computes the forward pass a second time: about 30 % more time for several times less activation memory. It is often on by default (LLaMA-Factory, ms-swift, TRL's SFTConfig) and is not needed here.",
        remedy="gradient_checkpointing: false in TRL, ms-swift and axolotl; disable_gradient_checkpointing: true in LLaMA-Factory. If that just does not fit, use a smaller batch with more accumulation, which is usually still faster; or keep checkpointing and double the batch.",
        verify="On the longest batch the peak stays below 90 % of the card's memory, and tokens per second rise by about a third.",
        prevention="Log peak memory and tokens per second, and decide on checkpointing by the peak.",
        question="How much of the card's memory is used at the peak, and is gradient_checkpointing on?",
        quiz="Peak 14 of 80 GB with checkpointing. A larger batch, or checkpointing off? Off first: it saves work. A larger batch only fills the card.",
    )
    zh = Card(
        title="没必要开的梯度检查点",
        sign="速度比这张卡该有的低 25%～33%，显存却大半空着。",
        cause="梯度检查点把激活丢掉、反向时再算一遍前向：多花约 30% 的时间，激活显存降到几分之一。它往往是默认就开的（LLaMA-Factory、ms-swift、TRL 的 SFTConfig），这里并不需要。",
        remedy="TRL、ms-swift、axolotl 写 gradient_checkpointing: false，LLaMA-Factory 写 disable_gradient_checkpointing: true。差一点放不下，就减 batch、加梯度累积，通常仍然更快；或者保留它，把 batch 翻倍。",
        verify="最长的 batch 上峰值不超过显存的 90%，tokens/s 提高三成左右。",
        prevention="日志里打显存峰值和 tokens/s；开不开检查点看峰值，不看默认值。",
        question="显存峰值占整张卡多少？gradient_checkpointing 开着吗？",
        quiz="开着检查点，80 GB 的卡峰值 14 GB，是加大 batch 还是关检查点？先关：关掉省的是计算量，加大 batch 只是把卡填满。",
    )
    change = {"gradient_checkpointing": False}
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(gradient_checkpointing=True, batch_per_device=1),
                environment=Environment(gpus=("NVIDIA A100-SXM4-80GB",), gpu_memory=79.2),
                metrics=make.ran(loss=make.falling(60), memory_gib=[9.8] * 60),
            ),
            Evidence(
                settings=make.configured("llama-factory", gradient_checkpointing=True),
                environment=Environment(gpus=("NVIDIA H100",), gpu_memory=79.6),
                metrics=make.ran(loss=make.falling(60), memory_gib=[8.0, 11.5] * 30),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # as little memory, and it is off
                settings=make.configured(gradient_checkpointing=False),
                environment=Environment(gpus=("NVIDIA A100-SXM4-80GB",), gpu_memory=79.2),
                metrics=make.ran(loss=make.falling(60), memory_gib=[9.8] * 60),
            ),
            Evidence(  # on, and the card is nearly full
                settings=make.configured(gradient_checkpointing=True),
                environment=Environment(gpus=("Tesla T4",), gpu_memory=14.7),
                metrics=make.ran(loss=make.falling(60), memory_gib=[12.1] * 60),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        on = seen.settings.flag("gradient_checkpointing") if seen.settings is not None else None
        if on is False:
            return self.ruled_out(*setting(seen, "gradient_checkpointing", -9.0))
        held = finite(seen, "memory_gib")
        room = seen.environment.gpu_memory if seen.environment is not None else None
        if not on or len(held) < POINTS or not room or room <= 0:
            return self.not_checked("settings", "metrics", "environment", exhibits=setting(seen, "gradient_checkpointing"))
        share = float(held.max()) / room
        weight = 7.0 if share <= IDLE else 2.0 if share <= ROOMY else -6.0
        peak = say(
            f"the peak is {float(held.max()):.1f} of {room:.1f} GiB ({share:.0%} of the card)",
            f"显存峰值 {float(held.max()):.1f} GiB，卡共 {room:.1f} GiB（{share:.0%}）",
            weight,
        )
        exhibits = (*setting(seen, "gradient_checkpointing"), peak)
        if share <= IDLE:
            return self.confirmed(*exhibits)
        return self.suspected(*exhibits) if share <= ROOMY else self.ruled_out(*exhibits)
