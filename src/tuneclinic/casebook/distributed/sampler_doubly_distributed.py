"""The data are split among the processes twice."""

from __future__ import annotations

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import alone, processes, shards
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, number, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment, Setting, Settings

FACT = "loader-doubly-distributed"
AGREES = 0.04
"""Relative distance within which a count of steps is that of the data split once more: two partial batches in fifty."""
FEWEST_STEPS = 20
"""Steps an epoch from which rounding of the last batch stays below `AGREES`."""


def _counted(steps: float, **values: object) -> Settings:
    held = make.configured("pytorch", **values)
    unknown = {"num_examples": Setting(12000, "train.log:3", "train.log", "Num examples")}
    return Settings(
        held.values, held.framework, {**unknown, "total_steps": Setting(steps, "train.log:4", "train.log", "Total steps")}
    )


class SamplerDoublyDistributed(Case):
    id = "sampler-doubly-distributed"
    symptoms = {"multi-gpu-odd": 0.13}
    stage = "environment"
    needs = ("script", "settings")
    probe = "environment"
    search = (
        "DistributedSampler and accelerator.prepare together",
        "epoch is much shorter on multiple GPUs than expected",
        "only a quarter of the data is used with accelerate",
        "DistributedSampler 和 accelerate prepare 重复切分",
        "多卡一个 epoch 步数变少 数据没用全",
        "数据被切了两次",
    )

    en = Card(
        title="The data is split across GPUs twice",
        sign="On N GPUs an epoch has N times fewer steps than it should, part of the samples is never seen, and the result is worse than on one GPU.",
        cause="The script uses a DistributedSampler or dataset.shard(), and accelerator.prepare, the Trainer or Lightning splits the data once more. Each rank then sees 1/N² of the data.",
        remedy="Keep one of the two. With accelerate or the Trainer: a plain DataLoader(dataset, shuffle=True), no sampler, no dataset.shard(). With Lightning: Trainer(use_distributed_sampler=False) if you need your own sampler.",
        verify="In one epoch the number of distinct sample ids over all ranks equals the size of the data set, and so does len(loader) × batch × ranks.",
        prevention="Count the sample ids of one epoch in a two-process dry run.",
        question="Is there a DistributedSampler or shard() in the script, and is the loader also given to prepare() or a Trainer?",
        quiz="16,000 samples, batch 4, 4 GPUs, 250 steps per epoch. How often was the set split? Twice: split once it would be 1000 steps.",
    )
    zh = Card(
        title="数据被切分了两次",
        sign="N 张卡时一个 epoch 的步数比该有的还少 N 倍，有一部分样本永远没训到，效果不如单卡。",
        cause="脚本里已经用了 DistributedSampler 或 dataset.shard()，accelerator.prepare、Trainer 或 Lightning 又切了一遍，每个 rank 只看到 1/N² 的数据。",
        remedy="二选一。用 accelerate 或 Trainer：普通 DataLoader(dataset, shuffle=True)，不带 sampler，不 dataset.shard。Lightning 非要自己的 sampler，就 Trainer(use_distributed_sampler=False)。",
        verify="一个 epoch 里所有 rank 的样本 id 去重后，个数等于数据集大小，len(loader) × batch × 卡数也等于它。",
        prevention="两个进程试跑一个 epoch，数一遍样本 id。",
        question="脚本里有没有 DistributedSampler 或 shard()？loader 是不是又交给了 prepare() 或 Trainer？",
        quiz="16000 条样本，batch 4，4 卡，每 epoch 250 步，数据切了几次？两次：切一次应该是 1000 步。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(FACT, quote="loader = DataLoader(ds, sampler=DistributedSampler(ds))")),
            Evidence(
                script=make.scripted(FACT, quote="model, opt, loader = accelerator.prepare(model, opt, loader)"),
                settings=_counted(188, batch_per_device=4, accumulation=1, epochs=1, processes=4),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=(FACT,))),
            Evidence(  # short epochs from a large batch, split once
                settings=_counted(94, batch_per_device=32, accumulation=1, epochs=1, processes=4),
                environment=Environment(processes=4),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        found, counted = facts(seen, FACT), _counted_steps(seen)
        count = (counted,) if counted is not None else ()
        if found:
            return self.confirmed(*found, *count)
        against = (*clean(seen, FACT), *shards(seen))
        if against:
            return self.ruled_out(*against)
        if counted is not None:
            return self.suspected(counted, missing=("script",)) if counted.weight > 0 else self.ruled_out(counted)
        return self.not_checked("script")


def _counted_steps(seen: Evidence) -> Exhibit | None:
    """Steps that the log announces beside those that the data make; None where a number is missing or neither fits."""
    settings, ranks = seen.settings, processes(seen)
    if settings is None or not ranks or ranks < 2 or number(seen, "max_steps") not in (None, -1.0, 0.0):
        return None
    rows, steps = settings.unknown.get("num_examples"), settings.unknown.get("total_steps")
    batch, epochs = number(seen, "batch_per_device"), number(seen, "epochs")
    if rows is None or steps is None or not batch or not epochs:
        return None
    try:
        expected = float(rows.value) / (batch * (number(seen, "accumulation") or 1) * ranks) * epochs
        ratio = float(steps.value) / expected
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
    if expected / epochs < FEWEST_STEPS:
        return None
    once, twice = abs(ratio - 1) <= AGREES, abs(ratio * ranks - 1) <= AGREES
    if not once and not twice:
        return None
    return say(
        f"{rows.value} rows on {ranks} ranks make {expected:.0f} steps; the log says {steps.value}",
        f"{rows.value} 条数据、{ranks} 个 rank 应有 {expected:.0f} 步；日志写的是 {steps.value}",
        3.0 if twice else -4.0,
        section="settings",
        where=steps.where,
        source=steps.source,
    )
