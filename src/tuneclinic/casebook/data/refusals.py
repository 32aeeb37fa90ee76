"""Many answers are refusals."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, outputs, quote, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern

CHECK = "refusal"
PROOF_SHARE = 0.2
"""Tool-calling sets hold 9 to 12 % of refusals on purpose (what no tool can do), instruction sets under 1 %."""
JOINED_SHARE = 0.03
"""A judgement, not measured: enough beside outputs that refuse."""
REFUSING = 0.5
"""A judgement, not measured: every second answer is a refusal."""
OPENING = pattern(
    r"\W*(?:i['’]?m (?:very |so )?sorry|i am sorry|sorry|i apologi[sz]e|i can(?:['’]?t|not)|as an ai|抱歉|很抱歉|非常抱歉|对不起|我无法|我不能|作为一?个?(?:ai|人工智能|语言模型))",
    re.IGNORECASE,
)
"""How refusals open, in outputs; the reader of data sets looks closer."""


class Refusals(Case):
    id = "refusals"
    symptoms = {"parrots": 0.02, "forgets": 0.03}
    explains = ("data-all-alike",)
    needs = ("data",)
    probe = "show"
    search = (
        "model refuses everything after fine-tuning",
        "I'm sorry, but as an AI language model in training data",
        "too many refusals in the dataset",
        "over-refusal after SFT",
        "微调后什么都拒答",
        "训练数据里有很多 抱歉，我无法",
        "拒答样本太多",
        "模型动不动就说作为一个人工智能",
    )

    en = Card(
        title="The data teach the model to refuse",
        sign="The tuned model answers ordinary requests with 'I'm sorry, but I can't …'.",
        cause="Refusals of the model that wrote the data were kept as answers. They are short and all look alike, so they are learnt first and spread to harmless prompts.",
        remedy="Drop rows whose answer opens with a refusal, or rewrite the answers; keep at most a few percent, on prompts that really should be refused. Then train again from the base model, not from this adapter.",
        verify="On fifty harmless prompts the tuned model refuses no more often than the base model.",
        prevention="Filter distilled data by refusal phrases before training, and report the share per source.",
        question="What share of the answers begins with an apology or 'As an AI'?",
        quiz="20 % of the answers are refusals, yet 60 % of the outputs are. Why? They share one opening, and all of them train it.",
    )
    zh = Card(
        title="数据在教模型拒答",
        sign="微调后的模型对普通请求也回“抱歉，我无法……”。",
        cause="蒸馏数据时，原模型的拒答被当成答案留了下来。拒答又短又都长一个样，最先学会，再扩散到正常的 prompt 上。",
        remedy="把以拒答开头的样本删掉，或者重写答案；只在真该拒答的 prompt 上留几个百分点。然后从 base 模型重新训，别在这个 adapter 上接着训。",
        verify="拿 50 个正常 prompt 测，拒答率不高于 base 模型。",
        prevention="蒸馏数据先按拒答话术过滤，并按来源统计占比。",
        question="有多大比例的回答以道歉或“作为一个人工智能”开头？",
        quiz="拒答只占 20%，为什么输出里有 60% 在拒？它们共用同一个开头，每一条都在训这个开头。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(500, refusal=range(1, 180), example="I'm sorry, but I can't help with that.")),
            Evidence(
                data=make.rowset(500, refusal=range(1, 30), example="抱歉，我无法回答。"),
                outputs=make.said("抱歉，我无法回答这个问题。", "抱歉，我不能提供。", "抱歉，我无法帮助您。", "可以。"),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(500, checked=(CHECK,)),
                outputs=make.said("I'm sorry, I can't.", "I can't do that.", "Sorry, no."),
            ),
            Evidence(data=make.rowset(500, checked=(CHECK,), empty_answer=range(1, 100))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        refusing = _refusing(seen)
        part = share(seen, CHECK) if counted(seen, CHECK) else 0.0
        if part >= PROOF_SHARE or (part >= JOINED_SHARE and refusing):
            return self.confirmed(*rows(seen, CHECK), *refusing)
        held = rows(seen, CHECK, weight=0.5) or clean(seen, CHECK)
        return conclude(self, held, missing=("outputs",))


def _refusing(seen: Evidence) -> tuple[Exhibit, ...]:
    """Outputs that refuse where the expected answer does not."""
    held = outputs(seen)
    found = [output for output in held if OPENING.match(output.text[:200]) and not OPENING.match((output.reference or "")[:200])]
    if len(held) < 3 or len(found) < REFUSING * len(held):
        return ()
    told = say(
        f"{len(found)} of {len(held)} answers refuse",
        f"{len(held)} 条回答里有 {len(found)} 条在拒答",
        3.0,
        section="outputs",
        where=found[0].where,
    )
    return (told, quote(found[0].text, found[0].where, found[0].source))
