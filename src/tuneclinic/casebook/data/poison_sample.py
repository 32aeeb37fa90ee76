"""One sample breaks the numbers."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

CHECK = "nonfinite"
ODD = ("absurd-repeat", "long")


class PoisonSample(Case):
    id = "poison-sample"
    symptoms = {"nan-at-start": 0.1, "nan-mid-run": 0.1}
    needs = ("data", "metrics")
    probe = "poison"
    search = (
        "one sample causes NaN loss",
        "bisect the batch to find the bad sample",
        "NaN in the dataset values",
        "corrupt image makes loss nan",
        "毒样本",
        "某一条数据导致 loss NaN",
        "数据里有 NaN 或 inf",
        "二分 batch 找坏样本",
    )

    en = Card(
        title="One sample breaks the run",
        sign="The loss turns NaN at the first batch that contains the sample, whatever the learning rate. With another seed it happens at another step; without that row it never happens.",
        cause="NaN or infinity in pixel values, targets or a numeric column (an empty cell that pandas read as NaN, a division by zero in preprocessing, a broken image), or a row so unusual that it overflows. One such row makes the gradient of the whole batch NaN, and one optimizer step with it makes all weights NaN.",
        remedy="Find it with forward passes only: run the batch in halves under torch.no_grad() and keep the half whose loss is not finite (torch.isfinite(loss)) until one row is left. Then drop or repair it: df.dropna() for tables, numpy.nan_to_num for features; Image.open(path).verify() finds broken image files.",
        verify="The same seed gets past that step, and a forward pass over the whole data set is finite.",
        prevention="Check in preprocessing that all values are finite, and check the loss before each optimizer step.",
        question="Does the NaN move to another step when the seed changes, and does it stay away without that batch?",
        quiz="The learning rate is cut by 100 and the NaN comes at the same step. Which suspect is cleared? The learning rate.",
    )
    zh = Card(
        title="一条毒样本毁了训练",
        sign="一碰到它所在的 batch，loss 就变 NaN，学习率调多小都一样；换个种子，出事的步数跟着变；去掉那条就没事。",
        cause="像素、目标或数值列里有 NaN/inf（空单元格被 pandas 读成 NaN、预处理里除以 0、图片损坏），或者某条样本太极端导致溢出。一条就能让整个 batch 的梯度变 NaN，再更新一次，全部权重都坏。",
        remedy="只做前向来找：在 torch.no_grad() 下把 batch 一分为二，留下 loss 不是有限值（torch.isfinite(loss) 为 False）的那一半，直到剩一条。然后删掉或修好：表格用 df.dropna()，特征用 numpy.nan_to_num；Image.open(path).verify() 可以查出损坏的图片。",
        verify="同一个种子能过那一步；整个数据集只做前向，loss 全是有限值。",
        prevention="预处理时检查所有数值都是有限值；每次 optimizer step 之前检查 loss 是有限值。",
        question="换种子之后 NaN 的步数变不变？去掉那个 batch 还会不会出现？",
        quiz="学习率除以 100，还是同一步 NaN，可以排除谁？学习率。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(2000, nonfinite=(812,), example="NaN"),
                metrics=run.ran(loss=run.then(run.falling(100), float("nan"), 57)),
            ),
            Evidence(data=make.rowset(400, nonfinite=(3, 377))),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                data=make.rowset(2000, checked=(CHECK, *ODD)), metrics=run.ran(loss=run.then(run.falling(100), float("nan"), 57))
            ),
            Evidence(data=make.rowset(2000, checked=(CHECK,), empty_answer=(7,)), metrics=run.ran(loss=run.falling(100))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        broken = _broken(seen)
        if counted(seen, CHECK):
            return self.confirmed(*rows(seen, CHECK), *broken)
        if broken and counted(seen, *ODD):
            return conclude(self, (*broken, *rows(seen, *ODD, weight=1.0)), missing=("data",))
        held = clean(seen, CHECK, weight=-3.0)
        if not held and shape_of(seen).points >= 20 and not broken:
            return self.ruled_out(say("every logged loss is finite", "记录的 loss 全都有限", -4.0))
        return conclude(self, held, missing=("data",))


def _broken(seen: Evidence) -> tuple[Exhibit, ...]:
    form = shape_of(seen)
    if form.nan_from is None:
        return ()
    where = f"step {form.nan_from:g}"
    return (
        say(
            f"the loss or its gradient is NaN from step {form.nan_from:g}",
            f"第 {form.nan_from:g} 步起 loss 或梯度是 NaN",
            0.5,
            where=where,
        ),
    )
