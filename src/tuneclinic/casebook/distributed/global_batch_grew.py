"""More cards made the global batch larger, and nothing else was changed."""

from __future__ import annotations

from tuneclinic.case import Card, Case
from tuneclinic.casebook.distributed._facts import alone, processes
from tuneclinic.casebook.environment._facts import named
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrasts
from tuneclinic.casebook.learning._facts import PROOF, as_number, number, say, setting, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Attempt, Environment

WORSE = 0.02
"""Relative rise of the final loss that counts: the spread of final losses over seeds of one set-up is about one per cent."""
GREW = 1.5
"""Factor of the global batch below which nobody notices."""


class GlobalBatchGrew(Case):
    id = "global-batch-grew"
    symptoms = {"multi-gpu-odd": 0.06}
    stage = "environment"
    needs = ("attempts", "settings", "crash")
    probe = "environment"
    signatures = (
        r"check batch related parameters\. train_batch_size is not equal to",
        r"(global|train)_batch_size .{0,80}(is not|must be|not) (divisible|equal|a multiple)",
    )
    search = (
        "DDP converges worse than single GPU same settings",
        "learning rate when adding GPUs global batch size",
        "train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        "多卡效果比单卡差",
        "加卡之后 loss 变高 学习率要不要调",
        "global batch 变大了",
    )

    en = Card(
        title="More GPUs made the global batch larger",
        sign="On more GPUs the same configuration ends at a higher loss, after fewer optimizer steps; plotted against samples the curves do not match. DeepSpeed may stop with: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size.",
        cause="per_device_train_batch_size is per process. N GPUs make the global batch N times larger and the number of steps N times smaller, at the same learning rate. On a small data set that is too few steps, and warm-up takes a larger part of them.",
        remedy='Keep the global batch: divide gradient_accumulation_steps by N (the key is the same in Trainer, LLaMA-Factory and axolotl). If you want the larger batch, raise learning_rate by about the square root of the factor with AdamW, and check that enough steps remain. In the DeepSpeed file set train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps to "auto".',
        verify="The log prints the same total train batch size as on one GPU, and both curves, plotted against samples, agree within their noise.",
        prevention="Write down the global batch, not the one per GPU, and assert it at the start.",
        question="Which total train batch size does the log print on one GPU and on all?",
        quiz="2048 rows, batch 8 × accumulation 4 on one GPU: 64 steps per epoch. Now eight GPUs with the same file. How many steps are left? Eight.",
    )
    zh = Card(
        title="加卡之后 global batch 变大了",
        sign="同一份配置，卡多了反而停在更高的 loss，优化步数也少了；按样本数画的曲线对不上。DeepSpeed 可能直接报 train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size。",
        cause="per_device_train_batch_size 是每个进程的。N 张卡，global batch 大 N 倍、步数少 N 倍，学习率没动；小数据集上步数就不够了，warmup 占的比例也变大。",
        remedy='保持 global batch：gradient_accumulation_steps 除以 N（Trainer、LLaMA-Factory、axolotl 键名相同）。确实想要大 batch，AdamW 的 learning_rate 按倍数的平方根上调，再看步数够不够。DeepSpeed 配置里 train_batch_size、train_micro_batch_size_per_gpu、gradient_accumulation_steps 都写 "auto"。',
        verify="日志打印的 total batch size 和单卡一样，按样本数画的两条曲线在噪声内重合。",
        prevention="记录和断言的都是 global batch，而不是单卡 batch。",
        question="单卡和多卡时日志里的 total train batch size 各是多少？",
        quiz="2048 条，单卡 batch 8 × 累积 4，每 epoch 64 步；换成 8 卡、配置不变，还剩几步？8 步。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(processes=8, learning_rate=2e-5, batch_per_device=8),
                metrics=make.ran(loss=make.falling(60, 2.0, 1.35)),
                attempts=make.tried(("one-card", {"processes": 1, "learning_rate": 2e-5, "batch_per_device": 8}, 2.0, 1.02)),
            ),
            Evidence(
                crash=make.crashed(
                    "AssertionError",
                    "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 8 * 1 * 4",
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # more cards, the batch kept by less accumulation
                settings=make.configured(processes=8, learning_rate=2e-5, batch_per_device=8, accumulation=1),
                metrics=make.ran(loss=make.falling(60, 2.0, 1.35)),
                attempts=make.tried(
                    ("one-card", {"processes": 1, "learning_rate": 2e-5, "batch_per_device": 8, "accumulation": 8}, 2.0, 1.02)
                ),
            ),
            Evidence(environment=Environment(processes=1), settings=make.configured(batch_per_device=8)),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = named(seen, self.signatures, PROOF)
        if proof:
            return self.confirmed(*proof, *setting(seen, "global_batch"), *setting(seen, "batch_per_device"))
        single = alone(seen)
        if single:
            return self.ruled_out(*single)
        for name in ("processes", "global_batch"):
            for contrast in contrasts(seen, name):
                mine, other = as_number(contrast.mine), as_number(contrast.other)
                if mine and other and mine / other >= GREW:
                    return self._grew(seen, contrast.attempt, (mine, other), name)
        kept = _kept(seen)
        if kept is not None:
            return self.ruled_out(kept)
        return self.not_checked("attempts")

    def _grew(self, seen: Evidence, attempt: Attempt, sizes: tuple[float, float], what: str) -> Finding:
        (mine, other), name, ended = sizes, attempt.name, attempt.last_loss
        last = shape_of(seen).last
        steps = number(seen, "accumulation")
        change = {"accumulation": max(1, round(steps * other / mine))} if steps and steps > 1 else {}
        en, zh = ("processes", "进程数") if what == "processes" else ("samples an update", "global batch")
        grew = say(
            f"{name} ran with {other:g} {en}, this run with {mine:g}, everything else equal: the global batch is {mine / other:g} times larger",
            f"{name} 的{zh}是 {other:g}，这次是 {mine:g}，其余相同：global batch 大了 {mine / other:g} 倍",
            4.0,
            section="attempts",
            where=name,
        )
        if last is None or not ended:
            return self.suspected(grew, change=change, missing=("metrics",))
        worse = last > ended * (1 + WORSE)
        loss = say(
            f"final loss {last:.3g} here, {ended:.3g} there",
            f"最终 loss 这次 {last:.3g}，那次 {ended:.3g}",
            3.0 if worse else -6.0,
        )
        return self.confirmed(grew, loss, change=change) if worse else self.ruled_out(grew, loss)


def _kept(seen: Evidence) -> Exhibit | None:
    """A sibling on another number of processes with the same global batch; None where none shows it."""
    count, batch = processes(seen), number(seen, "batch_per_device")
    if not count or not batch or seen.attempts is None:
        return None
    whole = count * batch * (number(seen, "accumulation") or 1)
    for attempt in seen.attempts.items:
        parts = [as_number(attempt.settings.get(name)) for name in ("processes", "batch_per_device")]
        if parts[0] and parts[1] and parts[0] != count:
            other = parts[0] * parts[1] * (as_number(attempt.settings.get("accumulation")) or 1)
            if other == whole:
                return say(
                    f"global batch {whole:g}, as in {attempt.name}",
                    f"global batch {whole:g}，与 {attempt.name} 相同",
                    -5.0,
                    section="attempts",
                )
    return None
