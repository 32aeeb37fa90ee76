"""Training loss falls while evaluation loss rises."""

import numpy as np

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, jitter, run
from tuneclinic.symptoms._series import NO_LIKELIHOOD, course, curve, kind, look, point, stated
from tuneclinic.words import Text

ENOUGH_EVALUATIONS = 3
"""A turn needs a point before it, the turn, and a point after it."""


class Overfits(Symptom):
    id = "overfits"
    letter = "O"
    search = (
        "train loss down but eval loss up",
        "validation loss rises after epoch 1",
        "overfitting on a small dataset",
        "eval_loss increases while training loss decreases",
        "gap between train and val loss grows",
        "过拟合",
        "训练 loss 降，验证 loss 升",
        "eval loss 第二个 epoch 开始反弹",
        "val loss goes up while train loss goes down",
        "evaluation loss starts rising",
        "model overfits after 2 epochs",
        "验证集 loss 上升，训练集 loss 下降",
        "模型过拟合了怎么解决",
        "eval_loss 越来越高",
        "test loss gets worse while train loss gets better",
        "验证 loss 先降后升",
    )

    en = SymptomCard(
        title="Overfitting: evaluation loss rises",
        seen="The training loss keeps falling while the evaluation loss passes a minimum and rises by more than its own noise. A wide gap with an evaluation loss that still falls is not overfitting.",
        check="At which epoch does the evaluation loss turn? Compare rows, epochs, rank and learning rate: the larger the change and the fewer trained tokens, the earlier it turns.",
        treatment="Use the checkpoint from before the turn. Next time train fewer epochs, or use more data, a lower rank or a lower learning rate.",
        prevention="Split off an evaluation set before the first run. Evaluate several times per epoch, save at each evaluation, and set load_best_model_at_end: true.",
    )
    zh = SymptomCard(
        title="过拟合：训练降、验证升",
        seen="训练 loss 还在降，验证 loss 过了最低点往上走，涨幅超过它自己的噪声。训练和验证差得多、但验证还在降的，不算过拟合。",
        check="验证 loss 在第几个 epoch 掉头？把样本数、epoch、rank、学习率放在一起看：改动量越大、训练 token 越少，掉头越早。",
        treatment="用掉头之前的 checkpoint。下一轮减 epoch，或者加数据、降 rank、降学习率。",
        prevention="开训前先切好验证集；一个 epoch 评几次，每次评估都存，设 load_best_model_at_end: true。",
    )
    sick = Lazy(
        lambda: [
            run(
                loss=falling(120, 2.0, 0.1),
                eval_loss=([1.6, 1.32, 1.21, 1.25, 1.36, 1.52, 1.7, 1.88], np.arange(1, 9) * 150.0),
            )
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(120, 2.0, 0.4), eval_loss=([1.6, 1.32, 1.21, 1.17, 1.15, 1.14], np.arange(1, 7) * 200.0)),
            run(loss=falling(120, 2.0, 1.0), eval_loss=(1.2 * (1 + jitter(8, 0.004)), np.arange(1, 9) * 150.0)),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss, held_out = look(seen), curve(seen), curve(seen, "eval_loss")
        if held_out is None or len(held_out) < ENOUGH_EVALUATIONS or kind(seen) in NO_LIKELIHOOD:
            return self.not_checked("metrics")
        if shape.overfits_from is None:
            return self.absent(course("eval_loss", held_out))
        exhibits = [point("eval_loss", held_out, shape.overfits_from)]
        if shape.eval_rise is not None:
            rise = f"{100 * shape.eval_rise:.3g} %"
            text = Text(
                f"eval_loss then rises by {rise} while the training loss falls",
                f"此后 eval_loss 上升 {rise}，训练 loss 还在降",
            )
            exhibits.append(stated(text, held_out, float(held_out.steps[-1])))
        if loss is not None:
            exhibits.append(course("loss", loss))
        return self.shown(*exhibits, first_step=shape.overfits_from)
