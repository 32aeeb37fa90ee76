"""The gradient scaler meets fp16 parameters."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import facts, quoted, say, setting, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class Fp16UnscaleError(Case):
    id = "fp16-unscale-error"
    symptoms = {"crashes": 0.04}
    stage = "environment"
    needs = ("crash", "log")
    probe = "environment"
    change = {"bf16": True, "fp16": False}
    signatures = (
        r"attempting to unscale fp16 gradients",
        r"unscale_\(\) has already been called on this optimizer",
        r"no inf checks were recorded for this optimizer",
        r"\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'bfloat16'",
    )
    search = (
        "ValueError: Attempting to unscale FP16 gradients",
        "unscale_() has already been called on this optimizer since the last update()",
        "No inf checks were recorded for this optimizer",
        "unscale FP16 gradients 报错",
        "混合精度 unscale 报错",
    )

    en = Card(
        title="The gradient scaler cannot unscale",
        sign="The first optimizer step stops with 'Attempting to unscale FP16 gradients'. With bf16 weights the message is '_amp_foreach_non_finite_check_and_unscale_cuda not implemented for BFloat16'.",
        cause="fp16: true turns on a GradScaler, which needs fp32 parameters. The model, or a newly added adapter, was loaded in float16 or bfloat16, so its gradients are 16 bit. Two related messages: 'No inf checks were recorded' means that no parameter got a gradient; 'unscale_() has already been called' means that the loop unscales twice.",
        remedy="If the GPU supports bf16, set bf16: true instead of fp16: true. Otherwise load in float32, or convert the trained parameters: for p in filter(lambda p: p.requires_grad, model.parameters()): p.data = p.data.float(). In your own loop call scaler.unscale_(optimizer) once per step, just before clipping.",
        verify="The first three steps run, and under fp16 every trainable parameter is float32.",
        prevention="Set the load dtype and the precision flag in one place of the script, so that they cannot disagree.",
        question="Is fp16 on, and was the model loaded with dtype (torch_dtype) float16 or bfloat16?",
        quiz="Why does fp16: true refuse fp16 weights? The scaler protects small fp16 gradients on their way to fp32 weights. Without fp32 weights there is nothing to protect.",
    )
    zh = Card(
        title="GradScaler 无法 unscale",
        sign="第一次优化器更新就报 Attempting to unscale FP16 gradients（权重是 bf16 时则是 _amp_foreach_non_finite_check_and_unscale_cuda not implemented for BFloat16）。",
        cause="fp16: true 会启用 GradScaler，它要求参数是 fp32；而模型或新加的 adapter 按 float16 / bfloat16 加载，梯度就是 16 位。另外两条报错：No inf checks were recorded 表示没有参数拿到梯度；unscale_() has already been called 表示循环里 unscale 了两次。",
        remedy="支持 bf16 的卡直接用 bf16: true 代替 fp16: true。否则按 float32 加载，或把要训的参数转成 fp32：for p in filter(lambda p: p.requires_grad, model.parameters()): p.data = p.data.float()。自己写循环时，每步只在裁剪前调一次 scaler.unscale_(optimizer)。",
        verify="前三步能跑过去；fp16 下所有可训练参数都是 float32。",
        prevention="脚本里把加载 dtype 和精度开关写在同一处，不让它们对不上。",
        question="是不是开了 fp16，同时模型又是用 dtype（torch_dtype）float16 或 bfloat16 加载的？",
        quiz="fp16: true 为什么不接受 fp16 权重？scaler 的作用是让小的 fp16 梯度安全地更新到 fp32 权重上，没有 fp32 权重，它就没有意义。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("ValueError", "Attempting to unscale FP16 gradients.", phase="optimizer")),
            Evidence(
                crash=make.crashed(
                    "RuntimeError", "\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'"
                ),
                settings=make.configured(fp16=True),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed("ValueError", "Attempting to load FP16 weights on a CPU."), settings=make.configured(fp16=True)
            ),
            Evidence(settings=make.configured(fp16=True), metrics=make.ran(loss=make.falling())),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        said = quoted(self, seen)
        if said:
            return self.confirmed(
                *said, *setting(seen, "fp16"), *setting(seen, "dtype"), *facts(seen, "scaler-misuse", weight=2.0)
            )
        if seen.crash is not None and seen.crash.cause is not None:
            return self.ruled_out(
                say("the error names another cause", "报错说的是别的原因", -6.0, section="crash", where=seen.crash.cause.where)
            )
        if shape_of(seen).points >= 3:
            return self.ruled_out(say("the run has made optimizer steps", "优化器已经走了若干步", -6.0))
        return self.not_checked("crash")
