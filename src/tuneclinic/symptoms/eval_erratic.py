"""Evaluation jumps, or disagrees with a smooth training."""

import numpy as np

from tuneclinic.curves.thresholds import ERRATIC_POINTS
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, run
from tuneclinic.symptoms._series import course, curve, look, point


class EvalErratic(Symptom):
    id = "eval-erratic"
    letter = "E"
    search = (
        "validation accuracy jumps around",
        "eval loss is erratic while train loss is smooth",
        "eval metric changes every time I evaluate the same checkpoint",
        "eval_loss nan but train loss fine",
        "validation results disagree with training",
        "验证精度诡异波动",
        "训练正常但验证指标忽高忽低",
        "同一个 checkpoint 每次评估结果都不一样",
        "eval accuracy fluctuates between epochs",
        "validation metric is noisy and unstable",
        "验证集准确率忽高忽低",
        "评估结果每次不一样",
        "validation score swings while training loss is smooth",
    )

    en = SymptomCard(
        title="Evaluation is erratic while training is smooth",
        seen="The training loss is smooth, but the evaluation jumps up and down, is NaN, or contradicts the training loss.",
        check="Is the model in eval() mode (dropout off, batch norm on its running values)? Then send one training row through the evaluation path: same text, same resize and normalisation, same padding side, same loss?",
        treatment="Wrap evaluation in model.eval() and torch.inference_mode(), and call model.train() after it. Use one preprocessing object for training and evaluation. Evaluate enough rows that the noise is smaller than the difference you want to see.",
        prevention="Evaluate the same checkpoint twice: the numbers must be equal. Keep a single copy of the preprocessing code.",
    )
    zh = SymptomCard(
        title="训练平稳，评估乱跳",
        seen="训练 loss 很平稳，评估指标却忽上忽下，或者是 NaN，或者跟训练对不上。",
        check="评估时调没调 model.eval()（dropout 关掉、batch norm 用滑动统计）？再拿一条训练样本走一遍评估流程：文本、resize 和归一化、padding 方向、loss 算法，和训练侧是不是一样？",
        treatment="评估前 model.eval() 加 torch.inference_mode()，评估完 train() 切回来；训练和评估共用一个预处理对象；验证集加到噪声小于要看的差异。",
        prevention="同一个 checkpoint 评两次，结果必须一致；预处理代码只留一份。",
    )
    sick = Lazy(
        lambda: [
            run(
                loss=falling(120, 2.0, 1.0),
                eval_loss=([1.3, 2.9, 1.1, 3.4, 1.2, 2.7, 1.05, 3.1], np.arange(1, 9) * 150.0),
            ),
            run(loss=falling(120, 2.0, 1.0), eval_loss=([1.3, np.nan, 1.1, np.nan], np.arange(1, 5) * 300.0)),
        ]
    )
    healthy = Lazy(
        lambda: [run(loss=falling(120, 2.0, 1.0), eval_loss=([1.5, 1.3, 1.21, 1.17, 1.15, 1.14], np.arange(1, 7) * 200.0))]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss, held_out = look(seen), curve(seen), curve(seen, "eval_loss")
        accuracy = curve(seen, "eval_accuracy")
        checked = [
            (name, series) for name, series in (("eval_loss", held_out), ("eval_accuracy", accuracy)) if series is not None
        ]
        if loss is None or not checked:
            return self.not_checked("metrics")
        for name, series in checked:
            bad = np.flatnonzero(~np.isfinite(series.values))
            if len(bad) and np.isfinite(loss.values[loss.steps <= series.steps[bad[0]]]).all() and shape.nan_from is None:
                step = float(series.steps[bad[0]])
                return self.shown(point(name, series, step), course("loss", loss), first_step=step)
        if shape.eval_erratic:
            name, series = checked[0]
            exhibits = [point(name, series, float(step)) for step in series.steps[:5]]
            return self.shown(*exhibits, course("loss", loss), first_step=float(series.steps[0]))
        if all(len(series) < ERRATIC_POINTS for _, series in checked):
            return self.not_checked("metrics")
        return self.absent(*(course(name, series) for name, series in checked))
