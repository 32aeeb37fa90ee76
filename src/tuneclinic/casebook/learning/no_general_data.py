"""Only domain data: general abilities are not rehearsed."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, say
from tuneclinic.casebook.learning._training import change_size
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Score, Scores

LOST = 0.05
"""Relative loss on a general task that is beyond the run-to-run spread of the public benchmarks (1 to 3 % for sets of a thousand
questions)."""


class NoGeneralData(Case):
    id = "no-general-data"
    symptoms = {"forgets": 0.35}
    stage = "data"
    needs = ("scores",)
    probe = "forgetting"
    search = (
        "model forgot general knowledge after fine-tuning",
        "mmlu drops after sft",
        "catastrophic forgetting",
        "灾难性遗忘",
        "微调后通用能力下降",
        "微调后变笨了",
    )

    en = Card(
        title="No general data in the training set",
        sign="The domain score rises and the others fall: general knowledge, chat behaviour, other languages, tool calls. A small drop is usual; the question is how large it is.",
        cause="All gradients come from one kind of text. Nothing exercises the other abilities, and the weights they share with the domain are moved to fit the domain only.",
        remedy="Mix in general instruction data, 1:1 to begin with, best with answers written by the untuned model itself. LLaMA-Factory: list both under dataset, with mix_strategy: interleave_under and interleave_probs: 0.5,0.5. axolotl: list both under datasets. In Python: datasets.interleave_datasets. Then lower epochs, learning rate and rank one step each.",
        verify="On the control set of general questions the tuned model loses less than 2 to 3 % against base, while the domain score stays.",
        prevention="Score a general control set in every evaluation from the first run on, with the base model's numbers next to it.",
        question="What share of the training rows is general data, and did you score the base model on the same general questions?",
        quiz="Domain up by 20 points, MMLU down by 6. Is it a bug or the usual price? The usual price, but a high one: lower it by mixing in general data, not by searching for a bug.",
    )
    zh = Card(
        title="没有混通用数据",
        sign="领域指标涨了，其他都在跌：通用知识、对话表现、其他语言、工具调用。跌一点是正常的，关键看跌了多少。",
        cause="所有梯度都来自同一类文本，别的能力没有机会复习，而它们和领域任务共用的权重只往领域的方向走。",
        remedy="按 1:1 混入通用指令数据，最好用微调前的模型自己生成答案。LLaMA-Factory 在 dataset 里写两个，设 mix_strategy: interleave_under、interleave_probs: 0.5,0.5；axolotl 在 datasets 下列两个；Python 里用 datasets.interleave_datasets。再把 epoch、学习率、rank 各降一档。",
        verify="同一套通用题，微调前后对比，下降不超过 2%～3%，领域指标不掉。",
        prevention="从第一次训练起，每次评测都带一份通用对照集，旁边写上 base 的分数。",
        question="训练数据里通用数据占多少？有没有用同样的通用题测过 base 模型？",
        quiz="领域涨 20 分，MMLU 掉 6 分，是 bug 还是代价？是代价，而且偏高：靠混通用数据来降，不用去找 bug。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                scores=Scores((Score("contracts", "f1", 0.81, 0.55, domain=True), Score("mmlu", "acc", 0.55, 0.63))),
                data=make.counted(8000, sources=1.0),
            ),
            Evidence(
                scores=Scores((Score("medqa", "acc", 61.0, 48.0, domain=True), Score("gsm8k", "exact_match", 40.0, 58.0))),
                data=make.counted(20_000, sources=1.0),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same domain gain, the general score held
                scores=Scores((Score("contracts", "f1", 0.81, 0.55, domain=True), Score("mmlu", "acc", 0.628, 0.63))),
                data=make.counted(8000, sources=1.0),
            ),
            Evidence(  # the same loss with general data in the mix: look at epochs and rate
                scores=Scores((Score("contracts", "f1", 0.81, 0.55, domain=True), Score("mmlu", "acc", 0.55, 0.63))),
                data=make.counted(8000, sources=4.0),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        pairs = [score for score in seen.scores.items if score.tuned is not None and score.base] if seen.scores else []
        general = [score for score in pairs if not score.domain]
        if not general:
            return self.not_checked("scores")
        lost = [exhibit for exhibit in map(_lost, general) if exhibit is not None]
        if not lost:
            return self.ruled_out(
                say("no general score fell by more than its spread", "通用指标的变化没有超出正常波动", -6.0, section="scores")
            )
        sources = seen.data.statistics.get("sources") if seen.data is not None else None
        if sources is None:
            return conclude(self, (*lost, *change_size(seen)), missing=("data",))
        one = sources <= 1
        mix = say(
            f"the training set has {sources:g} source{'s' if sources != 1 else ''}",
            f"训练集有 {sources:g} 个来源",
            3.0 if one else -6.0,
            section="data",
        )
        if not one:
            return self.ruled_out(mix)
        return conclude(self, (*lost, mix, *change_size(seen)), proof=any(score.domain for score in pairs))


def _lost(score: Score) -> Exhibit | None:
    tuned, base = score.tuned, score.base
    if tuned is None or not base:
        return None
    share = (base - tuned) / abs(base) * (-1 if score.lower else 1)
    if share < LOST:
        return None
    text = f"{score.task} {score.metric}: {base:g} → {tuned:g} ({-share:+.0%})"
    return Exhibit(text, score.where, weight=1.0, section="scores")
