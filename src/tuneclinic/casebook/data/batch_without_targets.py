"""Single batches hold no label to learn from."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, line_count, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, lines, say, series, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

CHECKS = ("all-masked", "no-target", "empty-answer")
MOSTLY = 0.5
"""As for all-labels-masked: where most rows are masked, it is that case and not this one."""
IGNORED_LINE = r"this instance will be ignored in loss"


class BatchWithoutTargets(Case):
    id = "batch-without-targets"
    symptoms = {"nan-mid-run": 0.09, "eval-erratic": 0.05}
    needs = ("metrics", "data", "log")
    probe = "show"
    signatures = (IGNORED_LINE,)
    search = (
        "isolated NaN loss then back to normal",
        "eval_loss nan while training loss is fine",
        "batch with all labels -100 gives nan",
        "cross entropy of no tokens is nan",
        "偶尔某一步 loss 变 NaN 又恢复",
        "eval_loss 是 nan 训练 loss 正常",
        "某个 batch 里 labels 全是 -100",
        "单条样本没有可训练的 token",
    )

    en = Card(
        title="Some batches have no token to train",
        sign="The loss is NaN (or 0.0 with grad_norm 0) at single steps and normal at the next one; or eval_loss is nan while training is fine.",
        cause="The mean over zero trained tokens is 0/0. One batch in which all rows are masked is enough: answers cut off by the maximum length, rows without an answer, a response marker that some rows lack. The smaller the batch, the likelier it is; evaluation with batch size 1 is hit most.",
        remedy="Filter such rows before training: dataset.filter(lambda row: any(label != -100 for label in row['labels'])). If they were cut off, raise max_length (cutoff_len in LLaMA-Factory, sequence_len in axolotl). Filter the evaluation set too; a larger per_device_eval_batch_size only hides the problem.",
        verify="No single step is NaN any more, and every batch has more than 0 trained tokens.",
        prevention="Count the trained tokens of each row in preprocessing, drop rows with none, and print how many were dropped.",
        question="Is the NaN a single step with normal values before and after it, and how many rows have nothing but -100 as labels?",
        quiz="Why is this harder to see with gradient accumulation? One NaN micro-batch makes the whole step NaN, and the Trainer's NaN filter then prints the running mean instead.",
    )
    zh = Card(
        title="个别 batch 没有训练目标",
        sign="某一步 loss 变 NaN（或 0.0 且 grad_norm 为 0），下一步又正常；或者训练正常、eval_loss 却是 nan。",
        cause="对 0 个 token 求平均就是 0/0。只要有一个 batch 里的样本全被掩掉就会出现：回答被最大长度截掉、样本本来就没有回答、个别样本里找不到 response marker。batch 越小越容易碰上，eval batch size 为 1 时最明显。",
        remedy="训练前过滤掉：dataset.filter(lambda row: any(label != -100 for label in row['labels']))。如果是被截断的，调大 max_length（LLaMA-Factory 的 cutoff_len、axolotl 的 sequence_len）。验证集也要过滤，单靠加大 per_device_eval_batch_size 只是把问题盖住。",
        verify="不再有单步 NaN；每个 batch 参与训练的 token 数都大于 0。",
        prevention="预处理时统计每条样本参与训练的 token 数，为 0 的丢掉并打印条数。",
        question="NaN 是不是孤立的一步，前后都正常？有多少条样本的 labels 全是 -100？",
        quiz="为什么开了梯度累积更难发现？一个 micro-batch 是 NaN，整步就是 NaN，Trainer 的 NaN 过滤再打印成滑动平均，看着就正常了。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                metrics=run.ran(loss=make.once(run.falling(100), 40, float("nan")), grad_norm=run.level(100, 1.0)),
                data=make.rowset(400, all_masked=(17, 203), layout="tokenised"),
            ),
            Evidence(
                metrics=run.ran(
                    loss=make.once(run.falling(100), 30, 0.0),
                    grad_norm=make.once(run.level(100, 1.0), 30, 0.0),
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                metrics=run.ran(loss=run.then(run.falling(100), float("nan"), 40)),
                data=make.rowset(400, checked=("all-masked", "no-target")),
            ),
            Evidence(
                metrics=run.ran(loss=run.falling(100), grad_norm=run.level(100, 1.0)),
                data=make.rowset(400, checked=("no-target",)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if not any(seen.has(name) for name in self.needs):
            return self.not_checked(*self.needs)
        wide = share(seen, "all-masked") >= MOSTLY if counted(seen, "all-masked") else False
        found = () if wide else rows(seen, *CHECKS, weight=3.0)
        shown = _shown(seen)
        warned = lines(seen, IGNORED_LINE, weight=2.0)[:1] if line_count(seen, IGNORED_LINE) else ()
        if shown and shown[0].weight > 6:
            return self.confirmed(*shown, *found, *warned)
        if shown and shown[0].weight > 0 and (found or warned):
            return self.confirmed(*shown, *found, *warned)
        if shown:
            return conclude(self, (*shown, *clean(seen, *CHECKS)), missing=("data",))
        light = rows(seen, *CHECKS, weight=0.5) if found else ()
        return conclude(self, (*light, *_finite(seen), *(clean(seen, *CHECKS) if not found else ())), missing=("metrics",))


def _shown(seen: Evidence) -> tuple[Exhibit, ...]:
    """Single rows without a loss, or an evaluation loss that is NaN beside a finite training loss."""
    form = shape_of(seen)
    if form.masked_rows and form.masked_from is None and form.points > 5 and (form.last or 0.0) > 0.05:
        return (
            say(
                f"{form.masked_rows} logged row(s) with loss 0 and grad_norm 0 among finite ones",
                f"正常记录中间有 {form.masked_rows} 行 loss 为 0、grad_norm 为 0",
                8.0,
            ),
        )
    if form.nan_isolated and form.nan_from is not None:
        return (
            say(
                f"the loss is NaN at step {form.nan_from:g} and finite again after it",
                f"第 {form.nan_from:g} 步 loss 为 NaN，之后又恢复正常",
                1.0,
                where=f"step {form.nan_from:g}",
            ),
        )
    evaluation = series(seen, "eval_loss")
    if evaluation is not None and form.nan_from is None and form.points > 5:
        broken = [index for index, value in enumerate(evaluation.values) if value != value]  # noqa: PLR0124 - NaN differs from itself
        if broken:
            told = say(
                "eval_loss is NaN while the training loss is finite",
                "训练 loss 正常，eval_loss 却是 NaN",
                3.0,
                where=evaluation.where(broken[0]),
            )
            return (told,)
    return ()


def _finite(seen: Evidence) -> tuple[Exhibit, ...]:
    form = shape_of(seen)
    if form.points < 10 or form.nan_from is not None or form.zero_from is not None or form.masked_rows:
        return ()
    return (say(f"all {form.points} logged losses are finite and above 0", f"{form.points} 个 loss 记录全都有限且大于 0", -4.0),)
