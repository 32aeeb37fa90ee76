"""The learning-rate schedule reaches zero while the run goes on."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, facts, say, series, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

EARLY = 0.9
"""Share of the run before which a rate of 0 is early: linear and cosine schedules end within the last step, and logs round."""


class ScheduleRunsDry(Case):
    id = "schedule-runs-dry"
    symptoms = {"loss-at-uniform": 0.05, "loss-not-falling": 0.07}
    stage = "hyperparameters"
    needs = ("metrics",)
    probe = "show"
    change = {"scheduler": "cosine"}
    search = (
        "learning rate becomes 0 in the middle of training",
        "no change after step 300, lr is 0",
        "scheduler decays too fast on multiple gpus",
        "学习率提前变成 0",
        "训练到一半 lr 归零 loss 不动",
    )

    en = Card(
        title="The learning rate reaches 0 too early",
        sign="The loss falls, then stops changing at one step. From the same step on the logged learning rate is 0, although hundreds of steps remain.",
        cause="The scheduler was given fewer steps than the run makes, or it is stepped too often: in every micro-batch instead of every update, or once per process by accelerate when the total was already divided. Reusing the total of the first part after a resume does it too.",
        remedy="Give the scheduler the number of optimizer updates of the whole run: rows ÷ global batch × epochs. Call scheduler.step() once, after optimizer.step(). With a scheduler prepared by accelerate pass the total for one process (updates × processes).",
        verify="Without training, print the learning rate at 0, 50 and 100 % of the steps: it reaches its end value only in the last step.",
        prevention="Log the learning rate next to the loss, and assert after the first epoch that it is above zero.",
        question="What learning rate does the log show in the middle of the run?",
        quiz="On one GPU the run learns, on four it stops learning after a quarter of the steps. What do you check first? The learning rate: a prepared scheduler steps once per process, four times as fast as planned.",
    )
    zh = Card(
        title="学习率调度提前归零",
        sign="loss 先降，从某一步起突然不动了；日志里的学习率从同一步起就是 0，而后面还有几百步。",
        cause="给调度器的总步数比实际少，或者 step 次数太多：在每个 micro-batch 里都调了 scheduler.step()，或者 accelerate 按进程数多走了步，而总步数又已经除过进程数。断点续训时沿用第一段的总步数也会这样。",
        remedy="总步数按整个训练的优化器更新次数算：样本数 ÷ global batch × epoch。scheduler.step() 只在 optimizer.step() 之后调一次；用 accelerate prepare 过的 scheduler，总步数要按单进程给（更新次数 × 进程数）。",
        verify="不训练，只打印 0%、50%、100% 处的学习率：只有最后一步才到终点值。",
        prevention="日志里学习率和 loss 一起打；跑完第一个 epoch 断言学习率大于 0。",
        question="训练跑到一半时，日志里的学习率是多少？",
        quiz="单卡能学，四卡跑到四分之一就不动了，先看什么？先看学习率：prepare 过的 scheduler 每个进程各走一步，比计划快四倍。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(
                    loss=make.then(make.falling(400), make.level(320, 1.45), 80),
                    learning_rate=make.then(make.peaked(400), 0.0, 80),
                )
            ),
            Evidence(
                script=make.scripted("scheduler-in-microstep", quote="scheduler.step()"),
                metrics=make.ran(
                    loss=make.then(make.falling(300, 3.0), make.level(250, 2.4), 50),
                    learning_rate=make.then(make.peaked(300, 1e-4), 0.0, 50),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(metrics=make.ran(loss=make.level(200, 2.1), learning_rate=make.peaked())),  # flat, and the rate is on
            Evidence(
                metrics=make.ran(loss=make.falling(), learning_rate=make.then(make.peaked(), 0.0, 199))
            ),  # ends at 0 as planned
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, rates, loss = shape_of(seen), series(seen, "learning_rate"), series(seen, "loss")
        if rates is None:
            return self.not_checked("metrics")
        dead = form.dead_learning_rate_from
        end = float(loss.steps[-1] if loss is not None else rates.steps[-1])
        never_on = dead is not None and dead <= rates.steps[0]
        if dead is None or never_on or dead >= EARLY * end or form.nan_from is not None:
            last = float(rates.values[-1])
            return self.ruled_out(
                say(
                    f"the learning rate is above 0 until the end ({last:g} in the last row)",
                    f"学习率到最后都大于 0（最后一行 {last:g}）",
                    -8.0,
                )
            )
        causes = facts(seen, "scheduler-in-microstep", "scheduler-multiplied", weight=2.0)
        shown = say(
            f"the learning rate is 0 from step {dead:g} on; the run goes on to step {end:g}",
            f"学习率从第 {dead:g} 步起就是 0，而训练一直跑到第 {end:g} 步",
            9.0,
            where=f"step {dead:g}",
            source=rates.source,
        )
        return conclude(self, (shown, *causes), proof=True, change={})
