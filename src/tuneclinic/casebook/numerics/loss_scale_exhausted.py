"""The dynamic loss scale has fallen to its floor."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import finite, lines, quoted, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

IN_A_ROW = 3
"""Overflows at the floor after which no further step will do: the scale's search ends at its first finite step."""


class LossScaleExhausted(Case):
    id = "loss-scale-exhausted"
    symptoms = {"nan-mid-run": 0.07}
    stage = "environment"
    needs = ("log", "crash", "metrics")
    probe = "bisect-nan"
    change = {"bf16": True, "fp16": False}
    signatures = (
        r"current loss scale already at minimum",
        r"attempted loss scale:? 1(\.0)?,? ?(but hysteresis .{0,40})?reducing to 1(\.0)?\s*$",
        r"minimum loss scale reached",
        r"loss scale .{0,30}(at|below|reached) .{0,10}min",
    )
    search = (
        "Current loss scale already at minimum - cannot decrease scale anymore",
        "Attempted loss scale: 1, reducing to 1",
        "OVERFLOW skipping step every step",
        "loss scale 降到最小",
        "DeepSpeed loss scale 一直 overflow",
    )

    en = Card(
        title="The loss scale has reached its minimum",
        sign="Every step prints 'OVERFLOW! Skipping step. Attempted loss scale: 1, reducing to 1', or DeepSpeed stops with 'Current loss scale already at minimum'. No update is applied any more.",
        cause="Dynamic loss scaling halves the scale at each overflow. If it still overflows at the minimum, scaling is not the problem: a value in the forward pass, the weights or the data is already NaN, and NaN times anything is NaN. A few skipped steps at the start are the normal search for a scale.",
        remedy='Go back to the last checkpoint before the scale began to fall, and train in bf16, which needs no loss scale (Trainer, LLaMA-Factory, axolotl: bf16: true, fp16: false; DeepSpeed: "bf16": {"enabled": true}). If NaN appears in bf16 too, look for its first step: bad sample, damaged weights, learning rate.',
        verify="In bf16 the same steps are finite. In fp16 the scale is back in the thousands after the first dozens of steps.",
        prevention="Log the loss scale and the skipped steps, and stop the run after ten skipped steps in a row.",
        question="Do the overflow messages end after the first dozens of steps, or do they come at every step?",
        quiz="Six overflows in the first ten steps, two more by step 510. Is that a fault? No, the scale is being searched. A scale of 1 that still overflows is a fault.",
    )
    zh = Card(
        title="loss scale 降到底了",
        sign="每一步都在打印 OVERFLOW! Skipping step. Attempted loss scale: 1, reducing to 1，或者 DeepSpeed 报 Current loss scale already at minimum 退出。之后没有一步更新生效。",
        cause="动态缩放遇到溢出就把 scale 减半。降到底还溢出，说明问题不在缩放：前向、权重或数据里已经有 NaN，NaN 乘多少都是 NaN。开头跳过几步是正常的找量级过程。",
        remedy='回到 loss scale 开始一路下降之前的 checkpoint，改用 bf16，不需要 loss scale（Trainer、LLaMA-Factory、axolotl 设 bf16: true、fp16: false；DeepSpeed 设 "bf16": {"enabled": true}）。bf16 下还 NaN，就去找首发步：毒样本、坏权重、学习率。',
        verify="bf16 下同样的步都是有限值；或 fp16 下开头几十步之后 scale 回到几千以上。",
        prevention="把 loss scale 和跳步数打进日志，连续跳 10 步就停。",
        question="溢出信息是开头几十步之后就没了，还是每一步都有？",
        quiz="前 10 步溢出 6 次，到第 510 步又 2 次，有问题吗？没有，在找量级；scale 已经是 1 还在溢出才有问题。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed(
                    "Exception", "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
                ),
            ),
            Evidence(log=make.logged("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1")),
            Evidence(metrics=make.ran(loss=make.level(60, 2.0), loss_scale=[max(1.0, 65536.0 / 2**step) for step in range(60)])),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # overflows of the search at the start
                log=make.logged("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"),
                metrics=make.ran(loss=make.falling(60), loss_scale=[65536.0, 32768.0, *[16384.0] * 58]),
            ),
            Evidence(metrics=make.ran(loss=make.falling(60), loss_scale=[1.0] * 60)),  # bf16 prints a constant 1
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form = shape_of(seen)
        said = quoted(self, seen)
        if form.loss_scale_exhausted_from is not None:
            step = f"{form.loss_scale_exhausted_from:g}"
            shown = say(
                f"the loss scale stays at its minimum from step {step} on",
                f"loss scale 从第 {step} 步起一直在最小值",
                6.0,
                where=f"step {step}",
            )
            return self.confirmed(*said, shown)
        if said:
            return self.confirmed(*said)
        after = finite(seen, "loss_scale_after_overflow")
        if len(after) >= IN_A_ROW and (after[-IN_A_ROW:] <= 1).all():
            count = int((after <= 1).sum())
            return self.confirmed(say(f"{count} overflows at a loss scale of 1", f"loss scale 已经是 1 还溢出了 {count} 次", 6.0))
        scale = finite(seen, "loss_scale")
        if scale.size:
            return self.ruled_out(say(f"the loss scale ends at {scale[-1]:g}", f"loss scale 终值 {scale[-1]:g}", -6.0))
        searched = lines(seen, r"attempted loss scale", weight=-1.0)
        if searched:
            return self.ruled_out(*searched)
        return self.not_checked("log")
