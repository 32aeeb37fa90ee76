"""Values leave fp16's range."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrast_exhibit, contrasts, fell
from tuneclinic.casebook.learning._facts import conclude, lines, say, setting, shape_of
from tuneclinic.casebook.learning._training import learning_rate, usual_rate
from tuneclinic.casebook.numerics._nan import all_finite, broken, finite_loss_with_broken_gradient, precision, rises_before
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

OVERFLOW = (
    r"overflow!.{0,120}skipping step",
    r"found (nan|inf)[ /].{0,20}(overflow|skip)",
    r"gradient overflow\.\s+skipping step",
)
NAN = float("nan")


class Fp16Overflow(Case):
    id = "fp16-overflow"
    symptoms = {"nan-at-start": 0.16, "nan-mid-run": 0.3}
    stage = "environment"
    explains = ("nan-hidden-by-logging", "loss-scale-exhausted")
    needs = ("metrics", "settings")
    probe = "bisect-nan"
    change = {"bf16": True, "fp16": False}
    search = (
        "fp16 loss nan",
        "grad_norm nan with fp16 but loss is fine",
        "bf16 model loaded in fp16 gives nan",
        "fp16 溢出",
        "fp16 训练 loss nan",
        "Qwen fp16 nan",
    )

    en = Card(
        title="fp16 overflows",
        sign="The run is in fp16 and gradient norms are NaN or infinite, often while the loss is still a normal number. The same run in bf16 or fp32 is fine.",
        cause="The largest fp16 number is 65,504. Models trained in bf16 (Gemma, Qwen2 and later, most recent ones) produce activations and gradients beyond that. The backward pass overflows first, so a normal loss proves nothing.",
        remedy="Set bf16: true and fp16: false (the keys are the same in Trainer, LLaMA-Factory and axolotl), and load the model in its own dtype (dtype='auto'). On GPUs without bf16 (V100, T4), keep the weights in fp32 under fp16: true, and run the layers that overflow in fp32.",
        verify="Twenty steps in bf16, with the same learning rate and data, show finite gradient norms.",
        prevention="Before training, compare torch_dtype (dtype in newer versions) in the checkpoint's config.json with the precision of the run. Make bf16 the default in every recipe.",
        question="Is fp16 on, and what does torch_dtype in the checkpoint's config.json say?",
        quiz="Loss 0.9, grad_norm nan, fp16. Is the data the cause? Unlikely: the forward pass was fine. The backward pass went beyond the range of fp16.",
    )
    zh = Card(
        title="fp16 溢出",
        sign="用的是 fp16，梯度范数是 NaN 或 inf，而 loss 往往还是正常数字；同样的任务换成 bf16 或 fp32 就没事。",
        cause="fp16 最大只到 65504。用 bf16 训出来的模型（Gemma、Qwen2 及以后、近年的大多数）激活和梯度会超出这个范围，而且先溢出的是反向，所以 loss 正常说明不了什么。",
        remedy="设 bf16: true、fp16: false（Trainer、LLaMA-Factory、axolotl 键名相同），模型按自身 dtype 加载（dtype='auto'）。不支持 bf16 的卡（V100、T4）让权重保持 fp32、开 fp16: true，会溢出的模块单独用 fp32。",
        verify="同样的学习率和数据，bf16 跑 20 步，梯度范数都是有限值。",
        prevention="训练前核对 checkpoint 的 config.json 里的 torch_dtype（新版叫 dtype）和训练精度；配方默认 bf16。",
        question="开的是 fp16 吗？checkpoint 的 config.json 里 torch_dtype 是什么？",
        quiz="fp16 下 loss 0.9、grad_norm nan，是数据的问题吗？不太像：前向没事，是反向超出了 fp16 的范围。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(fp16=True, method="lora", learning_rate=2e-4),
                model=make.modelled(dtype="bfloat16"),
                metrics=make.ran(loss=make.level(30, 0.899, 0.01), grad_norm=[NAN] * 30, learning_rate=make.peaked(30)),
            ),
            Evidence(
                settings=make.configured(fp16=True, bf16=False, method="full", learning_rate=1e-5),
                metrics=make.ran(
                    loss=make.then(make.falling(100), NAN, 60),
                    grad_norm=make.then(make.level(100, 1.0, 0.2), NAN, 60),
                    learning_rate=make.peaked(100, 1e-5),
                ),
                attempts=make.tried(("bf16", {"fp16": False, "bf16": True, "method": "full", "learning_rate": 1e-5}, 2.0, 0.9)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same picture in bf16
                settings=make.configured(bf16=True, method="lora", learning_rate=2e-4),
                metrics=make.ran(loss=make.level(30, 0.899, 0.01), grad_norm=[NAN] * 30, learning_rate=make.peaked(30)),
            ),
            Evidence(  # fp16 whose scale search overflowed twice at the start
                settings=make.configured(fp16=True, method="lora", learning_rate=2e-4),
                metrics=make.ran(loss=make.falling(), grad_norm=[NAN, NAN, *make.level(198, 1.0, 0.2)]),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        kind = precision(seen)
        used = (*setting(seen, "fp16"), *setting(seen, "bf16"), *setting(seen, "dtype"))
        if kind in {"bf16", "fp32"}:
            return self.ruled_out(say(f"the run trains in {kind}", f"训练精度是 {kind}", -10.0, section="settings"), *used)
        fine = all_finite(seen)
        if fine is not None:
            return self.ruled_out(fine)
        shown = broken(seen)
        if not shown:
            return self.not_checked("metrics")
        if kind != "fp16":
            return self.not_checked("settings", exhibits=shown)
        native = _native(seen)
        forward = finite_loss_with_broken_gradient(seen)
        siblings = contrasts(seen, "fp16", "bf16", "dtype")
        cured = [contrast_exhibit(sibling, "fp16") for sibling in siblings if fell(sibling.attempt, 0.0)]
        exhibits = [*shown, say("the run trains in fp16", "训练精度是 fp16", 2.0, section="settings"), *used, *native, *cured]
        if forward is not None:
            text = say(
                "the loss is finite where the gradient norm is not: the backward pass overflows",
                "loss 有限而梯度范数不是：反向溢出",
                2.0,
            )
            exhibits += [forward, text]
        exhibits.extend(lines(seen, *OVERFLOW, weight=1.0))
        exhibits.extend(_rate(seen))
        early = forward is not None and shape_of(seen).nan_at_start and bool(native)
        return conclude(self, exhibits, proof=bool(cured) or early, missing=("model",))


def _native(seen: Evidence) -> tuple[Exhibit, ...]:
    """Where the checkpoint is a bf16 one."""
    dtype = (seen.model.dtype or "").lower() if seen.model is not None else ""
    if "bfloat16" not in dtype or seen.model is None:
        return ()
    where = str(seen.model.places.get("dtype", ""))
    text = say(
        "the checkpoint was trained in bfloat16",
        "checkpoint 是 bfloat16 训出来的",
        3.0,
        section="model",
        where=where,
        source=where.split(":", maxsplit=1)[0],
    )
    return (text,)


def _rate(seen: Evidence) -> tuple[Exhibit, ...]:
    """Against: gradient norms that climbed first, at a learning rate above the usual range, speak for the rate."""
    rate = learning_rate(seen)
    if rate is None or rate <= usual_rate(seen)[2] or rises_before(seen) < 3:
        return ()
    return (
        say(
            "gradient norms climbed before the NaN, at a learning rate above the usual range",
            "NaN 之前梯度范数已在上涨，学习率也偏高",
            -2.0,
        ),
    )
