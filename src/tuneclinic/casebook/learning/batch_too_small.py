"""The batch is too small for a readable loss and a steady step."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, finite, number, say, setting, shape_of
from tuneclinic.casebook.learning._training import batch, learning_rate, rate_exhibit, usual_rate
from tuneclinic.curves import Shape
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

SMALL = 4.0
"""Rows an update below which the step is mostly one sample's opinion: examples in public recipes use 8 to 16, released models 64
to 512."""


class BatchTooSmall(Case):
    id = "batch-too-small"
    symptoms = {"loss-oscillates": 0.2}
    stage = "hyperparameters"
    needs = ("metrics",)
    probe = "range-test"
    change = {"accumulation": 16}
    search = (
        "batch size 1 loss very noisy",
        "loss jumps up and down with micro batch 1",
        "batch 太小 loss 震荡",
        "batch size 1 loss 抖动",
    )

    en = Card(
        title="The batch is too small",
        sign="The training loss changes by half its value between neighbouring steps, while the evaluation loss falls smoothly. Gradient norms jump too. After each jump the loss comes back.",
        cause="With one or two rows per update, each gradient and each logged loss depends on a single sample. Part of the noise is only in the log; part is real noise in the weights, more so at a high learning rate.",
        remedy="Raise gradient_accumulation_steps (same key in Trainer, LLaMA-Factory and axolotl) until one update sees 16 to 32 rows; GPU memory stays the same. If that is not possible, halve the learning rate.",
        verify="At four times the batch the step-to-step noise is half as large. If it is not, the swings are not sampling noise.",
        prevention="For every run write down rows per update (batch per device × accumulation × GPUs), not only the batch per device.",
        question="How many rows does one weight update see (batch per device × accumulation × GPUs)?",
        quiz="Training loss swings between 0.4 and 2.0, evaluation loss falls smoothly. Is the run broken? No: at batch 1 each point is one sample. Smooth the curve or accumulate before you judge.",
    )
    zh = Card(
        title="batch 太小",
        sign="训练 loss 相邻两步能差一半，验证 loss 却平稳下降；梯度范数也跟着跳，但每次跳完都回得来。",
        cause="一次更新只看一两条样本，梯度只代表这一条，打印的 loss 也只是这一条的难度。一部分只是看起来抖，一部分是权重真的在抖，学习率越大越明显。",
        remedy="加大 gradient_accumulation_steps（Trainer、LLaMA-Factory、axolotl 键名相同），让一次更新看到 16～32 条，显存不变。没法累积就把学习率减半。",
        verify="batch 变成 4 倍后，相邻步噪声应减半；没减半说明震荡不是采样噪声。",
        prevention="每次训练记录“一次更新看多少条”（单卡 batch × 梯度累积 × 卡数），不要只记单卡 batch。",
        question="一次权重更新实际看到多少条样本？（单卡 batch × 梯度累积 × 卡数）",
        quiz="训练 loss 在 0.4 和 2.0 之间跳，验证 loss 平稳下降，有问题吗？没有：batch 为 1 时每个点就是一条样本，先平滑或累积再判断。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="lora", learning_rate=2e-4, batch_per_device=1, accumulation=1),
                metrics=make.ran(
                    loss=make.rough(300, 2.2, 1.5),
                    eval_loss=(range(30, 301, 30), make.falling(10, 2.0, 1.4, noise=0.005)),
                ),
            ),
            Evidence(
                settings=make.configured("axolotl", method="full", learning_rate=1e-5, batch_per_device=2, accumulation=1),
                metrics=make.ran(
                    loss=make.rough(240, 2.6, 1.8),
                    eval_loss=(range(40, 241, 40), [2.3, 2.15, 2.05, 1.98, 1.93, 1.9]),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same swings with 64 rows an update
                settings=make.configured(method="lora", learning_rate=2e-4, batch_per_device=8, accumulation=8),
                metrics=make.ran(loss=make.rough(300, 2.2, 1.5)),
            ),
            Evidence(  # one row an update, and a calm curve
                settings=make.configured(method="lora", learning_rate=2e-4, batch_per_device=1, accumulation=1),
                metrics=make.ran(loss=make.falling()),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, size = shape_of(seen), batch(seen)
        if not form.points:
            return self.not_checked("metrics")
        if size is not None and size > 4 * SMALL:
            return self.ruled_out(say(f"an update sees {size:g} rows", f"一次更新看到 {size:g} 条样本", -5.0, section="settings"))
        if not form.oscillates or form.diverged_from is not None:
            return self.ruled_out(say("the loss does not oscillate", "loss 没有震荡", -5.0))
        if size is None:
            return self.not_checked("settings")
        quiet = _falls_quietly(seen)
        exhibits = [
            say(
                f"an update sees {size:g} rows",
                f"一次更新看到 {size:g} 条样本",
                3.0 if size <= SMALL else 0.5,
                section="settings",
            ),
            *setting(seen, "batch_per_device"),
            *setting(seen, "accumulation"),
            *(
                [say("the evaluation loss falls smoothly over the same steps", "同一时段验证 loss 平稳下降", 4.0)]
                if quiet
                else ()
            ),
        ]
        exhibits.extend(_single_peaks(form))
        rate = learning_rate(seen)
        if rate is not None and rate > usual_rate(seen)[2]:
            exhibits.extend(rate_exhibit(seen, -1.5))
        steady = rate is None or rate <= usual_rate(seen)[2]
        change = {"accumulation": max(2, round(16 * (number(seen, "accumulation") or 1) / size))}
        return conclude(self, exhibits, proof=quiet and size <= SMALL and steady and form.oscillates, change=change)


def _single_peaks(form: Shape) -> list[Exhibit]:
    """Peaks with calm between them, or that come back in step, speak against: a small batch makes every step noisy."""
    if not form.spikes and form.period is None:
        return []
    return [say("the loss is calm between single peaks", "孤立尖峰之间 loss 很平稳", -5.0)]


def _falls_quietly(seen: Evidence) -> bool:
    """Whether every evaluation is lower than the one before, at least four of them."""
    values = finite(seen, "eval_loss")
    return bool(len(values) >= 4 and (values[1:] < values[:-1] * 1.005).all() and values[-1] < values[0])
