"""One prompt has contradictory answers."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows, share, statistic
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, flat
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

CHECK = "conflicting-answers"
PROOF_SHARE = 0.1
"""Share of rows in contradiction; the labelled sets measured have 0.4 and 2 %, annotators of hard tasks disagree on about 5."""
LABEL_CHARS = 24.0
"""Median answer up to which answers are labels: longer ones that differ are two ways to say one thing."""


class ConflictingAnswers(Case):
    id = "conflicting-answers"
    symptoms = {"loss-not-falling": 0.03, "cannot-overfit": 0.04}
    needs = ("data",)
    probe = "show"
    search = (
        "same prompt with different labels",
        "contradictory training labels",
        "loss has a floor, labels are noisy",
        "cannot memorise because labels conflict",
        "同一个问题答案互相矛盾",
        "标注冲突",
        "标签噪声 loss 降不下去",
        "同样的输入不同的标签",
    )

    en = Card(
        title="One prompt, contradictory answers",
        sign="The loss stops well above 0 even on few rows and after many epochs. Accuracy does not rise beyond a certain value.",
        cause="If the same input is labelled yes in one row and no in another, no weights can fit both, and the loss cannot fall below the entropy of the disagreement. It comes from merged annotation rounds, lost context columns and truncated prompts.",
        remedy="Find the groups: counts = df.groupby('prompt')['answer'].nunique(); print(counts[counts > 1]). Restore the context that tells the rows apart; if there is none, keep the majority label or drop the group.",
        verify="No prompt has two labels, and ten rows can be memorised to a loss under 0.1.",
        prevention="Run the group check every time annotation files are merged.",
        question="How many prompts occur with more than one answer?",
        quiz="Half of the copies of each prompt say yes and half say no. Where does the loss stop? At ln 2 = 0.69 on that token.",
    )
    zh = Card(
        title="同一个 prompt，答案互相矛盾",
        sign="样本很少、epoch 很多，loss 还是停在远高于 0 的地方；准确率到某个值就上不去了。",
        cause="同样的输入，这条标“是”、那条标“否”，没有哪组权重能同时满足，loss 降不到标注分歧的熵以下。多轮标注直接合并、丢了上下文列、prompt 被截断，都会造成这种情况。",
        remedy="先找出来：counts = df.groupby('prompt')['answer'].nunique(); print(counts[counts > 1])。能补回区分样本的上下文就补；补不回来就取多数标签，或者整组丢掉。",
        verify="不再有一个 prompt 对两种标签；10 条样本能背到 loss < 0.1。",
        prevention="每次合并标注文件之后都跑一遍分组检查。",
        question="有多少 prompt 对应不止一种答案？",
        quiz="每个 prompt 一半标“是”、一半标“否”，loss 会停在哪？那个 token 上停在 ln 2 ≈ 0.69。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(200, conflicting_answers=range(1, 90), statistics={"answer_chars_median": 3.0}),
                metrics=run.ran(loss=run.level(100, 0.69)),
            ),
            Evidence(
                data=make.rowset(
                    1000,
                    conflicting_answers=range(1, 240),
                    statistics={"answer_chars_median": 8.0},
                    example="great film → positive | negative",
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(200, checked=(CHECK,), statistics={"answer_chars_median": 3.0}),
                metrics=run.ran(loss=run.level(100, 0.69)),
            ),
            Evidence(data=make.rowset(200, checked=(CHECK,), duplicate=range(1, 20))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found, middle = counted(seen, CHECK), statistic(seen, "answer_chars_median")
        if found and share(seen, CHECK) >= PROOF_SHARE and middle is not None and middle <= LABEL_CHARS:
            return self.confirmed(*rows(seen, CHECK), *flat(seen))
        held = rows(seen, CHECK, weight=0.5) or clean(seen, CHECK)
        return conclude(self, held, missing=("data",))
