"""The same rows stand in the set many times."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "duplicate"
PROOF_SHARE = 0.5
"""Half of the rows are copies: every row counts twice. Tool-calling sets hold 13 to 14 % by nature, instruction sets 1 %, sets of
short phrases up to 49 %."""
JOINED_SHARE = 0.2
"""Enough where the training loss is near 0 as well."""
LEAST = 50
"""A judgement, not measured: fewer copies hardly move a loss."""
SMALL = 0.05
"""A judgement, not measured: public sets carry a few percent of copies and train well."""


class DuplicatedData(Case):
    id = "duplicated-data"
    symptoms = {"loss-near-zero": 0.12}
    needs = ("data",)
    probe = "show"
    search = (
        "duplicate rows in the training set",
        "loss near zero after deduplication was skipped",
        "data upsampled by mistake",
        "same sample repeated many times",
        "训练集有大量重复样本",
        "没有去重 loss 降到 0",
        "数据被重复拼接",
        "样本重复 背下来了",
    )

    en = Card(
        title="The same rows occur many times",
        sign="The training loss falls to about 0 in steps while the log still says epoch 1, and the model recites rows.",
        cause="Files were concatenated twice, a join multiplied rows, or a source was upsampled. Each copy is one more epoch on that row, and num_train_epochs does not show it.",
        remedy="Drop exact copies: df.drop_duplicates(['prompt', 'answer']); in axolotl dataset_exact_deduplication: true. If a source is meant to weigh more, say so with interleave_probs (LLaMA-Factory) or interleave_datasets(probabilities=…) and reduce the epochs.",
        verify="The number of distinct rows equals the number of rows, and the loss stays at its usual 0.8 to 1.5 in the first epoch.",
        prevention="Count duplicates in preprocessing and print their share.",
        question="How many rows are left after exact deduplication?",
        quiz="1,000 rows, made of 100 distinct rows with 10 copies each, 3 epochs. How often is each row seen? Thirty times.",
    )
    zh = Card(
        title="同一批样本反复出现",
        sign="日志还在第一个 epoch，训练 loss 就一级一级掉到 0 附近，模型直接背样本。",
        cause="文件拼了两遍、join 时行数翻倍、或者某个来源被上采样。每多一份拷贝，就等于在那条样本上多训一个 epoch，而 num_train_epochs 里看不出来。",
        remedy="去掉完全重复的：df.drop_duplicates(['prompt', 'answer'])；axolotl 用 dataset_exact_deduplication: true。如果本意是加权，就明着写：LLaMA-Factory 的 interleave_probs，或 interleave_datasets(probabilities=…)，同时减 epoch。",
        verify="去重后的条数等于总条数；第一个 epoch 的 loss 停在平常的 0.8～1.5。",
        prevention="预处理时统计重复率并打印出来。",
        question="完全去重之后还剩多少条？",
        quiz="1000 条样本其实是 100 条各拷贝 10 份，训 3 个 epoch，每条看了几遍？30 遍。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(1000, duplicate=range(101, 1001))),
            Evidence(
                data=make.rowset(600, duplicate=range(1, 200)),
                metrics=run.ran(loss=run.falling(200, 1.8, 0.002, noise=0.0005, speed=10)),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(1000, checked=(CHECK,)),
                metrics=run.ran(loss=run.falling(200, 1.8, 0.002, noise=0.0005, speed=10)),
            ),
            Evidence(data=make.rowset(1000, duplicate=range(1, 12)), metrics=run.ran(loss=run.falling(200))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found = counted(seen, CHECK)
        part = share(seen, CHECK) if found else 0.0
        form = shape_of(seen)
        zero = form.near_zero_from is not None
        told = (
            (
                say(
                    f"the training loss is about 0 from step {form.near_zero_from:g} on",
                    f"第 {form.near_zero_from:g} 步起训练 loss 接近 0",
                    2.0,
                ),
            )
            if zero
            else ()
        )
        if found >= LEAST and (part >= PROOF_SHARE or (part >= JOINED_SHARE and zero)):
            return self.confirmed(*rows(seen, CHECK), *told)
        if found and part < SMALL:
            return self.ruled_out(*rows(seen, CHECK, weight=-3.0))
        held = rows(seen, CHECK, weight=1.0) or clean(seen, CHECK)
        return conclude(self, (*held, *(told if found else ())), missing=("metrics",))
