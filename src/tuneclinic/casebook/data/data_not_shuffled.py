"""Rows are fed in the order of their sources."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import statistic
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean, conclude, facts, say, setting, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

FACT = "shuffle-off"


class DataNotShuffled(Case):
    id = "data-not-shuffled"
    symptoms = {"loss-oscillates": 0.12}
    needs = ("data", "script", "settings", "metrics")
    probe = "show"
    change = {"shuffle": True}
    search = (
        "loss jumps when the data source changes",
        "periodic loss spikes every epoch",
        "training data not shuffled",
        "sawtooth loss because data is sorted",
        "数据没有打乱",
        "loss 周期性波动",
        "按来源顺序训练 loss 跳变",
        "disable_shuffling",
    )

    en = Card(
        title="The data are not shuffled",
        sign="The loss steps up and down in blocks, with the same shape in every epoch. Late sources are remembered, early ones forgotten.",
        cause="Rows are sorted by source, label or length, and the loader reads them in order (shuffle=False, disable_shuffling, a stream without a shuffle buffer). Each block pulls the weights in its own direction.",
        remedy="Shuffle once before training: dataset = dataset.shuffle(seed=42), or DataLoader(shuffle=True) in your own loop. LLaMA-Factory: disable_shuffling: false. axolotl: shuffle_merged_datasets: true. Streams: dataset.shuffle(buffer_size=10_000) with a buffer larger than one block.",
        verify="The loss has no steps where the source changes, and the first batch holds rows of several sources.",
        prevention="Print the source of every row in the first three batches before training.",
        question="Are rows of one source or label next to each other in the file, and does anything shuffle them?",
        quiz="A spike returns every 1,250 steps, and an epoch has 1,250 steps. What does that say? The same rows cause it each time.",
    )
    zh = Card(
        title="数据没有打乱",
        sign="loss 一段一段地上下跳，每个 epoch 都是同样的形状；后面的来源记得住，前面的忘了。",
        cause="样本按来源、标签或长度排好了序，加载时又按顺序读（shuffle=False、disable_shuffling、流式数据没有 shuffle buffer），每一段都把权重往自己那边拉。",
        remedy="训练前打乱一次：dataset = dataset.shuffle(seed=42)，自己写的循环用 DataLoader(shuffle=True)。LLaMA-Factory：disable_shuffling: false。axolotl：shuffle_merged_datasets: true。流式数据：dataset.shuffle(buffer_size=10_000)，buffer 要比一个来源块大。",
        verify="loss 在来源交界处不再有台阶，第一个 batch 里就有多个来源的样本。",
        prevention="训练前打印前三个 batch 里每条样本的来源。",
        question="文件里同一来源、同一标签的样本是不是挨在一起？有没有哪一步会打乱？",
        quiz="尖峰每 1250 步出现一次，一个 epoch 正好 1250 步，说明什么？每次都是同一批样本造成的。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(3000, statistics={"source_blocks": 1.0}),
                script=run.scripted(FACT, quote="DataLoader(data, batch_size=8, shuffle=False)"),
            ),
            Evidence(
                data=make.rowset(3000, statistics={"source_blocks": 1.0}), settings=run.configured("llama-factory", shuffle=False)
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(3000, statistics={"source_blocks": 0.0}),
                script=run.scripted(FACT),
                metrics=run.ran(loss=run.rough(200)),
            ),
            Evidence(data=make.rowset(3000, statistics={"source_blocks": 1.0}), script=run.scripted(checked=(FACT,))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        blocks, off = statistic(seen, "source_blocks"), _off(seen)
        if blocks == 1.0:
            told = say("rows of each source or label form one block", "同一来源或标签的样本连成一整块", 2.0, section="data")
            if off:
                return self.confirmed(told, *off, *_periodic(seen))
            return conclude(self, (_lighter(told), *clean(seen, FACT), *_shuffled(seen), *_periodic(seen)), missing=("script",))
        if blocks == 0.0:
            return self.ruled_out(
                say("sources are already mixed in the file", "文件里各来源本来就是混着的", -6.0, section="data")
            )
        against = (*clean(seen, FACT), *_shuffled(seen))
        if against:
            return conclude(self, against, missing=("data",))
        return conclude(
            self,
            (*(Exhibit(one.text, one.where, one.source, weight=0.5, section=one.section) for one in off), *_periodic(seen)),
            missing=("data", "script"),
        )


def _lighter(told: Exhibit) -> Exhibit:
    """Trainers shuffle by default, so blocks alone say little."""
    return Exhibit(told.text, weight=0.5, section="data")


def _off(seen: Evidence) -> tuple[Exhibit, ...]:
    settings = seen.settings
    off = settings is not None and settings.flag("shuffle") is False
    stream = settings is not None and bool(settings.flag("streaming"))
    return (
        *facts(seen, FACT, weight=6.0),
        *(setting(seen, "shuffle", 6.0) if off else ()),
        *(setting(seen, "streaming", 3.0) if stream and off else ()),
    )


def _shuffled(seen: Evidence) -> tuple[Exhibit, ...]:
    on = seen.settings is not None and seen.settings.flag("shuffle") is True
    return setting(seen, "shuffle", -5.0) if on else ()


def _periodic(seen: Evidence) -> tuple[Exhibit, ...]:
    form = shape_of(seen)
    if form.period is None:
        return ()
    return (say(f"loss peaks return every {form.period:g} steps", f"loss 尖峰每 {form.period:g} 步出现一次", 2.0),)
