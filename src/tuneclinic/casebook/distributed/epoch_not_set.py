"""The sampler is never told the epoch."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import alone, shards
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, number, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Environment

FACT = "set-epoch-missing"


class EpochNotSet(Case):
    id = "epoch-not-set"
    symptoms = {"multi-gpu-odd": 0.12}
    stage = "environment"
    needs = ("script", "settings")
    probe = "environment"
    search = (
        "DistributedSampler same order every epoch",
        "sampler.set_epoch not called",
        "same batches in every epoch with DDP",
        "DistributedSampler 每个 epoch 顺序一样",
        "忘了 set_epoch",
        "DDP 每轮 shuffle 不变",
    )

    en = Card(
        title="set_epoch is never called",
        sign="Under DDP every epoch brings the same batches in the same order; the loss curve of one epoch repeats the bumps of the one before.",
        cause="DistributedSampler shuffles with seed + epoch, and the epoch stays 0 until someone calls set_epoch. For the same reason a resumed run starts with the order of epoch 0 again.",
        remedy="In the loop `for epoch in range(start_epoch, epochs):` call train_sampler.set_epoch(epoch) before you iterate over the loader. accelerate: a loader from accelerator.prepare does it by itself; after a resume call loader.set_epoch(epoch). Trainer, LLaMA-Factory and axolotl do it for you.",
        verify="Print the first five sample ids of two epochs on rank 0: they differ.",
        prevention="Keep sampler and epoch loop in one function, and log the first sample id of each epoch.",
        question="Is there a line sampler.set_epoch(epoch) inside the loop over epochs?",
        quiz="shuffle=True is set on the DistributedSampler and the epochs are still identical. Why? The seed is seed + epoch, and nothing changes the epoch.",
    )
    zh = Card(
        title="没有调用 set_epoch",
        sign="DDP 下每个 epoch 的 batch 和顺序一模一样，上下两个 epoch 的 loss 曲线连毛刺都对得上。",
        cause="DistributedSampler 用 seed + epoch 打乱，没人调 set_epoch，epoch 就永远是 0。断点续训后顺序又回到第 0 个 epoch，也是这个原因。",
        remedy="在 for epoch in range(start_epoch, epochs): 循环里，遍历 loader 之前加一行 train_sampler.set_epoch(epoch)。accelerate prepare 过的 loader 会自己处理，断点续训后调一次 loader.set_epoch(epoch)。Trainer、LLaMA-Factory、axolotl 不用管。",
        verify="在 rank 0 打印两个 epoch 的前五个 id，应当不同。",
        prevention="sampler 和 epoch 循环放在同一个函数里，每个 epoch 把第一个 id 打到日志。",
        question="epoch 循环里有没有 sampler.set_epoch(epoch) 这一行？",
        quiz="DistributedSampler 设了 shuffle=True，各 epoch 顺序还是一样，为什么？种子是 seed + epoch，而 epoch 没人更新。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(FACT, quote="sampler = DistributedSampler(train_set)")),
            Evidence(
                script=make.scripted(FACT, quote="sampler = DistributedSampler(ds, shuffle=True)"),
                settings=make.configured("pytorch", epochs=5),
                environment=Environment(processes=4),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=(FACT,))),
            Evidence(  # one epoch has no second order
                script=make.scripted(FACT, quote="sampler = DistributedSampler(train_set)"),
                settings=make.configured("pytorch", epochs=1),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        epochs = number(seen, "epochs")
        if epochs is not None and 0 < epochs <= 1:
            return self.ruled_out(*setting(seen, "epochs", -6.0))
        found = facts(seen, FACT)
        if found:
            return self.confirmed(*found, *setting(seen, "epochs"))
        against = (*clean(seen, FACT), *shards(seen))
        return self.ruled_out(*against) if against else self.not_checked("script")
