"""The learning rate is too low."""

import math

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrast_exhibit, contrasts, fell
from tuneclinic.casebook.learning._facts import as_number, conclude, falls, finite, flat, say, shape_of
from tuneclinic.casebook.learning._training import NO_RATE, learning_rate, rate_exhibit, usual_rate
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

IN_VAIN = -5.0
"""Bits against, for each sibling run at a higher rate whose loss did not fall either: the learning rate is not the cause."""
FAR_BELOW = 100.0
"""Times under the 10th percentile of the method's usual rates from which a flat loss with live gradients needs no other cause."""


class LearningRateTooLow(Case):
    id = "lr-too-low"
    symptoms = {"loss-at-uniform": 0.07, "loss-not-falling": 0.25}
    stage = "hyperparameters"
    needs = ("metrics", "attempts")
    probe = "range-test"
    change = {"learning_rate": 2e-4}
    search = (
        "learning rate too low for LoRA",
        "loss barely moves with 1e-6",
        "lr 2e-6 LoRA loss flat",
        "学习率太小",
        "LoRA 学习率 1e-5 loss 不降",
    )

    en = Card(
        title="The learning rate is too low",
        sign="The loss is flat with ordinary noise, gradient norms look healthy, and the log shows no fault. After thousands of steps the model answers as before.",
        cause="The updates are too small to learn from, or even too small for bf16 weights to store. The classic case is a learning rate for full tuning (1e-5 and below) in a LoRA run: LoRA needs about ten times as much.",
        remedy="First decode three training rows: if the labels are wrong, no learning rate helps. Then multiply learning_rate by 10: 1e-4 to 2e-4 for LoRA, 1e-5 to 2e-5 for full tuning.",
        verify="Within 50 steps after warm-up the smoothed loss leaves its noise band downwards, and ten samples are memorised below 0.1.",
        prevention="Write the method next to the rate in every recipe. Start new set-ups with a range test, which shows the lowest rate that moves the loss.",
        question="What is the learning rate in the log (not in the config), and do you train LoRA or all weights?",
        quiz="A LoRA run with 1e-5 is flat while full tuning with 1e-5 learned. Why? LoRA's update is the product of two small matrices, one of which starts at zero: it needs about ten times the rate.",
    )
    zh = Card(
        title="学习率太小",
        sign="loss 就是一条带正常噪声的平线，梯度范数也正常，日志里看不出毛病；跑了几千步，模型回答和原来一样。",
        cause="每步更新太小，学不动，甚至小到 bf16 权重都存不下。典型情况是把全参的学习率（1e-5 及以下）直接用在 LoRA 上：LoRA 大约要十倍。",
        remedy="先解码三条训练样本看一眼，标签错了调多少学习率都没用。没问题再把 learning_rate 乘 10：LoRA 用 1e-4～2e-4，全参用 1e-5～2e-5。",
        verify="warmup 之后 50 步内，平滑后的 loss 能明显跌出噪声带；10 条样本能过拟合到 0.1 以下。",
        prevention="配方里学习率和训练方式写在一起；新配置先跑区间测试，看清能让 loss 动起来的最小学习率。",
        question="日志里（不是配置里）打印的学习率是多少？训的是 LoRA 还是全参？",
        quiz="LoRA 用 1e-5 loss 不动，全参用 1e-5 却能学，为什么？LoRA 的更新是两个小矩阵的乘积，其中一个从零开始，需要大约十倍的学习率。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("llama-factory", method="lora", learning_rate=1e-6, lora_rank=8),
                metrics=make.ran(
                    loss=make.level(200, 2.1), grad_norm=make.level(200, 1.2, 0.3), learning_rate=make.peaked(peak=1e-6)
                ),
                attempts=make.tried(("lr-2e-4", {"method": "lora", "learning_rate": 2e-4, "lora_rank": 8}, 2.1, 0.9)),
            ),
            Evidence(
                settings=make.configured(method="lora", learning_rate=2e-8),
                metrics=make.ran(
                    loss=make.level(200, 1.9), grad_norm=make.level(200, 0.9, 0.2), learning_rate=make.peaked(peak=2e-8)
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # flat at a usual rate: the rate is not it
                settings=make.configured(method="lora", learning_rate=2e-4),
                metrics=make.ran(loss=make.level(200, 2.1), grad_norm=make.level(200, 1.2, 0.3), learning_rate=make.peaked()),
            ),
            Evidence(  # a low rate that learns
                settings=make.configured(method="lora", learning_rate=2e-5),
                metrics=make.ran(loss=make.falling(), learning_rate=make.peaked(peak=2e-5)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        moving = falls(seen)
        if moving is not None:
            return self.ruled_out(moving)
        still = flat(seen)
        if not still:
            return self.not_checked("metrics")
        rate = learning_rate(seen)
        if rate is None:
            return self.not_checked("settings", exhibits=still)
        low, median, _ = usual_rate(seen)
        stronger = [contrast for contrast in contrasts(seen, "learning_rate") if _higher(contrast.mine, contrast.other)]
        proofs = [contrast_exhibit(contrast, "learning_rate") for contrast in stronger if fell(contrast.attempt)]
        gradients = finite(seen, "grad_norm")
        if gradients.size and not gradients.any():
            proofs = []
            still = (
                *still,
                say("every gradient norm is 0: a higher learning rate changes nothing", "梯度范数全是 0：学习率再大也没用", -8.0),
            )
        if shape_of(seen).repeats_exactly and rate > NO_RATE:
            still = (
                *still,
                say("the losses repeat to the last digit: the weights do not move at all", "loss 逐位重复：权重完全没动", -4.0),
            )
        vain = [contrast_exhibit(contrast, "learning_rate", IN_VAIN) for contrast in stronger if not fell(contrast.attempt)]
        exhibits = [*proofs, *vain, *still, *rate_exhibit(seen, _rate_bits(rate, low, median))]
        nothing = bool(0 < rate <= low / FAR_BELOW and gradients.size and gradients.any())
        return conclude(self, exhibits, proof=bool(proofs) or nothing, change={"learning_rate": median})


def _higher(mine: object, other: object) -> bool:
    first, second = as_number(mine), as_number(other)
    return first is not None and second is not None and second > first


def _rate_bits(rate: float, low: float, median: float) -> float:
    """Below the band: two bits and half of one more for each halving, up to 7. Above the median: four against."""
    if rate < low:
        return 7.0 if rate <= 0 else min(7.0, 2.0 + 0.5 * math.log2(low / rate))
    return -4.0 if rate >= median else -1.0
