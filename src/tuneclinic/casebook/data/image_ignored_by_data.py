"""The answers can be told without the picture."""

from collections import Counter, defaultdict

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import from_rows, samples
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Sample

ROWS = 20
"""Rows with pictures under prompts that recur, below which a share says nothing."""
RECURS = 5
"""A judgement, not measured: rows under one prompt before its commonest answer means something."""
SAME = 0.95
"""Share of rows whose answer is the commonest for their prompt. Yes/no sets of the corpus reach 0.77; from here on looking pays nothing."""
SEEING = 0.8
"""Just above the highest share of public yes/no sets (0.77)."""


class ImageIgnoredByData(Case):
    id = "image-ignored-by-data"
    symptoms = {"blind-to-image": 0.04}
    explains = ("targets-trivial", "data-all-alike")
    needs = ("data",)
    probe = "show"
    search = (
        "VLM answers without looking at the image",
        "text-only shortcut in vision dataset",
        "same answer for every image",
        "answers predictable from the question alone",
        "看图模型不看图就能答",
        "答案只看问题就能猜到",
        "换图答案不变 数据捷径",
        "视觉数据集的文本捷径",
    )

    en = Card(
        title="The answer does not depend on the picture",
        sign="The tuned VLM gives the same answer to a wrong or blank picture, and its score on the set is high all the same.",
        cause="For each question nearly all rows have the same answer (always 'normal', always 'yes'). The language model learns it from the text alone, and nothing in the loss requires the picture.",
        remedy="Balance the answers within each question, add pairs in which only the picture differs, and add open questions. As a first step cap the majority answer of each question at the count of the second most common one.",
        verify="With blank pictures the model scores clearly lower than with the real ones.",
        prevention="Measure the blind baseline of every vision set: the accuracy of always giving the most common answer of each question.",
        question="For the same question, how many different answers do different pictures have?",
        quiz="Blind baseline 96 %, tuned model 97 %. Has it learnt to see? Hardly: pictures explain one point at most.",
    )
    zh = Card(
        title="不看图也能答对",
        sign="给一张错的图或空白图，微调后的 VLM 答案不变，可它在这个数据集上的分数照样很高。",
        cause="同一个问题下几乎所有样本答案都一样（永远“正常”、永远“是”）。语言模型光看文字就学会了，loss 里没有哪一项需要看图。",
        remedy="在每个问题内部做答案平衡，加入“问题相同、只有图不同”的成对样本，再加开放式问题。第一步先限制多数答案，条数不超过第二多的。",
        verify="换成空白图跑一遍，分数要明显低于真图。",
        prevention="每个视觉数据集先测“盲猜基线”：每个问题取最常见答案的准确率。",
        question="同一个问题配不同的图，有几种不同的答案？",
        quiz="盲猜基线 96%，微调后 97%，学会看图了吗？基本没有，图最多贡献了 1 个点。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(
                    60,
                    samples=tuple(
                        make.chat(n, "Is the scan normal?", "Yes, normal." if n > 1 else "No.", images=1) for n in range(1, 61)
                    ),
                )
            ),
            Evidence(
                data=make.rowset(
                    40,
                    samples=tuple(
                        make.chat(n, f"<image>\n{('几只猫？', '天气？')[n % 2]}", ("一只", "晴")[n % 2], images=1)
                        for n in range(1, 41)
                    ),
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(
                    60,
                    samples=tuple(
                        make.chat(n, "Is the scan normal?", ("Yes.", "No.", "Unclear.")[n % 3], images=1) for n in range(1, 61)
                    ),
                )
            ),
            Evidence(
                data=make.rowset(
                    40, samples=tuple(make.chat(n, "<image>What is it?", f"thing {n}", images=1) for n in range(1, 41))
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        by_prompt: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples(seen):
            if sample.images and len(sample.answers) == 1:
                by_prompt[sample.prompt.strip()].append(sample)
        groups = [group for group in by_prompt.values() if len(group) >= RECURS]
        total = sum(map(len, groups))
        if total < ROWS:
            return self.not_checked("data")
        held = [sample for group in groups for sample in group]
        blind = sum(Counter(sample.answers[0].strip() for sample in group).most_common(1)[0][1] for group in groups)
        part = blind / total
        weight = 8.0 if part >= SAME else (-4.0 if part <= SEEING else 1.0)
        told = from_rows(
            f"without the picture {part:.0%} of {total} rows can be answered: one answer per question",
            f"不看图也能答对 {total} 条里的 {part:.0%}：每个问题只有一种答案",
            held,
            weight,
        )
        return conclude(self, (told,), proof=part >= SAME, missing=("outputs",))
