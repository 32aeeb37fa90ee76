"""Single odd rows make the loss jump."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import checked, clean, counted, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

CHECKS = ("absurd-repeat", "long")
ODD = 0.05
"""Outliers are few: what more than a twentieth of the rows share is the set's own kind."""


class OutlierBatches(Case):
    id = "outlier-batches"
    symptoms = {"loss-oscillates": 0.1}
    needs = ("metrics", "data")
    probe = "poison"
    search = (
        "single loss spikes that recover at once",
        "outlier samples cause loss spikes",
        "one batch has a much higher loss",
        "grad norm spike on a strange sample",
        "loss 偶尔冒一个尖峰又恢复",
        "个别异常样本导致 loss 尖峰",
        "某个 batch 的 loss 特别高",
        "离群样本",
    )

    en = Card(
        title="A few odd rows make the loss spike",
        sign="The loss is smooth except for single spikes that are gone at the next step; grad_norm spikes with it.",
        cause="A batch contains rows unlike all others: a page of repeated characters, a base64 block, another language, a far too long text. The loss of that batch is high, and with a small batch nothing averages it out.",
        remedy="Compute the loss of every row once (forward only), read the 20 highest, and drop repeats and base64 blocks. max_grad_norm=1.0 (max_grad_norm: 1.0 in LLaMA-Factory and axolotl) limits what one batch can do; a larger gradient_accumulation_steps averages it out.",
        verify="With the same seed and without those rows, the spikes at those steps are gone.",
        prevention="Before training score every row by the base model's loss and read both ends of the list.",
        question="Is the loss back to normal within a step or two after each spike, and which rows were in those batches?",
        quiz="At a spike grad_norm is 40, and max_grad_norm is 1.0. How much does that step move the weights? No more than a step with grad_norm 1.0.",
    )
    zh = Card(
        title="少数异常样本造成 loss 尖峰",
        sign="loss 整体平滑，偶尔冒出一个尖峰，下一步就恢复；grad_norm 同步冒尖。",
        cause="某个 batch 里碰进了和其他样本完全不同的几条：整页重复字符、base64、别的语言、特别长的文本。这个 batch 的 loss 就高，batch 小的话也没有别的样本来平均。",
        remedy="只做前向，把每条样本的 loss 算一遍，看最高的 20 条，删掉重复串和 base64。max_grad_norm=1.0（LLaMA-Factory、axolotl 同名）能限制单个 batch 的影响；加大 gradient_accumulation_steps 可以摊薄。",
        verify="同一个种子，去掉这些样本后，那几步不再有尖峰。",
        prevention="训练前用 base 模型给每条样本算 loss，最高和最低的都看一看。",
        question="尖峰是不是一两步就恢复？那些 batch 里是哪些样本？",
        quiz="尖峰那步 grad_norm 是 40，max_grad_norm 是 1.0，这一步对权重影响多大？不会超过 grad_norm 为 1.0 的一步。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                metrics=run.ran(loss=make.peaks(run.falling(200, noise=0.02), (60, 130, 171), 6.0)),
                data=make.rowset(3000, absurd_repeat=(77, 1500), example="0000000000000000"),
            ),
            Evidence(
                metrics=run.ran(loss=make.peaks(run.falling(300, noise=0.02), (90, 222), 7.0)),
                data=make.rowset(3000, long=(412, 2099)),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                metrics=run.ran(loss=make.peaks(run.falling(200, noise=0.02), (60, 130, 171), 6.0)),
                data=make.rowset(3000, checked=CHECKS),
            ),
            Evidence(metrics=run.ran(loss=run.falling(200, noise=0.02)), data=make.rowset(3000, absurd_repeat=(5,))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form = shape_of(seen)
        if form.points < 10:
            return self.not_checked("metrics", exhibits=rows(seen, *CHECKS, weight=0.0))
        if not form.spikes:
            return self.ruled_out(say("the loss has no isolated peaks", "loss 没有孤立的尖峰", -5.0))
        told = _peaks(form.spikes)
        few = counted(seen, *CHECKS) and share(seen, *CHECKS) <= ODD
        if few and len(form.spikes) >= 2:
            return self.confirmed(told, *rows(seen, *CHECKS, weight=4.0))
        against = clean(seen, *CHECKS, weight=-4.0) if checked(seen, *CHECKS) else ()
        return conclude(self, (told, *against), missing=("data",))


def _peaks(spikes: tuple[float, ...]) -> Exhibit:
    listed = ", ".join(f"{step:g}" for step in spikes[:5])
    return say(
        f"{len(spikes)} isolated loss peaks, at step {listed}",
        f"{len(spikes)} 个孤立的 loss 尖峰，在第 {listed} 步",
        2.0,
        where=f"step {spikes[0]:g}",
    )
