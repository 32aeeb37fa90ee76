"""The task got better and everything else worse."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Score, Scores
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._scores import NOISE, scores, told_tuning, tuning

LOST = 0.05
"""Relative fall of the median general score that is called forgetting: twice the standard error of a benchmark of 1,000 questions
(`NOISE`), because two scores are compared and a little loss is the usual price of tuning."""


class Forgets(Symptom):
    id = "forgets"
    letter = "B"
    needs = ("scores",)
    search = (
        "catastrophic forgetting after fine-tuning",
        "model lost general ability after SFT",
        "MMLU dropped after fine-tuning",
        "fine-tuned model can't do anything else anymore",
        "domain score up, general benchmarks down",
        "灾难性遗忘",
        "微调后通用能力下降",
        "训完之后原来会的都不会了",
        "lost original capabilities",
        "ceval score decreased after training",
        "只会做微调的任务，别的都不行了",
        "原有能力没了",
        "can't code any more after tuning on domain data",
        "学会了新任务，旧的全忘了",
    )

    en = SymptomCard(
        title="General ability is lost",
        seen="The score on the tuned task rises and the general scores fall. A small drop is usual; the question is how large it is.",
        check="Compare base and tuned model on a general control set, task by task. Then compare the size of the change (epochs × learning rate × rank) with the number of trained tokens.",
        treatment="Mix in general data, up to 1:1. Train fewer epochs, with a lower rank and a lower learning rate. An earlier checkpoint is often the better compromise.",
        prevention="In every evaluation, score base and tuned model on a general control set next to the domain set.",
    )
    zh = SymptomCard(
        title="灾难性遗忘",
        seen="目标任务涨了，通用能力掉了。掉一点是常态，关键看掉多少。",
        check="准备一份通用对照集，base 和微调后逐项对比。再看改动量和数据量配不配：epoch × 学习率 × rank，对比训练 token 数。",
        treatment="掺通用数据，最多 1:1；减 epoch、降 rank、学习率降一档。早一点的 checkpoint 往往更划算。",
        prevention="每次评测都带通用对照集，和领域集放在一起，base 和微调后的模型都跑。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                scores=Scores(
                    (
                        Score("contracts", "f1", 0.81, 0.42, domain=True, where="scores.csv:2"),
                        Score("mmlu", "acc", 0.48, 0.62, where="scores.csv:3"),
                        Score("gsm8k", "exact_match", 0.31, 0.55, where="scores.csv:4"),
                    )
                )
            )
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                scores=Scores(
                    (
                        Score("contracts", "f1", 0.81, 0.42, domain=True, where="scores.csv:2"),
                        Score("mmlu", "acc", 0.612, 0.62, where="scores.csv:3"),
                        Score("gsm8k", "exact_match", 0.56, 0.55, where="scores.csv:4"),
                    )
                )
            )
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        compared = [(change, score) for score in scores(seen) if (change := tuning(score)) is not None]
        general = sorted(((change, score) for change, score in compared if not score.domain), key=lambda pair: pair[0])
        domain = [score for change, score in compared if score.domain or change > NOISE]
        if not general:
            return self.not_checked("scores")
        lost = [pair for pair in general if pair[0] <= NOISE]
        middle = lost[len(lost) // 2][0] if lost else 0.0
        if middle > -LOST or (len(lost) == 1 and not domain) or len(lost) < len(general) / 2:
            return self.absent(*(told_tuning(score) for _, score in general[:3]))
        gained = [told_tuning(score) for score in domain[:1]]
        return self.shown(*(told_tuning(score) for _, score in lost[:3]), *gained)
