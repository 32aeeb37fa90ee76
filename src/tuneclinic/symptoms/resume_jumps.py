"""The loss jumps or falls where a run was resumed."""

import numpy as np

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Metrics, Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling
from tuneclinic.symptoms._series import NO_LIKELIHOOD, course, curve, index_of, kind, look, number, row
from tuneclinic.words import Text


def _resumed(jump: float) -> Evidence:
    """A run whose log goes back to step 410 and on, its loss multiplied by `jump` from there."""
    steps = np.concatenate([np.arange(1, 61) * 10.0, np.arange(42, 101) * 10.0])
    course = falling(119, 2.4, 1.1) * np.concatenate([np.ones(60), np.full(59, jump)])
    rate = Series.of(np.full(119, 1e-4), steps, "train.log", np.arange(1, 120))
    return Evidence(
        metrics=Metrics(
            {"loss": Series.of(course, steps, "train.log", np.arange(1, 120)), "learning_rate": rate},
            kind="causal-lm",
            source="train.log",
        )
    )


class ResumeJumps(Symptom):
    id = "resume-jumps"
    letter = "C"
    search = (
        "loss jumps after resuming from checkpoint",
        "resume_from_checkpoint loss starts from scratch again",
        "loss drops suddenly after resume",
        "training restarts from step 0 after resume",
        "same data seen twice after resuming",
        "断点续训 loss 跳变",
        "resume 之后 loss 变高",
        "恢复训练后 loss 对不上",
        "loss is higher after resuming",
        "resumed run does not match the run before the interruption",
        "continuing from checkpoint gives a different loss",
        "断点恢复 loss 升高",
        "接着训 loss 突然不一样",
    )

    en = SymptomCard(
        title="Loss jumps after a resume",
        seen="Where the run was resumed, the loss jumps up or down, or the same data comes again. A lower loss right after a resume is a fault too: the model sees samples it has already learned.",
        check="Compare the same step in both runs: learning rate, sample ids, loss. Does the checkpoint folder hold optimizer.pt, scheduler.pt and rng_state? Was the second launch command the same as the first?",
        treatment="Resume with the full state: pass the checkpoint-N folder as resume_from_checkpoint and use the same launch command. If the optimizer state is gone, warm up again. Loading an adapter restores the weights, not the optimizer.",
        prevention="Before a long run, stop after ten steps, resume, and compare the next ten steps with an uninterrupted run.",
    )
    zh = SymptomCard(
        title="断点续训后 loss 跳变",
        seen="恢复训练的地方 loss 突然变高，或者突然变低，或者数据又重来一遍。恢复后 loss 变低也是故障：喂的是已经学过的样本。",
        check="把两次运行的同一步放在一起比：学习率、样本 id、loss。checkpoint 目录里有没有 optimizer.pt、scheduler.pt 和随机数状态？第二次的启动命令和第一次一样吗？",
        treatment="用 resume_from_checkpoint 指向完整的 checkpoint 目录，启动命令保持一致；实在没有优化器状态就重新 warmup。单独加载 adapter 恢复的是权重，不包括优化器。",
        prevention="长训之前先跑 10 步、停、恢复，再和不中断的 10 步对比。",
    )
    sick = Lazy(lambda: [_resumed(3.0)])
    healthy = Lazy(lambda: [_resumed(1.0)])

    def see(self, seen: Evidence) -> Sighting:
        shape, loss = look(seen), curve(seen)
        if loss is None or kind(seen) in NO_LIKELIHOOD or shape.resumed_at is None:
            return self.not_checked("metrics")
        if shape.resume_jump is None:
            return self.absent(course("loss", loss))
        change = number(100 * shape.resume_jump)
        text = Text(f"loss changes by {change} % where the run was resumed", f"恢复训练处 loss 变化 {change}%")
        back = np.flatnonzero(np.diff(loss.steps) < 0) + 1
        index = int(back[0]) if len(back) else index_of(loss, shape.resumed_at)
        exhibits = [row("loss", loss, at) for at in (index - 1, index) if at >= 0]
        return self.shown(
            Exhibit(text, loss.where(index), loss.source, section="metrics"), *exhibits, first_step=shape.resumed_at
        )
