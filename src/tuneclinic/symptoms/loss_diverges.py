"""The loss rises and stays up."""

import numpy as np

from tuneclinic.curves import Shape
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, flat, run
from tuneclinic.symptoms._series import course, curve, long_enough, look, number, point, stated
from tuneclinic.words import Text


class LossDiverges(Symptom):
    id = "loss-diverges"
    letter = "C"
    search = (
        "loss goes up instead of down",
        "loss explodes and stays high",
        "training diverges",
        "loss keeps increasing",
        "loss jumped from 1.5 to 8 and never came back",
        "loss 发散",
        "loss 越训越高",
        "loss 突然飙升后下不来",
        "loss increases over training",
        "loss blows up to 10",
        "loss 一直上升",
        "loss 爆炸了，回不去",
        "loss 越来越高，不收敛反而变大",
        "loss 变大不收敛",
        "loss 越来越高",
        "loss explodes and never comes back",
        "loss flies off",
        "loss 跑飞了",
    )

    en = SymptomCard(
        title="Loss rises and does not come back",
        seen="The loss rises by many times its usual noise and does not come back. An early hump that falls again, as in training from scratch, does not count.",
        check="At which step does it begin, and where is the learning rate then: at the end of warm-up, at its peak? What does the gradient norm do just before? Was the run resumed there? Is the loss summed instead of averaged?",
        treatment="Go back to a checkpoint from before the rise; the weights after it are damaged. Divide the learning rate by 10, warm up over 3 to 10 % of the steps, and set max_grad_norm: 1.0.",
        prevention="Use warm-up and gradient clipping by default, and try a few learning rates in short runs before the long one.",
    )
    zh = SymptomCard(
        title="loss 发散",
        seen="loss 离开原来的走势，涨幅远超自身噪声，而且回不来。从头训练时早期鼓一个包又降下去的不算。",
        check="从哪一步开始涨？那时学习率在什么位置，是不是刚好 warmup 结束、到了峰值？涨之前 grad_norm 怎么走？是不是正好在那里恢复训练？loss 是求和还是求平均？",
        treatment="退回发散之前的 checkpoint，之后的权重已经坏了。学习率除以 10，warmup 占总步数 3%～10%，max_grad_norm 设 1.0。",
        prevention="warmup 和梯度裁剪默认打开；长训之前先试几个学习率。",
    )
    sick = Lazy(
        lambda: [
            run(loss=np.concatenate([falling(60), np.linspace(1.2, 7.5, 30), flat(60, 7.5)])),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(150)),
            run(loss=flat(150, 1.4, 0.06)),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss = look(seen), curve(seen)
        if loss is None or (shape.diverged_from is None and not long_enough(seen)):
            return self.not_checked("metrics")
        if shape.diverged_from is None and shape.starts_too_high:
            return self.shown(_starts_high(shape, loss), first_step=float(loss.steps[0]))
        if shape.diverged_from is None:
            return self.absent(course("loss", loss))
        exhibits = [point("loss", loss, shape.diverged_from)]
        finite = loss.values[np.isfinite(loss.values)]
        if shape.lowest is not None and len(finite):
            high = number(float(finite.max()))
            text = Text(
                f"loss was down to {number(shape.lowest)} and rises to {high}",
                f"loss 曾降到 {number(shape.lowest)}，之后涨到 {high}",
            )
            exhibits.append(stated(text, loss, shape.lowest_step if shape.lowest_step is not None else shape.diverged_from))
        for name in ("learning_rate", "grad_norm"):
            series = curve(seen, name)
            if series is not None:
                exhibits.append(point(name, series, shape.diverged_from))
        return self.shown(*exhibits, first_step=shape.diverged_from)


def _starts_high(shape: Shape, loss: Series) -> Exhibit:
    """A first loss far above what guessing evenly costs: nothing was learned or unlearned yet."""
    first, even = number(float(loss.values[0])), number(shape.uniform) if shape.uniform is not None else ""
    beside = f"; guessing evenly costs {even}" if even else ""
    beside_zh = f"，而均匀猜测只有 {even}" if even else ""
    text = Text(
        f"the first loss is {first}, far above what any model starts at{beside}",
        f"初始 loss 为 {first}，高得不合理{beside_zh}",
    )
    return stated(text, loss, float(loss.steps[0]))
