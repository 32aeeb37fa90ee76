"""The loss function computes something else than it should."""

import math

import numpy as np

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, finite, lines, number, say, series, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

NEGATIVE = -1e-3
"""Nats under 0 that rounding cannot explain: logs print four digits."""
BELOW_BOUND = 0.05
"""Nats by which a sigmoid preference loss must lie under its lower bound at the logged mean margin (Jensen) to be impossible."""
PLAIN = ("causal-lm", "classification")


class LossImplementationWrong(Case):
    id = "loss-implementation-wrong"
    symptoms = {"cannot-overfit": 0.16, "preference-odd": 0.05}
    stage = "overfit"
    needs = ("metrics", "crash", "log")
    probe = "loss-check"
    signatures = (
        r"expected input batch_size \(\d+\) to match target batch_size",
        r"using a target size .{0,80}that is different to the input size",
    )
    search = (
        "cross entropy loss negative",
        "custom loss wrong",
        "Using a target size that is different to the input size",
        "自定义 loss 写错",
        "交叉熵 loss 变成负数",
        "loss 数值对拍",
    )

    en = Card(
        title="The loss function is wrong",
        sign="A cross-entropy below zero, a preference loss lower than its own margins allow, or ten samples that cannot be memorised although labels and gradients are right. The log may contain a shape warning.",
        cause="The loss is self-written, with a flipped sign, a softmax applied twice, a mean over the wrong axis or over padding as well, a broadcast of [batch, 1] against [batch], or log-probabilities gathered at the wrong position.",
        remedy="Check it numerically: on two rows of five tokens, with padding and masks, compare value and gradient with torch.nn.functional.cross_entropy (or TRL's loss). Then use the reference instead, or fix the first term that differs.",
        verify="On small random inputs in fp32, values and gradients agree to 1e-5, and ten samples go below 0.1.",
        prevention="Never train with a new loss before a numeric test against a reference. Keep that test in the repository.",
        question="Is the loss your own code, and was it ever compared numerically with a reference?",
        quiz="The loss of a language model reads -0.8 and keeps falling. What is certain? It is not a cross-entropy: that cannot be negative.",
    )
    zh = Card(
        title="loss 实现有误",
        sign="交叉熵出现负值，偏好 loss 比它自己的 margin 允许的还低，或者标签和梯度都对、10 条样本却过拟合不下去；日志里可能有 shape 警告。",
        cause="自己写的 loss：符号反了、softmax 套了两次、平均的维度不对或把 padding 也平均进去、[batch, 1] 和 [batch] 广播、取 log-prob 时位置错了。",
        remedy="做数值对拍：两行、每行 5 个 token，带上 padding 和掩码，和 torch.nn.functional.cross_entropy（或 TRL 的 loss）比较数值和梯度；要么换成参考实现，要么修第一个对不上的项。",
        verify="fp32 下随机小输入的数值和梯度误差小于 1e-5，10 条样本能过拟合到 0.1 以下。",
        prevention="新写的 loss 不对拍不许上训练，把对拍测试留在仓库里。",
        question="loss 是自己写的吗？和参考实现做过数值对拍吗？",
        quiz="语言模型的 loss 是 -0.8 还在往下走，能确定什么？这肯定不是交叉熵，交叉熵不可能为负。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(metrics=make.ran(loss=make.falling(100, 1.2, -0.9, noise=0.02))),
            Evidence(
                settings=make.configured("trl", preference_loss="sigmoid", stage="dpo"),
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(100, 0.69, 0.05, noise=0.005),
                    rewards__margins=make.falling(100, 0.0, 0.3, noise=0.01),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(loss=make.falling(100, 1.2, -0.9, noise=0.02), kind="ppo")
            ),  # a policy loss may be negative
            Evidence(  # the same margins, and the loss that belongs to them
                settings=make.configured("trl", preference_loss="sigmoid", stage="dpo"),
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(100, 0.69, 0.57, noise=0.005),
                    rewards__margins=make.falling(100, 0.0, 0.3, noise=0.01),
                ),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        warned = lines(seen, *self.signatures, weight=4.0)
        kind = seen.metrics.kind if seen.metrics is not None else ""
        losses = finite(seen, "loss")
        if kind in PLAIN and losses.size and float(losses.min()) < NEGATIVE:
            return self.confirmed(_negative(seen), *warned)
        if kind == "dpo":
            impossible = _under_bound(seen)
            if impossible is not None:
                return conclude(self, (impossible, *warned), proof=impossible.weight > 0)
        if warned:
            return conclude(self, warned, missing=("script",))
        if kind and kind not in PLAIN and losses.size:
            return self.ruled_out(say(f"a {kind} loss may take these values", f"{kind} 的 loss 可以取到这些值", -3.0))
        return self.not_checked("experiments")


def _negative(seen: Evidence) -> Exhibit:
    held = series(seen, "loss")
    if held is None:
        return say("the loss is negative", "loss 为负", 9.0)
    at = int(np.flatnonzero(held.values < NEGATIVE)[0])
    return say(
        f"the cross-entropy is {held.values[at]:.4g}: it cannot be below 0",
        f"交叉熵是 {held.values[at]:.4g}：不可能小于 0",
        9.0,
        where=held.where(at),
        source=held.source,
    )


def _under_bound(seen: Evidence) -> Exhibit | None:
    """The last loss beside -log σ(mean margin), which a sigmoid loss cannot undercut (Jensen); None where it cannot be judged."""
    loss_type, framework = text_of(seen, "preference_loss"), seen.settings.framework if seen.settings is not None else ""
    plain = loss_type == "sigmoid" or (not loss_type and framework == "trl")
    if not plain or number(seen, "sft_weight") or number(seen, "label_smoothing"):
        return None
    losses, margins = finite(seen, "loss"), finite(seen, "rewards/margins")
    tail = min(len(losses), len(margins)) // 4
    if tail < 5:
        return None
    loss, margin = float(losses[-tail:].mean()), float(margins[-tail:].mean())
    bound = math.log1p(math.exp(-min(margin, 500.0))) if margin > -500 else -margin
    broken = loss < bound - BELOW_BOUND
    return say(
        f"the loss ends at {loss:.3f}; at a mean margin of {margin:.2f} a sigmoid loss is at least {bound:.3f}",
        f"loss 终值 {loss:.3f}；平均 margin 为 {margin:.2f} 时 sigmoid loss 至少是 {bound:.3f}",
        9.0 if broken else -3.0,
    )
