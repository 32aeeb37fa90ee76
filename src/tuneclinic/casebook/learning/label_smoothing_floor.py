"""Label smoothing keeps the loss from reaching zero."""

import math

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import facts, number, say, setting, shape_of
from tuneclinic.curves import vocabulary_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

AT_FLOOR = 0.1
"""Relative distance from the floor within which a loss has arrived: the last tenth is slow, as near any minimum."""


class LabelSmoothingFloor(Case):
    id = "label-smoothing-floor"
    symptoms = {"cannot-overfit": 0.05}
    stage = "overfit"
    needs = ("settings", "metrics", "script")
    probe = "overfit"
    change = {"label_smoothing": 0.0}
    search = (
        "label smoothing loss does not go to zero",
        "label_smoothing_factor 0.1 loss stuck at 1.3",
        "label smoothing loss 下不去",
        "标签平滑 loss 降不到 0",
    )

    en = Card(
        title="Label smoothing keeps the loss above 0",
        sign="Ten samples are answered perfectly and the loss still stops well above 0: near 1.4 with smoothing 0.1 and a vocabulary of 32,000.",
        cause="With smoothing ε the target spreads a share ε evenly over all V tokens of the vocabulary. The lowest possible loss is the entropy of that target, slightly more than ε·ln(V/ε), and it grows with the vocabulary.",
        remedy="Set label_smoothing_factor: 0 when you fine-tune a language model, or compare the loss with this lower bound instead of with 0.",
        verify="With smoothing off the same ten samples fall below 0.1.",
        prevention="Run the ten-sample test with smoothing and dropout off.",
        question="Is label_smoothing_factor above 0 in the configuration or in the loss function?",
        quiz="ε = 0.1, V = 32,000. What is the lower bound? About 1.36 nats, so a loss of 1.4 is nearly perfect.",
    )
    zh = Card(
        title="标签平滑让 loss 降不到 0",
        sign="10 条样本已经答得一字不差，loss 却停在离 0 很远的地方：平滑系数 0.1、词表 3.2 万时约 1.4。",
        cause="平滑系数 ε 会把总共 ε 的概率平均分给词表里全部 V 个 token，所以 loss 的下限是这个目标分布的熵，比 ε·ln(V/ε) 略大，词表越大越高。",
        remedy="微调语言模型时设 label_smoothing_factor: 0，或者拿 loss 和这个下限比，不要和 0 比。",
        verify="关掉平滑，同样 10 条样本能降到 0.1 以下。",
        prevention="做 10 条过拟合测试时把标签平滑和 dropout 都关掉。",
        question="配置或 loss 函数里的标签平滑系数（label_smoothing_factor）是不是大于 0？",
        quiz="ε = 0.1，V = 32000，下限是多少？约 1.36，所以 loss 1.4 已经接近满分。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(label_smoothing=0.1, learning_rate=2e-4),
                model=make.modelled(vocabulary=32000),
                metrics=make.ran(loss=make.falling(200, 3.2, 1.38, noise=0.01)),
            ),
            Evidence(
                settings=make.configured("llama-factory", label_smoothing=0.05, learning_rate=1e-4),
                model=make.modelled(vocabulary=151936),
                metrics=make.ran(loss=make.falling(300, 2.9, 0.8, noise=0.01)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same curve without smoothing
                settings=make.configured(label_smoothing=0.0),
                model=make.modelled(vocabulary=32000),
                metrics=make.ran(loss=make.falling(200, 3.2, 1.38, noise=0.01)),
            ),
            Evidence(  # smoothing on, and the loss stops far above its floor
                settings=make.configured(label_smoothing=0.1),
                model=make.modelled(vocabulary=32000),
                metrics=make.ran(loss=make.falling(200, 3.2, 2.4, noise=0.01)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        amount, rows = number(seen, "label_smoothing"), vocabulary_of(seen.model, seen.tokenizer)
        shown = facts(seen, "label-smoothing", weight=2.0)
        if amount is None:
            return self.not_checked("settings", exhibits=shown)
        if not 0 < amount < 1:
            return self.ruled_out(*setting(seen, "label_smoothing", -9.0))
        last = shape_of(seen).last
        if last is None or rows is None:
            return self.not_checked("metrics", "model", exhibits=(*setting(seen, "label_smoothing", 1.0), *shown))
        lowest = floor(amount, rows)
        near = abs(last / lowest - 1) <= AT_FLOOR
        text = say(
            f"the loss ends at {last:.3f}; with smoothing {amount:g} over {rows:,} tokens it cannot go below {lowest:.3f}",
            f"loss 终值 {last:.3f}；平滑 {amount:g}、词表 {rows:,} 时下限是 {lowest:.3f}",
            6.0 if near else -6.0,
        )
        if near:
            return self.confirmed(text, *setting(seen, "label_smoothing", 2.0), *shown)
        return self.ruled_out(text)


def floor(amount: float, vocabulary: int) -> float:
    """The entropy in nats of a target with 1 - ε + ε/V on one token and ε/V on each of the others."""
    rest = amount / vocabulary
    top = 1 - amount + rest
    return -top * math.log(top) - (vocabulary - 1) * rest * math.log(rest)
