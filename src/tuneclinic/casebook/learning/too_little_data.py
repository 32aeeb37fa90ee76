"""Too few rows for the task."""

import math

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, say, shape_of
from tuneclinic.casebook.learning._training import FEW_ROWS, change_size, epoch_at, rows
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

EARLY_TURN = 2.0
"""Epochs before which a turn of the evaluation loss is early: usual recipes make 1 to 3 passes, and a set that cannot bear two is
small for them."""


class TooLittleData(Case):
    id = "too-little-data"
    symptoms = {"overfits": 0.25, "parrots": 0.14}
    stage = "data"
    explains = ("too-many-epochs", "rank-too-high", "no-regularisation")
    needs = ("data",)
    probe = "evaluation"
    change = {"epochs": 1}
    search = (
        "only 100 samples overfits",
        "how much data do I need",
        "fine-tuning with 50 examples repeats",
        "数据太少 过拟合",
        "几十条数据 微调",
    )

    en = Card(
        title="Too little data",
        sign="The evaluation loss turns up within the first or second epoch although learning rate and rank are usual. Outputs repeat whole answers from the training set, or mix two of them.",
        cause="The adapter can store a few dozen or hundred rows word for word. For the loss, memorising them is the shortest way down, and nothing in the data prevents it.",
        remedy="Get more rows first: 500 to 1,000 varied ones for a style or format, several thousand for a skill. Until then make the change smaller: 1 epoch, rank 8, half the learning rate, dropout 0.1, and as many rows of general chat data mixed in.",
        verify="With more or mixed data the evaluation loss keeps falling through the first epoch, and reworded prompts are answered as well as the originals.",
        prevention="Count rows, distinct prompts and answer tokens before you choose epochs and rank. Note epochs × learning rate × rank next to the number of rows for every run.",
        question="How many rows are in the training set, and how many different prompts?",
        quiz="80 rows, LoRA rank 64, 3 epochs: the evaluation loss rises in epoch 1. Lower the rank or collect data? Both, but data first: regularisation does not create variety.",
    )
    zh = Card(
        title="数据量太少",
        sign="学习率和 rank 都正常，验证 loss 却在第一、二个 epoch 就回升；输出整段背训练集答案，或把两条答案拼在一起。",
        cause="几十到几百条数据，adapter 完全能逐字记住；对 loss 来说死记是降得最快的路，数据里也没有东西拦着它。",
        remedy="先加数据：学风格或格式要 500～1000 条多样样本，学技能要几千条。在此之前先把改动量压小：1 个 epoch、rank 8、学习率减半、dropout 0.1，并按 1:1 混入通用对话数据。",
        verify="数据变多或混合之后，第一个 epoch 里验证 loss 一直下降；换种问法也答得一样好。",
        prevention="先数样本数、不同问题数和答案 token 数，再定 epoch 和 rank；每次实验都记下 epoch × 学习率 × rank 和样本数。",
        question="训练集有多少条？其中不同的问题有多少个？",
        quiz="80 条数据、LoRA rank 64、3 个 epoch，验证 loss 第 1 个 epoch 就回升，降 rank 还是加数据？都要，先加数据：正则化造不出多样性。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=3, lora_rank=16),
                data=make.counted(60, answer_chars_median=300),
                metrics=make.ran(
                    loss=make.falling(90, 2.0, 0.2, noise=0.02),
                    eval_loss=(range(9, 91, 9), [1.6, 1.45, 1.5, 1.62, 1.75, 1.85, 1.95, 2.05, 2.1, 2.15]),
                    epoch=[3 * step / 90 for step in range(1, 91)],
                ),
            ),
            Evidence(
                settings=make.configured("axolotl", method="full", learning_rate=1e-5, epochs=2),
                data=make.counted(200),
                metrics=make.ran(
                    loss=make.falling(120, 2.2, 0.4, noise=0.02),
                    eval_loss=(range(12, 121, 12), [1.8, 1.6, 1.55, 1.66, 1.8, 1.9, 2.0, 2.1, 2.2, 2.3]),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same turn with fifty thousand rows
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=3, lora_rank=16),
                data=make.counted(50_000),
                metrics=make.ran(
                    loss=make.falling(90, 2.0, 0.2, noise=0.02),
                    eval_loss=(range(9, 91, 9), [1.6, 1.45, 1.5, 1.62, 1.75, 1.85, 1.95, 2.05, 2.1, 2.15]),
                ),
            ),
            Evidence(  # sixty rows that generalise
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=2),
                data=make.counted(60),
                metrics=make.ran(loss=make.falling(90), eval_loss=(range(9, 91, 9), make.falling(10, 1.9, 1.1, noise=0.005))),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        count, form = rows(seen), shape_of(seen)
        if count is None:
            return self.not_checked("data")
        shown = _counted(seen, count)
        if shown.weight < 0:
            return self.ruled_out(shown)
        if form.overfits_from is None:
            if seen.metrics is not None and seen.metrics.get("eval_loss") is not None:
                return self.ruled_out(say("the evaluation loss does not turn up", "验证 loss 没有回升", -5.0))
            return self.not_checked("metrics", exhibits=(shown,))
        turn = epoch_at(seen, form.overfits_from)
        early = turn is not None and turn <= EARLY_TURN
        at = f"{turn:.2g}" if turn is not None else "?"
        turned = say(
            f"the evaluation loss turns up at epoch {at} (step {form.overfits_from:g})",
            f"验证 loss 在第 {at} 个 epoch（第 {form.overfits_from:g} 步）开始回升",
            3.0 if early else 1.0,
            where=f"step {form.overfits_from:g}",
        )
        return conclude(self, (shown, turned, *change_size(seen)), proof=early and count < FEW_ROWS)


def _counted(seen: Evidence, count: float) -> Exhibit:
    """Two bits for each time the set is half of what counts as small, four against for each time it is ten times more."""
    weight = min(4.0, 1.0 + math.log2(FEW_ROWS / count)) if count < FEW_ROWS else -min(6.0, 2 * math.log2(count / FEW_ROWS))
    source = next(iter(seen.data.sources), "") if seen.data else ""
    weight = weight or -0.5
    return say(
        f"the training set has {count:,.0f} rows",
        f"训练集共 {count:,.0f} 条",
        weight,
        section="data",
        where=source,
        source=source,
    )
