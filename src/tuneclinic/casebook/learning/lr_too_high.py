"""The learning rate is too high."""

import math

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrast_exhibit, contrasts, fell
from tuneclinic.casebook.learning._facts import as_number, conclude, falls, say, shape_of
from tuneclinic.casebook.learning._training import change_size, learning_rate, rate_exhibit, usual_rate
from tuneclinic.curves import Shape
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

IN_VAIN = -4.0
"""Bits against, for each sibling run at a lower rate whose loss rose as well: the rate is not what drives it."""
FAR_ABOVE = 10.0
"""Times the 90th percentile of the method's usual rates from which a bad curve needs no other cause: no recipe of 3,280 sourced
settings lies there."""


class LearningRateTooHigh(Case):
    id = "lr-too-high"
    symptoms = {
        "nan-at-start": 0.3,
        "nan-mid-run": 0.22,
        "loss-oscillates": 0.35,
        "loss-diverges": 0.35,
        "overfits": 0.12,
        "forgets": 0.15,
    }
    stage = "hyperparameters"
    explains = ("nan-hidden-by-logging",)
    needs = ("metrics", "attempts")
    probe = "range-test"
    change = {"learning_rate": 2e-5}
    search = (
        "learning rate too high",
        "loss explodes after warmup",
        "loss jumps to 10 and stays there",
        "学习率太大",
        "学习率过高 loss 爆炸",
        "loss 突然飞了",
    )

    en = Card(
        title="The learning rate is too high",
        sign="The loss falls at first. Near the end of warm-up it begins to swing or climb and does not come back. Gradient norms climb with it, and in the end there may be NaN. The smaller the batch, the earlier it happens.",
        cause="Each step is too long and jumps past the minimum. LoRA tolerates about ten times the learning rate of full tuning, so the usual mistake is a LoRA recipe (2e-4) copied to full tuning. DPO needs a rate ten to a hundred times lower still.",
        remedy="Divide learning_rate by 10 (same key in Trainer, LLaMA-Factory and axolotl), and restart from the last checkpoint before the rise, not from the broken one. Keep a warm-up of 3 to 10 % of the steps. Usual ranges: full tuning 5e-6 to 1e-4, LoRA 5e-5 to 3e-4, DPO with full tuning near 5e-7.",
        verify="Run the same 50 steps with the lower rate: the loss passes the point where it broke and keeps falling, and the gradient norm stays within a few times its median.",
        prevention="Run a learning-rate range test on every new set-up, and keep max_grad_norm: 1.0. Write the method next to the rate in your recipe, so that nobody copies a LoRA rate into full tuning.",
        question="Which learning rate do you use, with LoRA or full tuning, and does the loss turn bad before or after the end of warm-up?",
        quiz="The very first step prints grad_norm nan at learning rate 0. Do you lower the learning rate? No: no weight has changed yet, so check precision, kernels and data.",
    )
    zh = Card(
        title="学习率太大",
        sign="loss 先降一点，warmup 结束前后开始剧烈震荡或一路上升，再也回不来；梯度范数跟着涨，最后可能变成 NaN。batch 越小越明显。",
        cause="每一步都太大，越过了最低点。LoRA 能承受的学习率大约是全参的十倍，最常见的错误就是把 LoRA 的 2e-4 抄到全参上；DPO 还要再小一到两个数量级。",
        remedy="learning_rate 除以 10（Trainer、LLaMA-Factory、axolotl 键名相同），从 loss 上升之前的 checkpoint 重新开始，不要从已经坏掉的接着跑，warmup 留 3%～10% 的步数。常用范围：全参 5e-6～1e-4，LoRA 5e-5～3e-4，全参 DPO 在 5e-7 附近。",
        verify="用小学习率重跑同样的 50 步：loss 平稳走过原来坏掉的位置并继续下降，梯度范数保持在中位数的几倍以内。",
        prevention="换新配置先跑一次学习率区间测试（range test），max_grad_norm 保持 1.0。配方里把训练方式和学习率写在一起，免得有人把 LoRA 的学习率抄进全参。",
        question="学习率是多少？LoRA 还是全参？loss 是在 warmup 结束之前还是之后开始变坏的？",
        quiz="第一步就打印 grad_norm nan，而当时学习率是 0，要不要先降学习率？不要：权重还没动过，先查精度、算子和数据。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="full", learning_rate=5e-4, warmup_ratio=0.03),
                metrics=make.ran(loss=make.blows_up(), learning_rate=make.peaked(peak=5e-4)),
                attempts=make.tried(("run-b", {"method": "full", "learning_rate": 2e-5, "warmup_ratio": 0.03}, 1.6, 0.9)),
            ),
            Evidence(
                settings=make.configured("llama-factory", method="lora", learning_rate=5e-3, lora_rank=16),
                metrics=make.ran(loss=make.blows_up(at=25, end=7.5), learning_rate=make.peaked(peak=5e-3)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # NaN gradients while the rate is and was always 0: nothing was updated yet
                settings=make.configured(method="full", learning_rate=5e-4),
                metrics=make.ran(
                    loss=make.then(make.level(40, 0.87), 0.0, 1),
                    grad_norm=make.level(40, float("nan")),
                    learning_rate=make.level(40, 0.0, 0.0),
                ),
            ),
            Evidence(  # the same rise, at a rate far below the usual: something else drives it
                settings=make.configured(method="lora", learning_rate=1e-6),
                metrics=make.ran(loss=make.blows_up(), learning_rate=make.peaked(peak=1e-6)),
            ),
            Evidence(  # a high rate that the run bears
                settings=make.configured(method="lora", learning_rate=1e-3),
                metrics=make.ran(loss=make.falling(), learning_rate=make.peaked(peak=1e-3)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, rate = shape_of(seen), learning_rate(seen)
        if not form.points and form.nan_from is None:
            return self.not_checked("metrics", "settings")
        if form.learning_rate_always_zero and form.nan_from is not None:
            return self.ruled_out(_never_on(form))
        if form.nan_from is not None and form.nan_from <= 1 and seen.metrics is not None and not seen.metrics.rows_are_steps:
            return self.ruled_out(
                say(
                    "NaN at step 1: its gradient was computed before any weight had changed",
                    "第 1 步就 NaN：这一步的梯度算出时权重还没动过",
                    -8.0,
                )
            )
        bad = _bad_curve(form)
        if not bad:
            calm = falls(seen)
            return self.ruled_out(calm) if calm else self.not_checked("metrics")
        change = {"learning_rate": min(rate / 10, usual_rate(seen)[2])} if rate else None
        milder = [contrast for contrast in contrasts(seen, "learning_rate") if _lower(contrast.mine, contrast.other)]
        proofs = [contrast_exhibit(contrast, "learning_rate") for contrast in milder if fell(contrast.attempt)]
        vain = [contrast_exhibit(contrast, "learning_rate", IN_VAIN) for contrast in milder if not fell(contrast.attempt, 0.0)]
        exhibits = [
            *proofs,
            *vain,
            *bad,
            *rate_exhibit(seen, _rate_bits(seen, rate)),
            *(change_size(seen) if form.overfits_from else ()),
        ]
        turned = form.diverged_from is not None or form.oscillates or (form.nan_from is not None and not form.nan_at_start)
        far = rate is not None and rate >= FAR_ABOVE * usual_rate(seen)[2]
        return conclude(self, exhibits, proof=bool(turned and (proofs or far)), missing=("settings",), change=change)


def _lower(mine: object, other: object) -> bool:
    first, second = as_number(mine), as_number(other)
    return first is not None and second is not None and second < first


def _never_on(form: Shape) -> Exhibit:
    return say(
        f"NaN at step {form.nan_from:g} while the learning rate was 0 from the start: no weight has changed",
        f"第 {form.nan_from:g} 步出现 NaN，而学习率从头到尾都是 0：权重根本没动过",
        -10.0,
    )


def _bad_curve(form: Shape) -> list[Exhibit]:
    found = []
    if form.diverged_from is not None:
        step = f"{form.diverged_from:g}"
        resumed = (form.resume_jump or 0.0) > 0 and form.resumed_at is not None and form.diverged_from >= form.resumed_at
        weight = -2.0 if resumed else 2.0
        found.append(say(f"the loss rises from step {step} on and stays up", f"loss 从第 {step} 步开始上升并停在高位", weight))
    if form.oscillates:
        found.append(say("the loss swings by several times its own noise", "loss 的摆动是自身噪声的好几倍", 1.0))
    if form.nan_from is not None and not form.nan_at_start:
        rising = form.grad_norm_rises or 1.0
        weight = 1.5 if rising > 3 else 0.0
        told = f", gradient norm {rising:.1f} times its median just before" if weight else ""
        told_zh = f"，此前梯度范数已是中位数的 {rising:.1f} 倍" if weight else ""
        found.append(say(f"NaN from step {form.nan_from:g}{told}", f"第 {form.nan_from:g} 步起 NaN{told_zh}", weight))
    elif form.nan_from is not None:
        found.append(say("NaN within the first logged rows", "最初几行日志就出现 NaN", 0.0))
    if form.overfits_from is not None:
        found.append(
            say(
                f"the evaluation loss turns up at step {form.overfits_from:g}",
                f"验证 loss 在第 {form.overfits_from:g} 步掉头上升",
                0.0,
            )
        )
    return found


def _rate_bits(seen: Evidence, rate: float | None) -> float:
    """Above the band: a bit and a half, and one more for each doubling, up to 6. Within: half a bit against. Below: four against."""
    if not rate:
        return 0.0
    low, median, high = usual_rate(seen)
    if rate > high:
        return min(6.0, 1.5 + math.log2(rate / high))
    if rate < low:
        return -4.0
    return -0.5 if rate > median else -2.0
