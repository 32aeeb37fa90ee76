"""The loss is a sum over tokens, not a mean."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, conclude, facts, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

TOO_MUCH = 20.0
"""Nats a token that no model shows: ln of the largest vocabulary in use (262,000) is 12.5, and the highest first loss seen on a
healthy stack is 17."""


class LossSummedNotAveraged(Case):
    id = "loss-summed-not-averaged"
    symptoms = {"loss-diverges": 0.12}
    stage = "overfit"
    explains = ("lr-too-high",)
    needs = ("metrics", "script")
    probe = "loss-check"
    search = (
        "loss starts at 3000",
        'reduction="sum" cross entropy',
        "loss is thousands at step 1",
        "loss 一开始就几千",
        "loss 求和没取平均",
    )

    en = Card(
        title="The loss is summed, not averaged",
        sign="The first loss is in the hundreds or thousands and grows with batch size and row length. Then the run diverges at a usual learning rate.",
        cause="cross_entropy with reduction='sum', or per-token losses added up without dividing by the number of trained tokens. Every gradient is larger by that number: with clipping every step is cut to the same length, without clipping the weights diverge.",
        remedy="Divide by the number of labels that are not -100 over the whole global batch: loss.sum() / (shift_labels != -100).sum(), or use reduction='mean'. Then choose the learning rate again.",
        verify="The first loss is below ln(vocabulary), and it does not change when the batch is doubled.",
        prevention="In the first step, compare the logged loss with a reference implementation on the same batch.",
        question="What is the first loss, and does it double when the batch doubles?",
        quiz="Loss 2,400 at step 1, batch 4 × 512 tokens. What is the loss per token? About 1.2: the model is healthy, the loss is a sum.",
    )
    zh = Card(
        title="loss 求和了，没有取平均",
        sign="第一个 loss 就是几百上千，batch 越大、样本越长就越大；学习率正常也会发散。",
        cause="cross_entropy 用了 reduction='sum'，或者把逐 token 的 loss 加起来却没除以有效 token 数。梯度放大了同样的倍数：开了裁剪就每步都被裁到同一长度，没开裁剪权重直接发散。",
        remedy="除以整个 global batch 里不是 -100 的标签数：loss.sum() / (shift_labels != -100).sum()，或者用 reduction='mean'。之后学习率要重新选。",
        verify="第一个 loss 低于 ln(词表)，batch 翻倍后数值不变。",
        prevention="第一步就把日志 loss 和参考实现在同一个 batch 上的 loss 比一下。",
        question="第一个 loss 是多少？batch 翻倍后它也翻倍吗？",
        quiz="第 1 步 loss 2400，batch 4 × 512 个 token，每 token 是多少？约 1.2，模型正常，只是求了和。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("loss-summed", quote='loss = F.cross_entropy(logits, labels, reduction="sum")'),
                metrics=make.ran(loss=make.blows_up(start=2400.0, end=20000.0, noise=90.0)),
            ),
            Evidence(script=make.scripted("loss-summed", quote="criterion = nn.CrossEntropyLoss(reduction='sum')")),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same rise, from a loss per token, in a script without a sum
                script=make.scripted(checked=("loss-summed",)),
                metrics=make.ran(loss=make.blows_up()),
            ),
            Evidence(  # a sum that is divided again: the numbers are per token
                script=make.scripted("loss-summed"),
                model=make.modelled(vocabulary=32000),
                metrics=make.ran(loss=make.falling()),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, shown = shape_of(seen), facts(seen, "loss-summed", weight=6.0)
        first = form.first
        if first is None:
            return self.confirmed(*shown) if shown and not form.points else self.not_checked("metrics", "script")
        kind = seen.metrics.kind if seen.metrics is not None else ""
        lowest = form.lowest if form.lowest is not None else first
        large = min(first, lowest) > TOO_MUCH and kind in {"", "causal-lm"}
        start = say(
            f"the loss starts at {first:,.4g} and never goes below {lowest:,.4g}; a loss per token is below ln(vocabulary)",
            f"loss 从 {first:,.4g} 开始，最低 {lowest:,.4g}；按每 token 算应低于 ln(词表)",
            3.0 if large else -6.0,
        )
        if not large:
            return self.ruled_out(start)
        return conclude(self, (*shown, start, *clean(seen, "loss-summed", weight=-5.0)), proof=bool(shown), missing=("script",))
