"""The checkpoint to resume from is not used."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, facts, lines, quoted, say, series, shape_of
from tuneclinic.casebook.learning._resume import jump, no_jump, resumes, smooth
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

SAME = 1e-3
"""Relative distance within which two first losses are the same number: logs print four digits."""
LOADED = r"\b(?:load(?:ing|ed)|restor(?:ing|ed)|resum(?:ing|ed))\b.{0,40}\b(?:checkpoint|ckpt)\b(?!.{0,10}shards)"
"""How scripts of one's own say that they load a checkpoint; transformers' "Loading checkpoint shards" is another thing."""
BACK_AT_START = 0.1
"""Relative distance from the run's first loss within which a loss after a resume has gone back to it."""


class ResumeNotWired(Case):
    id = "resume-not-wired"
    symptoms = {"resume-jumps": 0.1}
    stage = "environment"
    needs = ("settings", "script", "log", "metrics", "attempts")
    probe = "resume"
    signatures = (
        r"resume_from_checkpoint.{0,60}(ignored|is not used|not supported)",
        r"(no (valid )?checkpoint|checkpoint .{0,120}not) found.{0,60}(scratch|begin|start|train)",
        r"^checkpoint \S+ not found\s*$",
    )
    search = (
        "resume_from_checkpoint ignored training starts from step 0",
        "resume has no effect same loss as first run",
        "resume_from_checkpoint 不生效",
        "续训从头开始",
        "断点续训没生效 loss 和第一次一样",
    )

    en = Card(
        title="The resume option has no effect",
        sign="The resumed run starts at step 1 with exactly the first loss of the first run, and repeats its curve.",
        cause="Nothing reads the option: resume_from_checkpoint is set in TrainingArguments but trainer.train() is called without it, the path does not exist and only a warning is printed, the key belongs to another framework, or auto-resume looks into a new output_dir.",
        remedy="Pass it on: trainer.train(resume_from_checkpoint=args.resume_from_checkpoint), with the checkpoint-N folder itself. In LLaMA-Factory and axolotl set resume_from_checkpoint: path/to/checkpoint-N. If the folder is missing, stop with an error instead of starting from zero.",
        verify="The log starts at step N + 1, with the loss of step N and a learning rate from the middle of the schedule.",
        prevention="Assert trainer.state.global_step > 0 after a resume, and run the ten-step resume test.",
        question="At which step and learning rate does the log of the resumed run begin?",
        quiz="TrainingArguments(resume_from_checkpoint='ckpt-500') and trainer.train(): does it resume? No. The Trainer itself reads only the argument of train().",
    )
    zh = Card(
        title="续训选项没有生效",
        sign="“恢复”的训练从第 1 步开始，第一个 loss 和第一次训练的一模一样，曲线也照着重来一遍。",
        cause="这个选项没人读：resume_from_checkpoint 写进了 TrainingArguments，trainer.train() 却没传；路径不存在只给了警告；用了别的框架的键名；或自动恢复去找的是新的 output_dir。",
        remedy="把它传下去：trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)，路径指到 checkpoint-N 目录本身。LLaMA-Factory、axolotl 在配置里写 resume_from_checkpoint: path/to/checkpoint-N。目录不存在就报错退出，不要默默从头训。",
        verify="日志从第 N + 1 步开始，loss 接着第 N 步，学习率在调度的中段。",
        prevention="恢复后断言 trainer.state.global_step > 0；做一次十步续训测试。",
        question="恢复后的日志是从第几步、多大的学习率开始的？",
        quiz="写了 TrainingArguments(resume_from_checkpoint='ckpt-500')，再调 trainer.train()，会恢复吗？不会，Trainer 本身只认 train() 的参数。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("resume-ignored", quote="trainer.train()"),
                settings=make.configured(resume="out/checkpoint-500"),
            ),
            Evidence(
                settings=make.configured(resume="out/checkpoint-500", learning_rate=1e-4),
                metrics=make.ran(loss=make.falling(200, 2.0137, 0.9)),
                attempts=make.tried(("first-run", {"learning_rate": 1e-4}, float(make.falling(200, 2.0137, 0.9)[0]), 0.9)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same option, and the loss goes on from where the first run ended
                settings=make.configured(resume="out/checkpoint-500", learning_rate=1e-4),
                metrics=make.ran(loss=make.falling(200, 0.95, 0.7)),
                attempts=make.tried(("first-run", {"learning_rate": 1e-4}, 2.0137, 0.96)),
            ),
            Evidence(  # a jump after the resume, not back to the start
                settings=make.configured(resume="out/checkpoint-500"),
                script=make.scripted(checked=("resume-ignored",)),
                metrics=make.resumed(factor=1.0),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proofs = (*quoted(self, seen), *facts(seen, "resume-ignored"))
        asked = resumes(seen) or lines(seen, LOADED, weight=0.0)
        if smooth(seen):
            return self.ruled_out(no_jump())
        twin = _same_start(seen) if asked else None
        if proofs or (twin is not None and twin.weight > 0):
            return self.confirmed(*proofs, *asked, *([twin] if twin is not None else []))
        if not asked:
            return self.not_checked("settings")
        if twin is not None:
            return self.ruled_out(twin)
        changed = jump(seen, up=0.0, down=-3.0)
        back = _back_at_start(seen)
        return conclude(self, (*asked, *changed, *back), missing=("script", "attempts"))


def _same_start(seen: Evidence) -> Exhibit | None:
    """This run's first loss beside its siblings': the same number, or the end of one of them; None where neither shows."""
    loss = series(seen, "loss")
    if loss is None or seen.attempts is None:
        return None
    mine = float(loss.values[0])
    for attempt in seen.attempts.items:
        first, last = attempt.first_loss, attempt.last_loss
        if first and abs(mine - first) <= SAME * abs(first):
            text = f"the first loss {mine:.5g} is that of {attempt.name}: the run began anew"
            return say(
                text,
                f"第一个 loss {mine:.5g} 和 {attempt.name} 完全相同：是从头开始的",
                8.0,
                section="attempts",
                where=attempt.name,
            )
        if first and last and abs(mine - last) < 0.5 * abs(mine - first):
            text = f"the first loss {mine:.3g} continues {attempt.name}, which ended at {last:.3g}"
            return say(
                text,
                f"第一个 loss {mine:.3g} 接上了 {attempt.name} 的终值 {last:.3g}",
                -6.0,
                section="attempts",
                where=attempt.name,
            )
    return None


def _back_at_start(seen: Evidence) -> tuple[Exhibit, ...]:
    form, loss = shape_of(seen), series(seen, "loss")
    if loss is None or form.resume_jump is None or form.resumed_at is None or form.first is None:
        return ()
    after = loss.values[loss.steps >= form.resumed_at][:3]
    if not after.size or abs(float(after.mean()) / form.first - 1) > BACK_AT_START:
        return ()
    return (
        say(
            f"the loss after the resume is back at the first run's {form.first:.3g}",
            f"恢复后的 loss 回到了最初的 {form.first:.3g}",
            3.0,
        ),
    )
