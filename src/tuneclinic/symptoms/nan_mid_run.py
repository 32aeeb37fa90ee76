"""Finite at first, then NaN."""

import numpy as np

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, run
from tuneclinic.symptoms._series import course, curve, index_of, look, main_name, point, row


class NanMidRun(Symptom):
    id = "nan-mid-run"
    letter = "N"
    search = (
        "loss suddenly becomes nan during training",
        "loss turns NaN after a few hundred steps",
        "training was fine then loss went to 0.0 and grad_norm nan",
        "step 812 loss: nan",
        "loss nan in the middle of an epoch",
        "训练到一半 loss 变 NaN",
        "跑了几百步之后 loss 突然变成 nan",
        "前面正常，后面 loss 全是 0，梯度是 nan",
        "nan after one epoch",
        "grad_norm becomes nan later in training",
        "loss 中途 nan，之前都在正常下降",
        "训着训着 loss 成了 nan",
        "某一步开始 loss 就是 nan",
        "NaN halfway through the run",
        "训了一天之后变 nan",
    )

    en = SymptomCard(
        title="NaN in the middle of the run",
        seen="The run was finite and learning. Then at some step the loss or the gradient norm becomes NaN or infinite, usually for good. The log may show 0.0 or an average that no longer changes.",
        check="Find the first bad step and read the rows before it. A rising gradient norm points to the learning rate or to overflow; a normal one points to a single batch. Then look at the samples of exactly that step.",
        treatment="Go back to the last checkpoint whose weights are all finite, replay the same data order up to the first bad step, and look at that batch. If the run is in fp16, use bf16. If the gradient norm was rising, lower the learning rate or set max_grad_norm: 1.0.",
        prevention="Check that loss and gradients are finite before every optimizer step, and stop the run if they are not. Keep more than one checkpoint.",
    )
    zh = SymptomCard(
        title="训练中途变 NaN",
        seen="前面一直正常下降，到某一步 loss 或 grad_norm 变成 NaN 或 inf，多半再也回不来。日志里可能显示成 0.0，或停在一个不动的平均值上。",
        check="先找到首发步，再看它前面几行：grad_norm 一路往上走，多半是学习率或溢出；前面很干净，多半是某个 batch 的问题。然后把这一步的样本翻出来看。",
        treatment="退回到最后一个权重全部有限的 checkpoint，按同样的数据顺序重放到首发步，看那个 batch。用 fp16 的换 bf16；grad_norm 爬升的就降学习率，或 max_grad_norm 设 1.0。",
        prevention="每次 optimizer.step 之前检查 loss 和梯度是否有限，不是就停；checkpoint 不要只留一个。",
    )
    sick = Lazy(
        lambda: [
            run(loss=np.concatenate([falling(40), np.full(40, np.nan)])),
            run(
                loss=np.concatenate([falling(40), np.zeros(40)]),
                grad_norm=np.concatenate([falling(40, 2.0, 0.8), np.full(40, np.nan)]),
            ),
        ]
    )
    healthy = Lazy(lambda: [run(loss=falling(), grad_norm=falling(first=8.0, last=0.6))])

    def see(self, seen: Evidence) -> Sighting:
        shape, loss, norm = look(seen), curve(seen), curve(seen, "grad_norm")
        held = curve(seen, "eval_loss") if loss is None and norm is None else None
        main = loss if loss is not None else norm if norm is not None else held
        if main is None:
            return self.not_checked("metrics")
        if shape.nan_from is None or shape.nan_at_start:
            return self.absent(course(main_name(loss, norm), main))
        exhibits = []
        for name, series in (("loss", loss), ("grad_norm", norm), ("eval_loss", held)):
            if series is not None:
                exhibits += [point(name, series, shape.nan_from), *_before(name, series, shape.nan_from)]
        return self.shown(*exhibits, first_step=shape.nan_from)


def _before(name: str, series: Series, step: float) -> list[Exhibit]:
    """The last row of a series before `step`."""
    index = index_of(series, step) - 1
    return [row(name, series, index)] if index >= 0 else []
