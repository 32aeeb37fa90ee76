"""The loss swings or spikes."""

import numpy as np

from tuneclinic.curves.thresholds import ALTERNATE_POINTS
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, run
from tuneclinic.symptoms._series import course, curve, look, number, point, stated
from tuneclinic.words import Text


class LossOscillates(Symptom):
    id = "loss-oscillates"
    letter = "C"
    search = (
        "loss oscillates wildly",
        "training loss is very spiky",
        "loss spikes every few hundred steps",
        "loss jumps up and down",
        "loss curve zigzags",
        "loss 剧烈震荡",
        "loss 忽高忽低，毛刺很多",
        "loss 周期性尖峰",
        "unstable loss with big swings",
        "loss fluctuates between 0.5 and 3",
        "sudden loss spikes that recover",
        "noisy, jagged loss curve",
        "loss 抖动很大",
        "loss 跳来跳去不稳定",
        "loss 曲线锯齿状",
    )

    en = SymptomCard(
        title="Loss oscillates or spikes",
        seen="The loss swings by several times its usual step-to-step noise, spikes at single steps, or spikes at regular intervals. A noisy curve that still falls, as with small batches, does not count.",
        check="Are the spikes regular? A fixed period points to unshuffled data or to epoch borders. Only single steps? Look at those batches: lengths, number of trained tokens, odd samples. Everywhere? Compare learning rate and global batch with usual values.",
        treatment="Halve the learning rate or double gradient_accumulation_steps. Shuffle the data. Remove or shorten the outlier samples.",
        prevention="Run a short learning-rate range test on every new set-up, and log the gradient norm next to the loss.",
    )
    zh = SymptomCard(
        title="loss 震荡、有尖峰",
        seen="loss 的摆动是平时逐步噪声的好几倍，或者某些步突然冒尖，或者隔固定步数冒一次尖。小 batch 下毛糙但总体在降的曲线不算。",
        check="尖峰有没有周期？固定周期多半是数据没打乱，或者 epoch 交界。只是个别步？把那几个 batch 翻出来，看长度、参与训练的 token 数和怪样本。到处都在摆？看学习率和 global batch 是不是常用的量级。",
        treatment="学习率减半，或者 gradient_accumulation_steps 加倍；把数据打乱；离群样本删掉或截短。",
        prevention="新配置先做一次短的学习率区间测试（range test）；grad_norm 和 loss 一起记。",
    )
    sick = Lazy(
        lambda: [
            run(loss=falling(200) * (1 + 0.5 * np.sin(np.arange(200) / 4))),
            run(loss=falling(200) + 4.0 * (np.arange(200) % 40 == 39)),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(200, scale=0.12)),
            run(loss=falling(200)),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss = look(seen), curve(seen)
        if loss is None or (len(loss) < ALTERNATE_POINTS and not shape.oscillates):
            return self.not_checked("metrics")
        if not shape.oscillates:
            return self.absent(course("loss", loss))
        exhibits = [point("loss", loss, step) for step in shape.spikes[:3]]
        if shape.period is not None:
            text = Text(
                f"the spikes come about every {number(shape.period)} steps",
                f"尖峰大约每 {number(shape.period)} 步出现一次",
            )
            exhibits.append(stated(text, loss, shape.spikes[0] if shape.spikes else float(loss.steps[0])))
        exhibits.append(_swing(loss, shape.noise))
        return self.shown(*exhibits, first_step=shape.spikes[0] if shape.spikes else float(loss.steps[0]))


def _swing(loss: Series, noise: float | None) -> Exhibit:
    """The range of the last half of a loss that swings, beside its noise."""
    half = loss.values[len(loss) // 2 :]
    half = half[np.isfinite(half)]
    low, high = (number(float(half.min())), number(float(half.max()))) if len(half) else ("?", "?")
    band = "" if noise is None else number(noise)
    text = Text(
        f"in the last half of the run the loss swings between {low} and {high}"
        + (f"; its step-to-step noise is {band}" if band else ""),
        f"后半程 loss 在 {low} 到 {high} 之间摆动" + (f"，逐步噪声只有 {band}" if band else ""),
    )
    return stated(text, loss, float(loss.steps[-1]))
