"""Every process reads the whole data set."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import alone, rank_losses, shards
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Environment, Metrics, Series

FACT = "loader-not-distributed"


def _ranks(shift: float) -> Metrics:
    loss = make.falling(40)
    held = {rank: {"loss": Series.of(loss + rank * shift, source=f"rank{rank}.log")} for rank in (0, 1)}
    return Metrics({"loss": held[0]["loss"]}, by_rank=held, source="rank0.log")


class SamplerNotDistributed(Case):
    id = "sampler-not-distributed"
    symptoms = {"multi-gpu-odd": 0.25}
    stage = "environment"
    needs = ("script", "settings", "metrics")
    probe = "environment"
    search = (
        "DDP every GPU sees the same data",
        "DataLoader without DistributedSampler",
        "epoch has the same number of steps on 4 GPUs as on 1",
        "多卡每张卡数据一样",
        "DDP 忘了 DistributedSampler",
        "多卡训练时间没有缩短 每卡跑完整数据",
    )

    en = Card(
        title="The DataLoader is not split across GPUs",
        sign="An epoch has as many steps on four GPUs as on one, more GPUs bring no speed, and ranks with the same seed see exactly the same batches.",
        cause="The model is wrapped in DDP or FSDP, but the DataLoader is not distributed: each process goes through the whole data set. With equal seeds the averaged gradient equals that of one GPU; with different seeds each epoch is really N epochs.",
        remedy="Use sampler = DistributedSampler(dataset, shuffle=True) and DataLoader(dataset, sampler=sampler, batch_size=…) without shuffle=True, and call sampler.set_epoch(epoch) each epoch. Or let accelerator.prepare(loader) do it. For an IterableDataset: datasets.distributed.split_dataset_by_node(dataset, rank=rank, world_size=world_size).",
        verify="Print the first ten sample ids on each rank: no id appears twice. On four GPUs len(loader) is a quarter of what it is on one.",
        prevention="At the start, gather sample ids from all ranks and assert that they are distinct; ten steps on two processes are enough.",
        question="How many steps has one epoch on one GPU and on all GPUs, and which sample ids does each rank print?",
        quiz="12,000 samples, batch 4, 4 GPUs, and the progress bar says 3000 steps per epoch. What is wrong? 750 would be right: each rank goes through the whole set.",
    )
    zh = Card(
        title="DataLoader 没有按卡切分",
        sign="四卡一个 epoch 的步数和单卡一样，加卡不提速；seed 相同时各 rank 看到的 batch 完全一样。",
        cause="模型包了 DDP 或 FSDP，DataLoader 没有：每个进程都把整个数据集跑一遍。seed 相同，平均后的梯度等于单卡的；seed 不同，一个 epoch 实际上是 N 个 epoch。",
        remedy="sampler = DistributedSampler(dataset, shuffle=True)，DataLoader(dataset, sampler=sampler, batch_size=…)，不要再写 shuffle=True，每个 epoch 调 sampler.set_epoch(epoch)。或者交给 accelerator.prepare(loader)。IterableDataset 用 datasets.distributed.split_dataset_by_node(dataset, rank=rank, world_size=world_size)。",
        verify="每个 rank 打印前十个样本 id，互不重复；四卡时 len(loader) 是单卡的四分之一。",
        prevention="开训时断言各 rank 收集到的 id 互不相同；两个进程跑十步就够。",
        question="单卡和多卡各是一个 epoch 多少步？每个 rank 打印出来的样本 id 是哪些？",
        quiz="12000 条样本，batch 4，4 卡，进度条显示每 epoch 3000 步，哪里不对？应该是 750 步，现在每个 rank 都在跑全量。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted(FACT, quote="loader = DataLoader(train_set, batch_size=4, shuffle=True)"),
                metrics=_ranks(0.0),
            ),
            Evidence(
                script=make.scripted(FACT, quote="train_loader = DataLoader(dataset, batch_size=8)"),
                environment=Environment(processes=8),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                metrics=_ranks(0.0), script=make.scripted(checked=(FACT,))
            ),  # equal losses that were averaged before the log
            Evidence(  # the same loader, one process
                script=make.scripted(FACT, quote="loader = DataLoader(train_set, shuffle=True)"),
                environment=Environment(processes=1),
            ),
            Evidence(settings=make.configured("llama-factory", processes=4), metrics=make.ran(loss=make.falling())),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        found = facts(seen, FACT)
        same = rank_losses(seen)
        losses = (same[1],) if same is not None else ()
        if found:
            return self.confirmed(*found, *(losses if same is not None and same[0] else ()))
        against = (*clean(seen, FACT), *shards(seen))
        if against:
            return self.ruled_out(*against)
        if same is not None and not same[0]:
            return self.ruled_out(*losses)
        return self.not_checked("script")
