"""The schedule runs N times too fast on N cards."""

from __future__ import annotations

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import alone, processes
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, say, series, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment

FACT = "scheduler-multiplied"
AGREES = 0.04
"""Relative distance within which the schedule's end lies at 1/N of the run: logging every ten steps of a few hundred."""
SURE = 3
"""Processes from which that place is no coincidence: a schedule planned for half the epochs also ends at a half."""


class SchedulerSteppedPerProcess(Case):
    id = "scheduler-stepped-per-process"
    symptoms = {"multi-gpu-odd": 0.07}
    stage = "environment"
    needs = ("script", "metrics", "environment")
    probe = "environment"
    explains = ("schedule-runs-dry",)
    search = (
        "learning rate reaches zero too early with multiple GPUs accelerate",
        "lr_scheduler stepped num_processes times",
        "warmup finishes 4 times too fast with accelerate",
        "accelerate 多卡 学习率提前降到 0",
        "scheduler 多走了几倍步数",
        "多卡 warmup 变短",
    )

    en = Card(
        title="The scheduler runs N times too fast",
        sign="On N GPUs warm-up is N times shorter and the learning rate is 0 after 1/N of the run. On one GPU the same script is right.",
        cause="A scheduler prepared by accelerate steps once per process in every update. This is by design: it expects a total counted for one process. The script has already divided the total by the number of processes, so it is divided twice.",
        remedy="Give get_scheduler the total of one process: num_training_steps = len(loader_before_prepare) * epochs // accumulation, or multiply your number by accelerator.num_processes. Alternatively do not prepare the scheduler, or set Accelerator(step_scheduler_with_optimizer=False).",
        verify="The logged learning rate reaches its peak at the planned step and its end value at the last step, on one GPU and on four.",
        prevention="Log the learning rate and assert that it is above 0 until the last tenth of the run.",
        question="At which step, of how many, is the learning rate 0, and how many processes are there?",
        quiz="On four GPUs accelerate steps the scheduler four times per update. Is that a bug? No, it is by design. It becomes a fault only when the total was already divided by four.",
    )
    zh = Card(
        title="学习率调度快了 N 倍",
        sign="N 卡时 warmup 短了 N 倍，训练才走 1/N 学习率就到 0；同一脚本单卡正常。",
        cause="accelerate prepare 过的 scheduler 每次更新会按进程数走 N 步，这是设计如此，前提是总步数按单进程算。脚本里已经把总步数除过进程数，就等于除了两次。",
        remedy="给 get_scheduler 单进程的总步数：num_training_steps = len(prepare 之前的 loader) * epochs // 累积步数，或把自己的数乘上 accelerator.num_processes；也可以不 prepare scheduler，或 Accelerator(step_scheduler_with_optimizer=False)。",
        verify="日志里的学习率在计划的步数到峰值，最后一步才到终点值；单卡、四卡都一样。",
        prevention="学习率打进日志，断言在最后 10% 的步数之前都大于 0。",
        question="总共多少步，学习率在第几步到 0？几个进程？",
        quiz="四卡时 accelerate 每次更新把 scheduler 走四步，是 bug 吗？不是，设计如此；只有总步数已经除过四才出问题。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(FACT, quote="num_training_steps=steps // accelerator.num_processes")),
            Evidence(
                environment=Environment(processes=4),
                metrics=make.ran(loss=make.falling(200), learning_rate=make.then(make.peaked(200, warmup=5), 0.0, 50)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # prepared, stepped per process, and the total is right
                script=make.scripted(checked=(FACT,)), environment=Environment(processes=4)
            ),
            Evidence(environment=Environment(processes=4), metrics=make.ran(loss=make.falling(), learning_rate=make.peaked())),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        found, early = facts(seen, FACT), _early(seen)
        shown = (early,) if early is not None else ()
        fact = seen.script.fact(FACT) if seen.script is not None else None
        sharded = fact is not None and "batches of one process" in fact.detail
        if sharded and processes(seen) is None and shape_of(seen).dead_learning_rate_from is None:
            return self.suspected(*found, missing=("environment",))  # right on a single process, and how many trained is unknown
        if found or (early is not None and early.weight > 5):
            return self.confirmed(*found, *shown)
        against = clean(seen, FACT)
        if against and (early is None or early.weight <= 0):
            return self.ruled_out(*against, *shown)
        if early is None:
            return self.not_checked("script", "metrics")
        return self.suspected(early, missing=("script",)) if early.weight > 0 else self.ruled_out(early)


def _early(seen: Evidence) -> Exhibit | None:
    """Where the learning rate ends, beside 1/N of the run; None where either is not known or the place is another."""
    rates, count, loss = series(seen, "learning_rate"), processes(seen), series(seen, "loss")
    if rates is None or count is None or count < 2 or len(rates) < 10:
        return None
    dead, end = shape_of(seen).dead_learning_rate_from, float((loss or rates).steps[-1])
    total = seen.metrics.total_steps if seen.metrics is not None and seen.metrics.total_steps else end
    if dead is None:
        return say("the learning rate is above 0 until the end", "学习率一直有值到最后", -4.0)
    if total <= 0 or abs(dead * count / total - 1) > AGREES:
        return None
    return say(
        f"the learning rate is 0 from step {dead:g} of {total:g} on, which is 1/{count} of the run on {count} processes",
        f"共 {total:g} 步，学习率从第 {dead:g} 步起为 0，正好是 1/{count}，而进程数是 {count}",
        6.0 if count >= SURE else 3.0,
        where=f"step {dead:g}",
    )
