"""Every label is masked: there is nothing to learn from."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, facts, falls, quoted, say, series, setting, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

MASKED_SHARE = 0.5
"""A judgement, not measured: a cut-off masks some rows, a wrong marker masks most."""
EARLY_ROWS = 3
"""Logged rows within which a loss of 0.0 with gradient 0 must begin: no run has learnt everything by then."""
FROM_START = 4.0
"""Weight of a loss that reads 0.0 from its first row: nothing was learnt by then, so nothing was asked."""
NO_MARKS = r"chat template does not contain `?\{% generation %\}"
TRAINERS = frozenset({"", "causal-lm"})


class AllLabelsMasked(Case):
    id = "all-labels-masked"
    symptoms = {"nan-at-start": 0.08, "loss-not-falling": 0.08}
    explains = ("nan-hidden-by-logging", "batch-without-targets")
    needs = ("metrics", "data", "log", "crash")
    probe = "show"
    signatures = (r"all labels in your dataset are -100", r"all (?:the )?labels are (?:-100|masked|ignored)", NO_MARKS)
    search = (
        "loss 0.0 grad_norm 0.0 from the first step",
        "ZeroDivisionError: All labels in your dataset are -100",
        "assistant_only_loss all zeros mask",
        "train_on_responses_only loss is zero",
        "labels 全是 -100",
        "loss 一直是 0 grad_norm 也是 0",
        "所有标签都被掩码",
        "assistant_only_loss 掩码全零",
    )

    en = Card(
        title="All labels are masked",
        sign="The loss prints 0.0 (or NaN) from the first step and grad_norm is 0. If grad_norm is nan instead, the loss itself is broken: that is another fault.",
        cause="Every label is -100, so the mean is taken over no token: 0/0, which the Trainer prints as 0.0. Usual reasons: the response marker does not occur in the rendered text; assistant_only_loss with a template that has no {% generation %} block; the template of another model; samples cut off before the answer begins.",
        remedy="Print the labels of one batch first. Marker wrong: use what the template really writes, in Unsloth train_on_responses_only(trainer, instruction_part='<|im_start|>user\\n', response_part='<|im_start|>assistant\\n'). Template without {% generation %}: in TRL drop assistant_only_loss and use prompt/completion data with completion_only_loss=True. Cut off: raise max_length (cutoff_len in LLaMA-Factory, sequence_len in axolotl) above the longest prompt plus answer.",
        verify="Each row of the first batch has labels that are not -100; they decode to the answer, and grad_norm is above 0.",
        prevention="Assert in the training script that every row keeps at least one label that is not -100.",
        question="Is grad_norm 0 or nan while the loss prints 0.0, and does a batch contain any label that is not -100?",
        quiz="The loss prints 0.0. What does grad_norm 0 say, and what does nan? 0: no token is trained. nan: a NaN loss that the log replaced by 0.0.",
    )
    zh = Card(
        title="labels 全被掩掉",
        sign="从第一步起 loss 就打印 0.0（或 NaN），grad_norm 是 0。如果 grad_norm 是 nan，那是 loss 本身坏了，属于另一种故障。",
        cause="labels 全是 -100，求平均时分母为 0，Trainer 打印成 0.0。常见原因：response marker 在渲染后的文本里根本没出现；开了 assistant_only_loss，模板却没有 {% generation %} 块；用了别的模型的模板；样本在回答开始之前就被截断。",
        remedy="先打印一个 batch 的 labels。marker 不对：改成模板真正写出来的，Unsloth 写 train_on_responses_only(trainer, instruction_part='<|im_start|>user\\n', response_part='<|im_start|>assistant\\n')。模板没有 {% generation %}：TRL 里关掉 assistant_only_loss，改用 prompt/completion 数据加 completion_only_loss=True。被截断：把 max_length（LLaMA-Factory 是 cutoff_len，axolotl 是 sequence_len）调到能放下最长的 prompt 加回答。",
        verify="第一个 batch 里每条样本都有不是 -100 的 label，解码出来就是回答；grad_norm 大于 0。",
        prevention="在训练脚本里断言：每条样本至少有一个 label 不是 -100。",
        question="loss 打印 0.0 时 grad_norm 是 0 还是 nan？一个 batch 里有没有不是 -100 的 label？",
        quiz="loss 打印 0.0，grad_norm 是 0 和是 nan 分别说明什么？0：没有 token 参与训练。nan：loss 是 NaN，被日志显示成了 0.0。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(metrics=run.ran(loss=[0.0] * 60, grad_norm=[0.0] * 60)),
            Evidence(data=make.rowset(200, all_masked=range(1, 191), layout="tokenised")),
            Evidence(
                crash=run.crashed(
                    "ZeroDivisionError", "Unsloth: All labels in your dataset are -100. Training losses will be all 0."
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(metrics=run.ran(loss=[0.0] * 60, grad_norm=[float("nan")] * 60)),  # a NaN that the log hides
            Evidence(data=make.rowset(200, checked=("all-masked",), layout="tokenised"), metrics=run.ran(loss=run.level(60))),
            Evidence(metrics=run.ran(loss=run.falling(100), grad_norm=run.level(100, 1.0))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = quoted(self, seen)
        if counted(seen, "all-masked") and share(seen, "all-masked") >= MASKED_SHARE:
            return self.confirmed(*rows(seen, "all-masked"), *named)
        falling = falls(seen)
        zero = _zero(seen)
        if falling is not None:
            return conclude(self, (falling, *rows(seen, "all-masked", weight=1.0)), missing=("data",))
        if named:
            return self.confirmed(*named, *zero, *setting(seen, "assistant_only_loss"))
        if zero and zero[0].weight > 6:
            return self.confirmed(*zero)
        marker = facts(seen, "marker-tokenised-alone", weight=3.0) if _nan_at_once(seen) else ()
        held = (*zero, *marker, *rows(seen, "all-masked", weight=1.0), *clean(seen, "all-masked"))
        return conclude(self, held, missing=("data", "metrics"))


def _nan_at_once(seen: Evidence) -> bool:
    """Whether the very first loss is NaN, or 0: before that nothing can have gone wrong but the loss itself."""
    form, loss = shape_of(seen), series(seen, "loss")
    return loss is not None and loss.steps[0] in {form.nan_from, form.zero_from}


def _zero(seen: Evidence) -> tuple[Exhibit, ...]:
    """A loss of 0.0 and what the gradient norm says of it."""
    form, loss = shape_of(seen), series(seen, "loss")
    if loss is None or form.kind not in TRAINERS:
        return ()
    if form.masked_from is not None:
        early = form.masked_from <= loss.steps[min(EARLY_ROWS, len(loss)) - 1]
        return (
            say(
                f"from step {form.masked_from:g} on the loss is 0.0 and grad_norm 0",
                f"从第 {form.masked_from:g} 步起 loss 为 0.0，grad_norm 也是 0",
                9.0 if early else 2.0,
                where=f"step {form.masked_from:g}",
                source=loss.source,
            ),
        )
    if form.nan_from is not None:
        weight = -3.0 if form.nan_hidden or (seen.metrics is not None and seen.metrics.get("grad_norm")) else 0.0
        told = say("the gradient is NaN, not 0: the loss itself is broken", "梯度是 NaN 而不是 0：是 loss 本身坏了", weight)
        return (told,) if weight else ()
    if form.zero_from is not None:
        weight = FROM_START if form.zero_from <= loss.steps[0] else 2.0
        text = f"the loss reads 0.0 from step {form.zero_from:g} on", f"从第 {form.zero_from:g} 步起 loss 打印 0.0"
        return (say(*text, weight),)
    return ()
