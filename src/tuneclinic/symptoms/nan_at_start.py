"""NaN or infinity in the first logged rows."""

import numpy as np

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, run
from tuneclinic.symptoms._series import course, curve, look, main_name, point


class NanAtStart(Symptom):
    id = "nan-at-start"
    letter = "N"
    search = (
        "loss is nan from the first step",
        "NaN loss at step 1",
        "loss 0.0 grad_norm nan",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.01}",
        "first batch already gives inf",
        "训练一开始 loss 就是 nan",
        "第一步就 NaN",
        "刚开始训练 loss 就变成 0，grad_norm 是 nan",
        "nan in the very first iteration",
        "initial loss is nan",
        "loss goes nan immediately with fp16",
        "开训就 nan，学习率还是 0",
        "首步 loss 为 nan",
        "grad_norm: nan 从头到尾",
    )

    en = SymptomCard(
        title="NaN in the first steps",
        seen="The loss or the gradient norm is NaN or infinite in the first logged rows. Many trainers hide it: loss 0.0 with grad_norm nan is a NaN run, and so is one normal first loss followed by zeros.",
        check="Look at grad_norm and the learning rate in the first row. If the rate was still 0 (warm-up has not begun), it is not the learning rate: suspect precision, the attention kernel, the loaded weights, or one sample. One row may average many steps, so set logging_steps: 1 while you search.",
        treatment="Use bf16 instead of fp16 and divide the learning rate by 10. If NaN remains, run the first batches forward only, one at a time, and keep halving the batch that fails until one sample is left.",
        prevention="Use bf16 on every GPU that supports it. Compare every new loss function with a reference on a tiny input before training with it.",
    )
    zh = SymptomCard(
        title="一开始就 NaN",
        seen="前几行日志里 loss 或 grad_norm 就是 NaN 或 inf。很多 Trainer 会把它藏起来：loss 0.0 配 grad_norm nan 就是 NaN，第一行 loss 正常、后面全是 0 也是。",
        check="先看第一行的 grad_norm 和学习率。学习率还是 0（warmup 没开始）就不可能是学习率的问题，往精度、attention 算子、加载进来的权重或某条样本上想。一行日志可能平均了很多步，排查时设 logging_steps: 1。",
        treatment="fp16 换成 bf16，学习率除以 10。还不行就只做前向，一个 batch 一个 batch 地过，出问题的 batch 再对半切，切到剩一条样本为止。",
        prevention="卡支持 bf16 就用 bf16；自己写的 loss 先拿小输入和参考实现对拍，再上训练。",
    )
    sick = Lazy(
        lambda: [
            run(loss=np.array([2.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), grad_norm=np.full(8, np.nan)),
            run(loss=np.full(12, np.nan)),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(), grad_norm=falling(first=8.0, last=0.6)),
            run("grpo", loss=np.zeros(20), grad_norm=falling(20, 0.4, 0.3)),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss, norm = look(seen), curve(seen), curve(seen, "grad_norm")
        held = curve(seen, "eval_loss") if loss is None and norm is None else None
        main = loss if loss is not None else norm if norm is not None else held
        if main is None:
            return self.not_checked("metrics")
        if shape.nan_from is None or not shape.nan_at_start:
            return self.absent(course(main_name(loss, norm), main))
        exhibits = [
            point(name, series, shape.nan_from)
            for name, series in (("loss", loss), ("grad_norm", norm), ("eval_loss", held))
            if series is not None
        ]
        rate = curve(seen, "learning_rate")
        if rate is not None:
            exhibits.append(point("learning_rate", rate, shape.nan_from))
        return self.shown(*exhibits, first_step=shape.nan_from)
