"""Nearly every row has the same answer."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows, tokenised
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

CHECK = "answer-trivial"
ROWS = 20
"""A judgement, not measured: below it equal targets may be chance."""
SAME = 0.95
"""Share of tokenised rows with one and the same trained tokens; majority classes of label sets stay below."""


class TargetsTrivial(Case):
    id = "targets-trivial"
    symptoms = {"loss-near-zero": 0.05}
    explains = ("data-all-alike",)
    needs = ("data",)
    probe = "show"
    search = (
        "all training answers are the same",
        "loss goes to zero, model always gives one answer",
        "only the eos token is trained",
        "constant target",
        "所有样本答案都一样",
        "loss 到 0 但永远只答一句",
        "只训练了 eos 一个 token",
        "目标是常量",
    )

    en = Card(
        title="There is only one answer to learn",
        sign="The loss falls to about 0 in a few steps, and the model gives the same answer to everything.",
        cause="Nearly all rows have the same trained tokens: the export wrote one label for all rows, the answer column is a constant, or truncation left only the end token. A constant is learnt at once and says nothing about the input.",
        remedy="Run Counter(row['answer'] for row in data).most_common(3) and fix the column or join that caused it. If 95 % of the rows really belong to one class, balance the classes first.",
        verify="The most common answer makes up less than 95 % of the rows, and the loss no longer reaches 0 in a few steps.",
        prevention="Print the three most common answers with their shares before training.",
        question="What share of the rows has the most common answer?",
        quiz="Two classes, 97 % of the answers are 'no', loss 0.01 after 30 steps. Has the model learnt the task? No, only the majority class.",
    )
    zh = Card(
        title="要学的答案只有一种",
        sign="几步之内 loss 就到 0，问什么都回同一句话。",
        cause="几乎所有样本参与训练的 token 都一样：导出时标签全写成了一个、答案列是常量，或者截断之后只剩一个结束符。常量一学就会，但和输入没有关系。",
        remedy="跑一下 Counter(row['answer'] for row in data).most_common(3)，把出问题的列或 join 修好。如果真有一类占 95%，先做类别平衡。",
        verify="最常见的答案占比低于 95%，loss 不再几步就到 0。",
        prevention="训练前打印最常见的三个答案及占比。",
        question="出现最多的那个答案占多大比例？",
        quiz="二分类，97% 是“否”，30 步 loss 到 0.01，学会了吗？没有，只学会了多数类。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(300, answer_trivial=range(1, 296), example="No."),
                metrics=run.ran(loss=run.falling(60, 0.4, 0.003, noise=0.001)),
            ),
            Evidence(
                data=make.rowset(
                    64,
                    layout="tokenised",
                    samples=tuple(make.ids(n, [n + 9, n + 3, 7, 2], [-100, -100, -100, 2]) for n in range(1, 65)),
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(300, checked=(CHECK,)), metrics=run.ran(loss=run.falling(60, 0.4, 0.003, noise=0.001))),
            Evidence(data=make.rowset(300, checked=(CHECK,), duplicate=range(2, 250))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        constant = _constant(seen)
        if counted(seen, CHECK) or constant:
            return self.confirmed(*rows(seen, CHECK), *constant)
        return conclude(self, clean(seen, CHECK), missing=("data",))


def _constant(seen: Evidence) -> tuple[Exhibit, ...]:
    """Tokenised rows that all train the same tokens."""
    trained = [tuple(label for label in labels if label >= 0) for _, _, labels in tokenised(seen)]
    if len(trained) < ROWS or not trained[0]:
        return ()
    count = trained.count(trained[0])
    if count < SAME * len(trained):
        return ()
    shown = ", ".join(str(token) for token in trained[0][:8])
    return (
        say(
            f"{count} of {len(trained)} rows train the same tokens: {shown}",
            f"{len(trained)} 条里有 {count} 条训练的 token 完全相同：{shown}",
            9.0,
            section="data",
        ),
    )
