"""The log hides NaN losses."""

import numpy as np

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say, series, setting, shape_of
from tuneclinic.casebook.numerics._nan import broken
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

NAN = float("nan")
MOVING = 3
"""Different losses above 0 from the first NaN norm on that show a true forward pass: a filter prints 0, or the last mean again."""


class NanHiddenByLogging(Case):
    id = "nan-hidden-by-logging"
    root = False
    symptoms = {"nan-at-start": 0.03, "nan-mid-run": 0.03}
    stage = "environment"
    needs = ("metrics",)
    probe = "bisect-nan"
    change = {"nan_filter": False}
    search = (
        "loss 0.0 grad_norm nan",
        "logging_nan_inf_filter",
        "loss is 0.0 but model is broken",
        "loss 0.0 grad_norm nan 怎么回事",
        "loss 一直是 0.0 梯度 nan",
        "loss 显示 0 其实是 NaN",
    )

    en = Card(
        title="The log hides NaN",
        sign="Row after row shows 'loss': 0.0 with 'grad_norm': nan; or the loss looks normal while grad_norm is NaN.",
        cause="The Trainer's logging_nan_inf_filter replaces the loss of a NaN step by the average of its logging window. A window that is all NaN prints 0.0, and a single NaN looks normal. This only hides the fault; something else caused the NaN. If all labels are masked the log also prints 0.0, but grad_norm is 0, not nan.",
        remedy="Set logging_nan_inf_filter: false and logging_steps: 1 (TrainingArguments; LLaMA-Factory reads the same keys), run again up to the first NaN, and look for its cause: precision, kernel, sample, learning rate, weights. Do not use weights saved after that step.",
        verify="The log prints nan at the step where it first appears.",
        prevention="Turn the filter off in every recipe, log grad_norm, and stop at the first value that is not finite.",
        question="What does grad_norm show in the rows where the loss is 0.0?",
        quiz="Two runs print loss 0.0. One has grad_norm nan, the other 0. In which one are all labels masked? The second: its loss is NaN but there is no gradient. The first has diverged or overflowed.",
    )
    zh = Card(
        title="日志把 NaN 藏起来了",
        sign="一行行都是 'loss': 0.0、'grad_norm': nan；或者 loss 看着正常，grad_norm 却是 NaN。",
        cause="Trainer 的 logging_nan_inf_filter 会把 NaN 步的 loss 换成窗口均值：整个窗口都是 NaN 就打印 0.0，零星 NaN 看起来像正常。它只是把问题藏起来，NaN 另有原因。标签全被掩掉时也打印 0.0，区别是那时 grad_norm 是 0 而不是 nan。",
        remedy="设 logging_nan_inf_filter: false、logging_steps: 1（TrainingArguments；LLaMA-Factory 键名相同），重跑到第一个 NaN，再找原因：精度、算子、样本、学习率、权重。那一步之后保存的权重都不能用。",
        verify="日志在 NaN 第一次出现的那一步就打印 nan。",
        prevention="配方里默认关掉这个过滤，打印梯度范数，一出现非有限值就停。",
        question="loss 为 0.0 的那些行，grad_norm 是多少？",
        quiz="两个任务都打印 loss 0.0，一个 grad_norm 是 nan，另一个是 0，哪个是标签全被掩掉？后一个：loss 是 NaN 但没有梯度；前一个是发散或溢出。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(metrics=make.ran(loss=make.then(make.level(40, 0.87), 0.0, 1), grad_norm=[NAN] * 40)),
            Evidence(
                settings=make.configured(bf16=True, nan_filter=True),
                metrics=make.ran(
                    loss=make.then(make.falling(100), 0.0, 60), grad_norm=make.then(make.level(100, 1.0, 0.2), NAN, 60)
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(loss=make.level(40, 0.9), grad_norm=[NAN] * 40)
            ),  # true losses: only the backward pass is broken
            Evidence(metrics=make.ran(loss=[0.0] * 40, grad_norm=[0.0] * 40)),  # loss 0.0 with gradient 0: all labels masked
            Evidence(
                metrics=make.ran(loss=make.then(make.falling(100), NAN, 60), grad_norm=make.then(make.level(100, 1.0), NAN, 60))
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form = shape_of(seen)
        if form.nan_from is None:
            if form.masked_from is not None:
                return self.ruled_out(
                    say("the gradient norm is 0, not NaN: no label is left", "梯度范数是 0 而不是 NaN：没有可学的标签", -8.0)
                )
            if form.points >= 3:
                return self.ruled_out(say("no gradient norm is NaN", "没有 NaN 的梯度范数", -8.0))
            return self.not_checked("metrics")
        if not form.nan_hidden:
            return self.ruled_out(*broken(seen), say("the log prints NaN as NaN", "日志如实打印了 NaN", -8.0))
        forward = _moving(seen, form.nan_from)
        if forward is not None:
            return self.ruled_out(*broken(seen), forward)
        filtered = setting(seen, "nan_filter", 1.0)
        proof = say(
            "a number is printed where the loss is NaN", "loss 是 NaN 的地方打印了数字", 8.0, where=f"step {form.nan_from:g}"
        )
        return self.confirmed(*broken(seen), proof, *filtered)


def _moving(seen: Evidence, start: float) -> Exhibit | None:
    """Against: losses that keep moving while the gradient norm is NaN are true losses; only the backward pass is broken."""
    loss = series(seen, "loss")
    if loss is None:
        return None
    after = loss.values[loss.steps >= start]
    if len(np.unique(after[np.isfinite(after) & (after > 0)])) < MOVING:
        return None
    return say(
        "where the gradient norm is NaN, the losses are real numbers that change: nothing is hidden",
        "梯度范数是 NaN 的那些行，loss 是在变化的真实数值，没有被掩盖",
        -8.0,
    )
