"""The run was resumed with another launch command."""

from __future__ import annotations

from typing import Any

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import lines, say, series
from tuneclinic.casebook.learning._resume import jump, no_jump, resumes, smooth
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

LAUNCH = (
    "processes", "machines", "batch_per_device", "accumulation", "global_batch", "deepspeed", "zero_stage", "fsdp", "mixed_precision", "bf16", "fp16", "pure_bf16",
    "max_length", "packing", "template", "dataset", "learning_rate", "scheduler", "epochs", "max_steps", "optimizer", "seed", "lora_rank", "lora_alpha",
)  # fmt: skip
"""Settings that must be the same on both sides of a resume."""
CONTINUES = 0.25
"""Relative distance of this run's first loss from a sibling's last within which the sibling is the run that was resumed."""


WARNED = (r"do not match the ones in the .{0,3}trainer_state\.json",)
"""The Trainer's warning, which a changed logging_steps or save_steps raises too."""


class LaunchDiffers(Case):
    id = "launch-differs"
    symptoms = {"resume-jumps": 0.08}
    stage = "environment"
    needs = ("log", "settings", "attempts", "metrics")
    probe = "resume"
    signatures = (
        r"batch_size: .{1,40}\(from args\) != .{1,60}\(from trainer_state\.json\)",
        r"dp world size of \d+ but the current world size is \d+",
        r"(value|argument) from checkpoint .{0,60}is not equal to the input argument value",
        r"checkpoint was saved with .{1,60}(world size|num_processes|processes)",
    )
    search = (
        "The following arguments do not match the ones in the trainer_state.json",
        "loss jumps after resume with different number of GPUs",
        "resume with another batch size",
        "checkpoint being loaded used a DP world size of 8 but the current world size is 4",
        "续训换了卡数 loss 跳",
        "恢复训练时参数和原来不一致",
        "断点续训 batch size 改了",
    )

    en = Card(
        title="The run was resumed with other settings",
        sign="At the resume the loss, its noise or the number of steps per epoch changes, although the whole state was loaded. The Trainer warns that arguments do not match trainer_state.json.",
        cause="The second command differs from the first: number of cards, batch or accumulation, precision, DeepSpeed stage, data file or maximum length. If the global batch changes, so do the noise and the amount of data per step, and the sampler and the schedule continue at another place in the data.",
        remedy='Launch with exactly the first command. With fewer cards keep the global batch: half the processes, twice the gradient_accumulation_steps. DeepSpeed ZeRO states need the same world size; otherwise convert with ds_to_universal.py and set "checkpoint": {"load_universal": true} in the DeepSpeed file. If you want the change, start a new run from the weights, with its own warm-up.',
        verify="The two printed argument blocks differ only in paths, and the losses of the ten steps after the resume continue the old curve.",
        prevention="Save the launch command and the resolved arguments with each checkpoint, and compare them automatically when resuming.",
        question="What differs between the first command and the resumed one: cards, batch, accumulation, precision, DeepSpeed file, data?",
        quiz="Stopped at step 1000 on 8 cards, resumed on 4 with the same arguments. Where in the data is step 1001? At half the samples: a step is now half as large, and 1000 such steps are skipped.",
    )
    zh = Card(
        title="续训的启动方式变了",
        sign="状态都加载了，恢复处 loss、抖动或每个 epoch 的步数却变了。Trainer 警告参数和 trainer_state.json 不一致。",
        cause="第二条命令和第一条不同：卡数、batch 或梯度累积、精度、DeepSpeed stage、数据文件、最大长度有改动。global batch 变了，噪声和每步的数据量都变，采样位置和学习率调度就接在数据的另一个地方。",
        remedy='用原命令一字不差地启动。卡少了就保持 global batch：进程数减半，gradient_accumulation_steps 翻倍。DeepSpeed ZeRO 状态要求 world size 相同，否则用 ds_to_universal.py 转换，再在 DeepSpeed 配置里写 "checkpoint": {"load_universal": true}。确实要改配置，就从权重开一个新任务，重新 warmup。',
        verify="两次打印的参数除路径外没有差别，恢复后十步的 loss 接在原曲线上。",
        prevention="每个 checkpoint 旁边存下启动命令和解析后的参数，恢复时自动比对。",
        question="第一条命令和续训命令差在哪：卡数、batch、累积、精度、DeepSpeed 配置、数据？",
        quiz="8 卡在第 1000 步停下，4 卡用同样参数恢复，第 1001 步在数据的什么位置？只到原来的一半：现在一步只有原来一半的样本，跳过 1000 步就只跳过一半。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "Warning: The following arguments do not match the ones in the `trainer_state.json` within the checkpoint directory:",
                    "\tper_device_train_batch_size: 4 (from args) != 8 (from trainer_state.json)",
                ),
                metrics=make.resumed(factor=1.4),
            ),
            Evidence(
                settings=make.configured(resume="out/checkpoint-500", learning_rate=1e-4, processes=2, bf16=True),
                metrics=make.resumed(factor=1.4),
                attempts=make.tried(("first-run", {"learning_rate": 1e-4, "processes": 8, "bf16": True}, 2.4, 2.0)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same command, and the loss jumps all the same
                settings=make.configured(resume="out/checkpoint-500", learning_rate=1e-4, processes=8),
                metrics=make.resumed(factor=1.4),
                attempts=make.tried(("first-run", {"learning_rate": 1e-4, "processes": 8}, 2.4, 2.0)),
            ),
            Evidence(  # fewer cards, the batch kept, and the loss goes on
                settings=make.configured(resume="out/checkpoint-500", processes=2, accumulation=4),
                metrics=make.resumed(factor=1.0),
                attempts=make.tried(("first-run", {"processes": 8, "accumulation": 1}, 2.4, 2.0)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told, asked = lines(seen, *self.signatures, weight=7.0), resumes(seen)
        warned = lines(seen, *WARNED, weight=2.0)
        if smooth(seen):
            return self.ruled_out(no_jump(), *told)
        changed = jump(seen, up=2.0, down=1.0)
        first = _first_run(seen) if asked else None
        differs = _differences(seen, first) if first is not None else ()
        if told or (differs and changed):
            return self.confirmed(*told, *warned, *asked, *changed, *differs)
        if first is not None and not differs:
            same = f"the settings read of both runs are the same ({first.name})"
            return self.ruled_out(
                say(same, f"两次运行读到的配置相同（{first.name}）", -4.0, section="attempts", where=first.name), *changed
            )
        if differs or (warned and changed):
            return self.suspected(*asked, *differs, *warned, *changed, missing=("attempts",))
        return self.not_checked("attempts", "log", exhibits=(*changed, *warned))


def _first_run(seen: Evidence) -> Any:
    """The sibling run that this one resumes: its loss ended where this one's begins; the only sibling where no loss tells."""
    if seen.attempts is None or seen.settings is None:
        return None
    known = [attempt for attempt in seen.attempts.items if attempt.settings]
    loss = series(seen, "loss")
    if loss is None:
        return known[0] if len(known) == 1 else None
    start = float(loss.values[0])
    ends = [one for one in known if one.last_loss and abs(start - one.last_loss) <= CONTINUES * abs(one.last_loss)]
    return ends[0] if len(ends) == 1 else None


def _differences(seen: Evidence, first: Any) -> tuple[Exhibit, ...]:
    """What both runs set, and differently."""
    if seen.settings is None:
        return ()
    found = []
    for name in LAUNCH:
        mine, other = seen.settings.get(name), first.settings.get(name)
        if mine is None or other is None or mine == other:
            continue
        found.append(
            say(
                f"{name}: {other} in {first.name}, {mine} in this run",
                f"{name}：{first.name} 是 {other}，这次是 {mine}",
                3.0,
                section="attempts",
                where=seen.settings.values[name].where,
            )
        )
    return tuple(found[:4])
