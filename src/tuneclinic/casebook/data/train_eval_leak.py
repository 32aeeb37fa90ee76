"""Rows of the evaluation set stand in the training set."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, from_rows, rows, samples, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.sections import Sample

CHECK = "train-eval-leak"
PROOF_SHARE = 0.9
"""Share of evaluation rows from which the evaluation file is a slice of the training file, whatever the loss does."""
JOINED_SHARE = 0.05
"""Enough beside a training or evaluation loss near 0: two or three stock questions recur in an honest split of a chat set."""
LEAST = 3
"""A judgement, not measured: one or two rows recur by chance."""
CHARS = 60
"""Shorter rows ("hi", "thanks") recur by nature."""
EVALUATION = pattern(
    r"(?:^|[/_.-])(?:eval|evaluation|val|valid|validation|dev|test|heldout|holdout)(?:[/_.-]|\d|$)", re.IGNORECASE
)
"""How evaluation files are named."""


class TrainEvalLeak(Case):
    id = "train-eval-leak"
    symptoms = {"loss-near-zero": 0.12}
    needs = ("data",)
    probe = "show"
    change = {"eval_split": 0.1}
    search = (
        "test set leaked into training",
        "eval loss as low as train loss near zero",
        "evaluation rows are in the training data",
        "benchmark contamination",
        "验证集泄漏到训练集",
        "eval_loss 和训练 loss 一样低",
        "训练集测试集有重叠",
        "数据泄漏",
    )

    en = Card(
        title="Evaluation rows are in the training set",
        sign="The evaluation loss follows the training loss to about 0 and never rises. On new questions the model is far worse.",
        cause="The split was made after duplication or augmentation, the evaluation file is part of the training file, or rows of one dialogue went to both sides. The evaluation then measures memory.",
        remedy="Deduplicate first, then split by group: GroupShuffleSplit(test_size=0.1).split(rows, groups=document_ids), or hash the prompt and keep each hash on one side. LLaMA-Factory: val_size: 0.1 instead of a second data set that overlaps; axolotl: val_set_size: 0.1.",
        verify="No prompt of the evaluation file occurs in the training file, and eval_loss is above the training loss.",
        prevention="Compare the prompts of both files before each training and print how many overlap.",
        question="How many prompts of the evaluation file also occur in the training file?",
        quiz="Eval loss falls to 0.02 together with the training loss. Good generalisation? No: on unseen text no open-ended task reaches that.",
    )
    zh = Card(
        title="验证集的样本混进了训练集",
        sign="验证 loss 跟着训练 loss 一路降到接近 0，从不回升；换成新问题，模型差得多。",
        cause="先复制、增强再切分；验证文件就是训练文件里切出来的一段；或者同一段对话的样本分到了两边。这时候验证测的只是记忆。",
        remedy="先去重，再按组切分：GroupShuffleSplit(test_size=0.1).split(rows, groups=document_ids)，或者对 prompt 取 hash，同一个 hash 只归一边。LLaMA-Factory 用 val_size: 0.1，别另挂一个有重叠的数据集；axolotl 用 val_set_size: 0.1。",
        verify="验证文件的 prompt 在训练文件里一条也找不到，eval_loss 高于训练 loss。",
        prevention="每次训练前比对两个文件的 prompt，打印重叠条数。",
        question="验证文件里有多少 prompt 也出现在训练文件里？",
        quiz="eval loss 和 train loss 一起降到 0.02，是泛化好吗？不是，没见过的文本上，开放式任务到不了这么低。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(200, train_eval_leak=range(1, 40)),
                metrics=run.ran(loss=run.falling(200, 1.8, 0.002, noise=0.0005, speed=10)),
            ),
            Evidence(data=make.rowset(80, samples=(*_split("train.jsonl", 1, 41), *_split("eval.jsonl", 11, 31)))),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(200, checked=(CHECK,)), metrics=run.ran(loss=run.falling(100, 1.5, 0.01, noise=0.002))),
            Evidence(data=make.rowset(200, checked=(CHECK,), duplicate=range(1, 60))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        zero = _near_zero(seen)
        part, held = _leaked(seen)
        if counted(seen, CHECK):
            part, held = _part(seen), rows(seen, CHECK, weight=3.0)
        if held and _most_rows(held) >= LEAST and part >= (JOINED_SHARE if zero else PROOF_SHARE):
            return self.confirmed(*held, *zero)
        return conclude(self, (*held, *(() if held else clean(seen, CHECK))), missing=("metrics", "data"))


def _split(source: str, start: int, stop: int) -> tuple[Sample, ...]:
    """Rows of one numbered set of questions, for an example."""
    question = "What does the manual of the crane say about load case number {n}, and where does it stand?"
    return tuple(
        make.chat(n, question.format(n=n), f"Case {n} is limited to {n * 3} tonnes, page {n}.", source=source)
        for n in range(start, stop)
    )


def _most_rows(held: tuple[Exhibit, ...]) -> int:
    """How many rows the exhibits name."""
    return max(len(exhibit.rows) for exhibit in held)


def _part(seen: Evidence) -> float:
    """Share of the evaluation file that leaks, counted on its kept rows; of all rows where none were kept."""
    found = {(one.source, row) for one in (seen.data.defect(CHECK) if seen.data else ()) for row in one.rows}
    sources = {source for source, _ in found}
    kept = [(sample.source, sample.row) in found for sample in samples(seen) if sample.source in sources]
    return sum(kept) / len(kept) if kept else share(seen, CHECK)


def _near_zero(seen: Evidence) -> tuple[Exhibit, ...]:
    """A training or evaluation loss of about 0."""
    form = shape_of(seen)
    if form.near_zero_from is not None:
        return (
            say(
                f"the training loss is about 0 from step {form.near_zero_from:g}",
                f"第 {form.near_zero_from:g} 步起训练 loss 接近 0",
                2.0,
            ),
        )
    if form.near_zero_eval is not None:
        return (say(f"the evaluation loss is {form.near_zero_eval:.3g}", f"验证 loss 只有 {form.near_zero_eval:.3g}", 2.0),)
    return ()


def _leaked(seen: Evidence) -> tuple[float, tuple[Exhibit, ...]]:
    """Kept rows of an evaluation file that are word for word among the kept rows of a training file, and their share."""
    held: dict[tuple[tuple[str, str], ...], Sample] = {}
    evaluation: list[Sample] = []
    for sample in samples(seen):
        if EVALUATION.search(sample.source):
            evaluation.append(sample)
        elif sum(len(text) for _, text in sample.messages) >= CHARS:
            held.setdefault(sample.messages, sample)
    found = [sample for sample in evaluation if sample.messages in held and not sample.images]
    if not found:
        return 0.0, ()
    first = held[found[0].messages]
    return len(found) / len(evaluation), (
        from_rows(
            f"{len(found)} of {len(evaluation)} evaluation rows stand in {first.source}, the first as row {first.row}",
            f"{len(evaluation)} 条验证样本里有 {len(found)} 条在 {first.source} 中，第一条是第 {first.row} 行",
            found,
            3.0,
        ),
    )
