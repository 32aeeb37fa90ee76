"""The training loss falls to about 0."""

import numpy as np

from tuneclinic.curves.rows import TOKEN_LOSSES
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Metrics, Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, run
from tuneclinic.symptoms._series import NO_LIKELIHOOD, course, curve, kind, long_enough, look, number, point, policy, zero_at_once

LOWEST_START = 0.5
"""Nats a token below which no language model starts on new data; the 10th percentile of first losses of 33 usual chat runs is 0.57. A log that begins
lower is an excerpt from late in a run, or of another kind of loss: a trainer's rows with rates and epochs tell the first."""

ENOUGH_EPOCHS = 2.0
"""Epochs by which an excerpt that begins low must be under way to be read as the end of a language model's training."""


class LossNearZero(Symptom):
    id = "loss-near-zero"
    letter = "O"
    search = (
        "training loss goes to zero",
        "loss 0.0001, too good to be true",
        "loss drops to almost 0 within one epoch",
        "train loss near 0 but the model is bad",
        "eval_loss 0.0004",
        "loss 降到接近 0",
        "loss 太低了，才 0.001，不正常",
        "训练 loss 很快掉到 0.00 几",
        "loss too low, suspicious",
        "loss reaches 0.001 after a few hundred steps",
        "training loss is nearly zero",
        "loss: 0.0002",
        "loss 快到 0 了",
        "训练损失几乎为零",
        "loss 低得可疑",
    )

    en = SymptomCard(
        title="Loss falls to about 0",
        seen="The training loss stays at a few thousandths: the answers are memorised, or can be copied from the input. Two look-alikes are different faults: loss 0.0 with grad_norm nan is NaN, and loss 0.0 with grad_norm 0 means that no label is left.",
        check="How many epochs over how many rows? Search for duplicates, for answers inside the prompt, and for evaluation rows in the training set. Then check the label shift: if labels are not shifted, the model can copy its own input.",
        treatment="Train fewer epochs, remove duplicates and leaks. If the loss gets there within the first epoch, check label alignment and the attention mask first.",
        prevention="Scan for duplicates and leaks before every training, and keep a held-out set that is never trained on.",
    )
    zh = SymptomCard(
        title="loss 降到近 0",
        seen="训练 loss 停在千分之几：答案被背下来了，或者答案就能从输入里抄到。loss 0.0 配 grad_norm nan 是 NaN，loss 0.0 配 grad_norm 0 是没有 token 可学，都不是这一类。",
        check="多少条数据跑了多少个 epoch？查重复样本、prompt 里直接带答案、验证集混进训练集。再查移位：labels 没移位，模型抄自己的输入就行。",
        treatment="减少 epoch，去重，清掉泄漏的样本。第一个 epoch 之内就掉到底的，先查标签对齐和 attention mask，别的先放一放。",
        prevention="训练前固定跑一遍查重和泄漏扫描，留一份从不参与训练的验证集。",
    )
    sick = Lazy(
        lambda: [
            run(loss=falling(120, 2.4, 0.0006)[:60].tolist() + [0.0011, 0.0009, 0.0008, 0.0007] * 30),
            Evidence(metrics=Metrics(summary={"eval_loss": 0.0004}, source="all_results.json")),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(120, 2.4, 0.6)),
            run("grpo", loss=np.zeros(40)),
            run("causal-lm", loss=np.concatenate([[1.7], np.zeros(39)]), grad_norm=np.full(40, np.nan)),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss = look(seen), curve(seen)
        if seen.metrics is None:
            return self.not_checked("metrics")
        if kind(seen) in NO_LIKELIHOOD:
            return self.absent(*([] if loss is None else [course("loss", loss)]))
        if loss is not None and (zero_at_once(seen) or policy(seen)):
            return self.absent(course("loss", loss))
        if shape.near_zero_from is not None and loss is not None and _of_tokens(seen, loss):
            exhibits = [point("loss", loss, shape.near_zero_from), course("loss", loss)]
            return self.shown(*exhibits, first_step=shape.near_zero_from)
        if shape.near_zero_eval is not None and loss is None and kind(seen) in TOKEN_LOSSES:
            source = seen.metrics.source
            return self.shown(Exhibit(f"eval_loss {number(shape.near_zero_eval)}", source, source, section="metrics"))
        if loss is None or (not long_enough(seen) and shape.nan_from is None):
            return self.not_checked("metrics")
        return self.absent(course("loss", loss))


def _of_tokens(seen: Evidence, loss: Series) -> bool:
    """Whether a low loss is that of a language model: it began high, or its log says what it is or how many epochs have passed."""
    start = loss.values[np.isfinite(loss.values)][:1]
    if (len(start) and start[0] > LOWEST_START) or (seen.metrics is not None and seen.metrics.kind == "causal-lm"):
        return True
    epoch = curve(seen, "epoch")
    return epoch is not None and curve(seen, "learning_rate") is not None and bool(np.nanmax(epoch.values) > ENOUGH_EPOCHS)
