"""The optimizer's state was not restored."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, facts, quoted, setting
from tuneclinic.casebook.learning._resume import jump, no_jump, resumes, smooth
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class OptimizerStateLost(Case):
    id = "optimizer-state-lost"
    symptoms = {"loss-diverges": 0.08, "resume-jumps": 0.35}
    stage = "environment"
    needs = ("settings", "script", "log", "metrics")
    probe = "resume"
    change = {"save_only_model": False}
    signatures = (
        r"(cannot|can't|could not|unable to|failed to|did not|not) (find|load|restore)\w* .{0,40}optimizer",
        r"optimizer state\w* .{0,60}(not found|not loaded|not restored|is missing|re-?initiali[sz]ed)",
        r"(resum|load)\w* .{0,80}without optimizer state",
    )
    search = (
        "loss jumps after resume from checkpoint",
        "optimizer.pt not found when resuming",
        "save_only_model resume loss spike",
        "断点续训 loss 跳变",
        "恢复训练后 loss 突然变大",
        "优化器状态丢失",
    )

    en = Card(
        title="The optimizer state was lost",
        sign="Right after the resume the loss jumps up by 10 % or more, with larger gradient norms, and needs hundreds of steps to recover; sometimes it never does.",
        cause="Only the weights were saved or loaded. Adam starts with empty moments, so its first steps are as rough as at the start of training, but with the learning rate of mid-run. save_only_model, loading an adapter as a new run, or a different number of ZeRO ranks all cause it.",
        remedy="Set resume_from_checkpoint to the checkpoint-N folder that holds optimizer.pt, scheduler.pt and rng_state, and save with save_only_model: false (same keys in Trainer, LLaMA-Factory and axolotl). If the state is gone, treat it as a new run: warm up over 3 to 5 % of the remaining steps.",
        verify="Stop at step 20, resume, and compare the losses of steps 21 to 30 with an uninterrupted run: equal to three digits.",
        prevention="Make this ten-step resume test part of every new set-up, and check after the first save that optimizer.pt is there.",
        question="Is there an optimizer.pt (or a global_step folder) in the checkpoint you resumed from?",
        quiz="After a resume the loss jumps up and the learning rate warms up again. What was lost? Optimizer and scheduler state: the weights were loaded, not the full checkpoint.",
    )
    zh = Card(
        title="优化器状态丢了",
        sign="一恢复训练 loss 就跳高 10% 以上，梯度范数也变大，要几百步才缓过来，有时再也回不来。",
        cause="只保存或只加载了权重。Adam 的动量从零开始，头几步和刚开训时一样不稳，用的却是训练中途的学习率。save_only_model、把 adapter 当新任务加载、ZeRO 卡数变了都会这样。",
        remedy="resume_from_checkpoint 指向含有 optimizer.pt、scheduler.pt、rng_state 的 checkpoint-N 目录，保存时设 save_only_model: false（Trainer、LLaMA-Factory、axolotl 键名相同）。状态已经没了就当新任务：拿剩余步数的 3%～5% 重新 warmup。",
        verify="第 20 步停、再恢复，把 21～30 步的 loss 和不中断的训练比：三位有效数字一致。",
        prevention="新配置都做一次“十步续训测试”；第一次保存后检查 optimizer.pt 在不在。",
        question="恢复用的 checkpoint 目录里有 optimizer.pt（或 global_step 目录）吗？",
        quiz="恢复后 loss 跳高、学习率又从头 warmup，丢了什么？优化器和调度器状态：只加载了权重，没有加载完整的 checkpoint。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("llama-factory", resume="output/checkpoint-500", save_only_model=True),
                metrics=make.resumed(factor=1.6),
            ),
            Evidence(
                script=make.scripted("resume-weights-only", quote='model.load_state_dict(torch.load("step_1200.pt")["model"])'),
                metrics=make.resumed(at=100, factor=1.5),
            ),
            Evidence(
                log=make.logged(
                    "Resuming from checkpoint-800", "WARNING: could not load optimizer state, starting with a fresh optimizer"
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # resumed from the same kind of save, and the loss goes on as before
                settings=make.configured("llama-factory", resume="output/checkpoint-500", save_only_model=True),
                metrics=make.resumed(factor=1.0),
            ),
            Evidence(  # the loss falls: data are replayed
                script=make.scripted(checked=("resume-weights-only",)),
                metrics=make.resumed(factor=0.6, back=0.8),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proofs, resumed = quoted(self, seen), resumes(seen)
        weights_only = facts(seen, "resume-weights-only", weight=5.0)
        if smooth(seen):
            return self.ruled_out(no_jump(), *weights_only)
        changed = jump(seen, up=2.0, down=-6.0)
        if changed and changed[0].weight < 0:
            return self.ruled_out(*changed)
        model_only = setting(seen, "save_only_model", 4.0) if _set(seen, "save_only_model") else ()
        adapter = setting(seen, "adapter_path", 2.0) if changed and not resumed else ()
        if proofs or weights_only or (model_only and resumed and changed):
            return self.confirmed(*proofs, *weights_only, *model_only, *resumed, *changed)
        if not resumed:
            return self.not_checked("settings", "metrics")
        if not changed:
            return self.not_checked("metrics", exhibits=(*model_only, *resumed))
        return conclude(self, (*model_only, *adapter, *resumed, *changed), missing=("script", "weights"))


def _set(seen: Evidence, name: str) -> bool:
    return seen.settings is not None and seen.settings.flag(name) is True
