"""The weights held NaN or infinity before the run."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import WeightFile, Weights

NAN = float("nan")


class WeightsAlreadyNonfinite(Case):
    id = "weights-already-nonfinite"
    symptoms = {"nan-at-start": 0.05}
    stage = "environment"
    explains = ("nan-hidden-by-logging", "loss-scale-exhausted")
    needs = ("weights",)
    probe = "weights"
    search = (
        "checkpoint contains nan weights",
        "resumed training is nan from step one",
        "nan in safetensors",
        "权重文件里有 NaN",
        "checkpoint 坏了 一加载就 NaN",
    )

    en = Card(
        title="The starting weights contain NaN",
        sign="NaN from the first forward pass, at any learning rate, in any precision, on any row. The run started from a checkpoint of an earlier run.",
        cause="The earlier run was already NaN or infinite before it saved, a conversion to fp16 overflowed, or a merge produced infinite values. Everything computed from one NaN weight is NaN.",
        remedy="Start from the last clean checkpoint: scan the checkpoints from the newest to the oldest. If a conversion caused it, convert to bf16 instead of fp16. Do not replace NaN by 0 and continue: the optimizer's moments are damaged too.",
        verify="A scan of the new starting point finds only finite tensors, and the first forward pass is finite.",
        prevention="Check that all weights are finite before each save, keep the last three checkpoints, and stop the run at the first gradient norm that is not finite.",
        question="Does the checkpoint that you start from contain NaN or infinite values?",
        quiz="A run resumed from checkpoint-900 is NaN at once; checkpoint-600 is clean. When did it break? Between 600 and 900: read that part of the log.",
    )
    zh = Card(
        title="起点权重里就有 NaN",
        sign="第一次前向就 NaN，换学习率、换精度、换样本都一样。这次训练是从以前的 checkpoint 开始的。",
        cause="上一次训练在保存之前就已经出了 NaN / inf，或者转 fp16 时溢出，或者合并时算出了 inf。只要有一个权重是 NaN，后面算出来的全是 NaN。",
        remedy="从最后一个干净的 checkpoint 开始：从新到旧逐个扫描。转换造成的就转 bf16 而不是 fp16。不要把 NaN 改成 0 接着训，优化器的动量也坏了。",
        verify="扫描新的起点，所有张量都是有限值，第一次前向也是。",
        prevention="每次保存前检查权重有没有 NaN / inf，保留最近三个 checkpoint，梯度范数一旦不是有限值就停。",
        question="作为起点的 checkpoint 里有没有 NaN 或 inf？",
        quiz="从 checkpoint-900 恢复立刻 NaN，checkpoint-600 是干净的，真正坏在什么时候？600 到 900 之间，去看那段日志。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                weights=Weights(
                    (
                        WeightFile(
                            "base/model.safetensors",
                            9_000_000,
                            tensors=200,
                            nonfinite=("model.layers.3.mlp.up_proj.weight",),
                            values_read=True,
                        ),
                    )
                ),
                metrics=make.ran(loss=[NAN] * 20, grad_norm=[NAN] * 20),
            ),
            Evidence(
                weights=Weights(
                    (
                        WeightFile("checkpoint-600/model.safetensors", 9_000_000, tensors=200, values_read=True, step=600),
                        WeightFile(
                            "checkpoint-900/model.safetensors",
                            9_000_000,
                            tensors=200,
                            nonfinite=("lm_head.weight",),
                            values_read=True,
                            step=900,
                        ),
                    )
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same NaN from weights that are clean
                weights=Weights((WeightFile("base/model.safetensors", 9_000_000, tensors=200, values_read=True),)),
                metrics=make.ran(loss=[NAN] * 20, grad_norm=[NAN] * 20),
            ),
            Evidence(  # broken weights saved after the loss had gone NaN: a consequence
                weights=Weights(
                    (
                        WeightFile(
                            "checkpoint-90/model.safetensors",
                            9_000_000,
                            tensors=200,
                            nonfinite=("lm_head.weight",),
                            values_read=True,
                            step=90,
                        ),
                    )
                ),
                metrics=make.ran(loss=make.then(make.falling(100), NAN, 60)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        read = [file for file in seen.weights.files if file.values_read] if seen.weights is not None else []
        broken = [file for file in read if file.nonfinite]
        if not read:
            return self.not_checked("weights")
        if not broken:
            return self.ruled_out(
                *(
                    say(
                        f"every tensor in {file.source} is finite",
                        f"{file.source} 里所有张量都是有限值",
                        -9.0,
                        section="weights",
                        where=file.source,
                    )
                    for file in read[:3]
                )
            )
        form = shape_of(seen)
        clean = [file for file in read if not file.nonfinite and file.step is not None]
        shown = [*map(_holds, broken[:3]), *(_last_clean(max(clean, key=lambda file: file.step or 0)) if clean else ())]
        later = form.nan_from is not None and not form.nan_at_start and all(_after(file, form.nan_from) for file in broken)
        if later:
            return self.ruled_out(
                *(Exhibit(one.text, one.where, one.source, weight=0.0, section=one.section) for one in shown),
                say(
                    f"it was saved after the loss broke at step {form.nan_from:g}",
                    f"它是在第 {form.nan_from:g} 步 loss 坏掉之后保存的",
                    -6.0,
                ),
            )
        return self.confirmed(*shown)


def _after(file: WeightFile, step: float) -> bool:
    return file.step is None or file.step >= step


def _holds(file: WeightFile) -> Exhibit:
    return say(
        f"{len(file.nonfinite)} tensors in {file.source} hold NaN or infinity, among them {file.nonfinite[0]}",
        f"{file.source} 里有 {len(file.nonfinite)} 个张量含 NaN 或 inf，例如 {file.nonfinite[0]}",
        9.0,
        section="weights",
        where=file.source,
        source=file.source,
    )


def _last_clean(file: WeightFile) -> tuple[Exhibit, ...]:
    text = say(
        f"the last clean checkpoint is {file.source}",
        f"最后一个干净的 checkpoint 是 {file.source}",
        0.0,
        section="weights",
        where=file.source,
    )
    return (text,)
