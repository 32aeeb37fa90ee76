"""Training starts at the full rate, without a warm-up."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrast_exhibit, contrasts
from tuneclinic.casebook.learning._facts import as_number, conclude, finite, number, say, series, setting, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

EARLY = 0.1
"""Share of the run in which a missing warm-up does its harm: usual warm-ups are 3 to 10 % of the steps, and Adam's second moments
have settled by then."""
FULL_AT_ONCE = 0.5
"""Share of the peak rate in the first logged row above which there was no warm-up."""


class NoWarmup(Case):
    id = "no-warmup"
    symptoms = {"loss-diverges": 0.2}
    stage = "hyperparameters"
    needs = ("metrics",)
    probe = "range-test"
    change = {"warmup_ratio": 0.05}
    search = (
        "loss spikes in the first steps without warmup",
        "warmup_steps 0 loss diverges",
        "没有 warmup loss 一开始就炸",
        "没加预热 loss 发散",
    )

    en = Card(
        title="No warm-up",
        sign="The loss jumps within the first dozens of steps and stays high, at a learning rate that is usual for this method. The first log row already shows the peak learning rate.",
        cause="Adam divides by a running estimate of the squared gradient. In the first steps that estimate comes from a few batches only, so with the full learning rate some steps are far too long, and the weights do not recover.",
        remedy="Use 3 to 10 % of the steps for a linear warm-up: warmup_ratio: 0.05 (same key in LLaMA-Factory and axolotl; from transformers 5 write warmup_steps: 0.05). Start again from the base weights: those of the failed run are damaged.",
        verify="The first log row shows a small fraction of the peak rate, and the loss falls through the first hundred steps without a jump.",
        prevention="Make warm-up part of the recipe template. Runs of fewer than 100 updates still need at least 5 to 10 warm-up steps.",
        question="Is warmup_ratio or warmup_steps set, and what learning rate does the first log row show?",
        quiz="A run tolerates 2e-4 later but fails with 2e-4 at step one. Why? Adam's second moment is not reliable yet, so the same rate makes much longer steps.",
    )
    zh = Card(
        title="没有 warmup",
        sign="头几十步 loss 就跳上去下不来，而这个学习率对这种方法来说是常用值；日志第一行打印的就是峰值学习率。",
        cause="Adam 要除以梯度平方的滑动估计，最初几步这个估计只来自几个 batch，很不准；这时直接用满学习率，某些方向一步迈得太大，权重就回不来了。",
        remedy="拿 3%～10% 的步数做线性 warmup：warmup_ratio: 0.05（LLaMA-Factory、axolotl 键名相同；transformers 5 起写 warmup_steps: 0.05），并从 base 权重重新开始，跑坏的那份权重不能再用。",
        verify="日志第一行的学习率只是峰值的一小部分，前一百步平稳下降、没有跳变。",
        prevention="把 warmup 写进配方模板。总更新数不到 100 步的短任务，也至少留 5～10 步。",
        question="设了 warmup_ratio 或 warmup_steps 吗？日志第一行的学习率是多少？",
        quiz="后面能承受 2e-4，为什么第一步用 2e-4 会发散？因为 Adam 的二阶矩还没估准，同样的学习率实际步子大得多。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="full", learning_rate=5e-5, warmup_ratio=0.0),
                metrics=make.ran(loss=make.blows_up(at=8), learning_rate=make.peaked(peak=5e-5, warmup=0)),
                attempts=make.tried(("with-warmup", {"method": "full", "learning_rate": 5e-5, "warmup_ratio": 0.05}, 1.6, 0.9)),
            ),
            Evidence(
                settings=make.configured("axolotl", method="lora", learning_rate=2e-4, warmup_steps=0),
                metrics=make.ran(loss=make.blows_up(300, at=10, end=6.0), learning_rate=make.peaked(300, warmup=0)),
                attempts=make.tried(("b", {"method": "lora", "learning_rate": 2e-4, "warmup_steps": 30}, 1.6, 1.0)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same rise, after a warm-up
                settings=make.configured(method="full", learning_rate=5e-5, warmup_ratio=0.05),
                metrics=make.ran(loss=make.blows_up(at=60), learning_rate=make.peaked(peak=5e-5)),
            ),
            Evidence(  # no warm-up, and it does no harm
                settings=make.configured(method="lora", learning_rate=2e-4, warmup_ratio=0.0),
                metrics=make.ran(loss=make.falling(), learning_rate=make.peaked(warmup=0)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, loss = shape_of(seen), series(seen, "loss")
        if loss is None or not form.points:
            return self.not_checked("metrics")
        if form.diverged_from is None:
            return self.ruled_out(say("the loss does not diverge", "loss 没有发散", -6.0))
        warm, shown = _warmed(seen)
        if warm is None:
            return self.not_checked("settings")
        if warm:
            return self.ruled_out(*shown)
        share = (form.diverged_from - float(loss.steps[0])) / max(1.0, float(loss.steps[-1] - loss.steps[0]))
        early = say(
            f"the loss rises from step {form.diverged_from:g} on, {share:.0%} into the run",
            f"loss 从第 {form.diverged_from:g} 步（全程 {share:.0%} 处）开始上升",
            2.0 if share <= EARLY else -3.0,
        )
        proofs = [
            contrast_exhibit(contrast, name)
            for name in ("warmup_ratio", "warmup_steps")
            for contrast in contrasts(seen, name)
            if (as_number(contrast.other) or 0) > 0 and _stayed_down(contrast.attempt.first_loss, contrast.attempt.last_loss)
        ]
        return conclude(self, (*proofs, *shown, early), proof=bool(proofs) and share <= EARLY)


def _stayed_down(first: float | None, last: float | None) -> bool:
    return first is not None and last is not None and last < first


def _warmed(seen: Evidence) -> tuple[bool | None, tuple[Exhibit, ...]]:
    """Whether there was a warm-up, by the log first and by the settings else, with the exhibits."""
    rates = finite(seen, "learning_rate")
    if rates.size > 1 and rates.max() > 0:
        share = float(rates[0] / rates.max())
        warm = share < FULL_AT_ONCE
        text = say(
            f"the first log row shows {share:.0%} of the peak learning rate",
            f"日志第一行的学习率是峰值的 {share:.0%}",
            -5.0 if warm else 2.0,
        )
        return warm, (text, *setting(seen, "warmup_ratio"), *setting(seen, "warmup_steps"))
    planned = [value for value in (number(seen, "warmup_ratio"), number(seen, "warmup_steps")) if value is not None]
    if not planned:
        return None, ()
    warm = max(planned) > 0
    weight = -5.0 if warm else 1.5
    return warm, (*setting(seen, "warmup_ratio", weight), *setting(seen, "warmup_steps", weight))
