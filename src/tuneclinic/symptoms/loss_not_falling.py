"""The loss is flat, at a level that is not ln(V)."""

import numpy as np

from tuneclinic.curves import Shape
from tuneclinic.curves.thresholds import FLAT_POINTS
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._attempts import rates_make_no_difference
from tuneclinic.symptoms._examples import falling, flat, run
from tuneclinic.symptoms._series import course, curve, kind, long_enough, look, number, point, policy, stated, zero_at_once
from tuneclinic.words import Text

CLEAR_FALL = 0.2
"""Relative fall of the loss that needs no statistics: more than twice the step noise of usual batches (0.08 to 0.23 of the loss,
less by the square root of the rows that the last value is a median of)."""


class LossNotFalling(Symptom):
    id = "loss-not-falling"
    letter = "C"
    search = (
        "loss does not decrease",
        "training loss is flat and not going down",
        "loss stays the same every epoch",
        "model is not learning anything",
        "loss plateau from the start",
        "loss 不降",
        "loss 纹丝不动",
        "loss 一直不下降，学不进去",
        "loss won't go down with LoRA",
        "stagnating loss, no learning",
        "loss not converging",
        "the same loss values repeat every epoch",
        "loss 不收敛",
        "loss 不动，一直是平的",
        "训练没效果，loss 没变化",
        "loss hovers around the same value",
        "loss 下不去",
        "loss curve is a straight line",
        "学习率怎么调 loss 都没反应",
    )

    en = SymptomCard(
        title="Loss does not fall",
        seen="From start to end the loss only moves within its own noise, at a level that is not ln(vocabulary). Sometimes the same losses repeat to the last digit every epoch, or the log shows loss 0.0 with grad_norm 0.",
        check="Decode what really enters the model, text and label mask, for the first three batches. Then check whether one step changes any weight, and whether the learning rate is usual for this method: LoRA needs about ten times the rate of full tuning.",
        treatment="If the decoded batch shows a fault, fix the data or the mask. If it is clean and ten samples can be memorised, multiply the learning rate by 10. On open-ended answers, about 1 nat may be as low as this data goes.",
        prevention="Before every training, render a few samples through the chat template with an automatic check that stops the run on failure.",
    )
    zh = SymptomCard(
        title="loss 不降",
        seen="从头到尾 loss 只在自己的噪声里晃，停的位置又不是 ln(词表大小)。也可能每个 epoch 的 loss 一位不差地重复，或者日志里 loss 0.0、grad_norm 也是 0。",
        check="先解码前三个 batch，看真正喂进去的文本和 label 掩码。再看走一步权重动没动，学习率是不是这种方法该有的量级：LoRA 大约要全参的 10 倍。",
        treatment="解码出来有问题就改数据或掩码。数据没问题、10 条样本也背得下来，再把学习率乘 10。开放式回答停在 1 nat 左右，可能本来就只能到这里。",
        prevention="每次训练前把几条样本过一遍对话模板，自动检查，不对就不许开训。",
    )
    sick = Lazy(
        lambda: [
            run(loss=flat(level=1.9)),
            run(loss=np.tile([0.9741, 1.3742, 1.239, 1.1034, 0.8812, 1.2077, 1.0419, 1.1963], 6)),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling()),
            run(loss=falling(first=1.45, last=1.15, scale=0.05)),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss = look(seen), curve(seen)
        if loss is None or not long_enough(seen):
            return self.not_checked("metrics")
        elsewhere = shape.at_uniform or shape.at_marginal or shape.nan_from is not None or shape.near_zero_from is not None
        exhibits = [] if elsewhere and not shape.repeats_exactly else _exhibits(shape, loss, curve(seen, "grad_norm"))
        exhibits = exhibits or _reads_zero(seen, shape, loss)
        tried = rates_make_no_difference(seen, loss)
        if tried is not None:
            exhibits = [tried, *(exhibits or [course("loss", loss)])]
        if not exhibits and len(loss) < FLAT_POINTS and (shape.drop or 0.0) < CLEAR_FALL:
            return self.not_checked("metrics")
        if not exhibits or kind(seen) == "classification":
            return self.absent(course("loss", loss))
        return self.shown(*exhibits, first_step=float(loss.steps[0]))


def _exhibits(shape: Shape, loss: Series, norm: Series | None) -> list[Exhibit]:
    """What shows that nothing is learned; empty where the loss moves."""
    found = []
    last = float(loss.steps[-1])
    if shape.repeats_exactly:
        rows = shape.repeats_exactly
        text = Text(f"the same losses repeat to the last digit every {rows} rows", f"每 {rows} 行 loss 一位不差地重复一遍")
        found.append(stated(text, loss, last))
    if shape.masked_from is not None and shape.masked_from <= float(loss.steps[min(2, len(loss) - 1)]):
        found.append(point("loss", loss, shape.masked_from))
        if norm is not None:
            found.append(point("grad_norm", norm, shape.masked_from))
    if shape.no_learning:
        level, noise = shape.level, shape.noise
        if level is not None and noise is not None:
            text = Text(
                f"loss stays at {number(level)}; its own step-to-step noise is {number(noise)}",
                f"loss 停在 {number(level)}，自身的逐步噪声是 {number(noise)}",
            )
            found.append(stated(text, loss, last))
        found.append(course("loss", loss))
    return found


def _reads_zero(seen: Evidence, shape: Shape, loss: Series) -> list[Exhibit]:
    """A loss of exactly 0.0 in every row from the start: what nothing but a policy's loss may read, whose log names a reward."""
    if shape.zero_from is None or not zero_at_once(seen) or shape.nan_from is not None:
        return []
    if policy(seen) or kind(seen) not in {"", "causal-lm"}:
        return []
    return [point("loss", loss, shape.zero_from), course("loss", loss)]
