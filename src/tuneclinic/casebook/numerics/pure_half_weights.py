"""The trained weights themselves are fp16."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, conclude, facts, lines, setting, text_of
from tuneclinic.casebook.numerics._nan import all_finite, broken
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

NAN = float("nan")


class PureHalfWeights(Case):
    id = "pure-half-weights"
    symptoms = {"nan-at-start": 0.04}
    stage = "environment"
    explains = ("nan-hidden-by-logging", "fp16-unscale-error", "fp16-overflow")
    needs = ("script", "metrics", "settings", "crash")
    probe = "bisect-nan"
    search = (
        "model.half() training nan",
        "AdamW fp16 weights nan after first step",
        "torch_dtype float16 training without mixed precision nan",
        "model.half() 训练 NaN",
        "纯 fp16 权重 训练 NaN",
    )

    en = Card(
        title="The trained weights are pure fp16",
        sign="The first step is fine, the second is NaN: the weights were damaged in the optimizer. The script calls .half(), or loads with dtype (torch_dtype) float16 and gives those parameters to AdamW.",
        cause="In fp16 Adam's epsilon of 1e-8 rounds to 0, so it divides by zero wherever the second moment underflows. Updates smaller than about a thousandth of a weight are lost as well. Mixed precision means fp32 weights with fp16 arithmetic, not everything in fp16.",
        remedy="Simplest: train in bf16 (bf16: true). Otherwise keep trainable weights in fp32: load in float32 with fp16: true (autocast and scaler), or convert only the adapter: for p in filter(lambda p: p.requires_grad, model.parameters()): p.data = p.data.float().",
        verify="All parameters in the optimizer have dtype float32 (or bfloat16), and steps 2 to 20 are finite.",
        prevention="Assert the dtype of every trainable parameter just before the optimizer is built.",
        question="Which dtype do the trainable parameters have: float32, bfloat16 or float16?",
        quiz="Why does eps=1e-8 not protect AdamW on fp16 weights? The smallest positive fp16 number is 6e-8, so this epsilon is zero.",
    )
    zh = Card(
        title="可训练权重是纯 fp16",
        sign="第一步正常，第二步 NaN：权重是在优化器里坏掉的。脚本里调了 .half()，或用 dtype（torch_dtype）float16 加载后直接交给 AdamW。",
        cause="fp16 里 Adam 的 epsilon 1e-8 会舍入成 0，二阶矩下溢的地方就是除以零；小于权重千分之一左右的更新也会丢掉。混合精度是 fp32 权重加 fp16 计算，不是全都 fp16。",
        remedy="最省事是用 bf16（bf16: true）。否则可训练权重保持 fp32：按 float32 加载并设 fp16: true（autocast + scaler），或只把 adapter 转成 fp32：for p in filter(lambda p: p.requires_grad, model.parameters()): p.data = p.data.float()。",
        verify="优化器里所有参数的 dtype 是 float32（或 bfloat16），第 2～20 步都是有限值。",
        prevention="建优化器之前断言每个可训练参数的 dtype。",
        question="可训练参数的 dtype 是 float32、bfloat16 还是 float16？",
        quiz="eps=1e-8 为什么保护不了 fp16 权重上的 AdamW？fp16 最小的正数是 6e-8，这个 eps 就是 0。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("pure-half-weights", quote="model = model.half().cuda()"),
                metrics=make.ran(loss=make.then(make.level(30, 2.1), NAN, 1), grad_norm=make.then(make.level(30, 3.0), NAN, 1)),
            ),
            Evidence(
                script=make.scripted(
                    "pure-half-weights", quote="model = AutoModel.from_pretrained(name, torch_dtype=torch.float16)"
                ),
                crash=make.crashed("ValueError", "Attempting to unscale FP16 gradients."),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same NaN with weights in fp32
                script=make.scripted(checked=("pure-half-weights",)),
                settings=make.configured(fp16=True),
                metrics=make.ran(loss=make.then(make.level(30, 2.1), NAN, 1), grad_norm=make.then(make.level(30, 3.0), NAN, 1)),
            ),
            Evidence(script=make.scripted("pure-half-weights"), metrics=make.ran(loss=make.falling())),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        shown = facts(seen, "pure-half-weights", weight=5.0)
        fine = all_finite(seen)
        if fine is not None:
            return self.ruled_out(fine)
        refused = lines(seen, r"attempting to unscale fp16 gradients", weight=3.0)
        bad = broken(seen)
        if shown and (bad or refused):
            return self.confirmed(*shown, *bad, *refused)
        cleared = clean(seen, "pure-half-weights")
        if cleared:
            return self.ruled_out(*cleared)
        given = text_of(seen, "dtype")
        mixed = seen.settings is not None and (seen.settings.flag("fp16") or seen.settings.flag("bf16"))
        if "float16" in given and "bfloat16" not in given and not mixed and bad:
            return conclude(self, (*setting(seen, "dtype", 2.0), *bad), missing=("script",))
        return self.not_checked("script", exhibits=(*shown, *bad))
