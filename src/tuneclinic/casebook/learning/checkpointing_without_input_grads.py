"""Gradient checkpointing over frozen inputs."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, facts, falls, lines, say, setting
from tuneclinic.casebook.learning._gradients import INPUTS_WITHOUT_GRAD, NO_GRAD_FN, gradients
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class CheckpointingWithoutInputGrads(Case):
    id = "checkpointing-without-input-grads"
    symptoms = {"cannot-overfit": 0.06, "crashes": 0.08}
    stage = "overfit"
    explains = ("gradient-chain-broken", "nothing-trainable")
    needs = ("log", "crash", "script")
    probe = "gradient-chain"
    signatures = (INPUTS_WITHOUT_GRAD,)
    search = (
        "None of the inputs have requires_grad=True. Gradients will be None",
        "gradient checkpointing lora does not require grad",
        "enable_input_require_grads",
        "开了梯度检查点 LoRA 报错 does not require grad",
    )

    en = Card(
        title="Gradient checkpointing without input gradients",
        sign="torch/utils/checkpoint.py warns 'None of the inputs have requires_grad=True'. Then the run stops with 'element 0 of tensors does not require grad', or the loss never moves.",
        cause="Reentrant checkpointing builds a graph only if an input of the segment requires a gradient. With LoRA the embeddings are frozen, so no input does, and the whole segment is treated as constant.",
        remedy='Set gradient_checkpointing_kwargs={"use_reentrant": False} (LLaMA-Factory: use_reentrant_gc: false; axolotl: gradient_checkpointing_kwargs with use_reentrant: false). Or call model.enable_input_require_grads() before get_peft_model. Turn checkpointing on before you wrap the model with PEFT, not after.',
        verify="The warning is gone, and after one backward pass the lora_B matrices of the first layer have gradients.",
        prevention="Use non-reentrant checkpointing everywhere, and keep a test that runs one batch and checks the gradients.",
        question="Is the warning 'None of the inputs have requires_grad=True' printed above the error, and is gradient checkpointing on?",
        quiz="Why does full tuning never have this problem? Its embeddings are trainable, so the input of the first segment already requires a gradient.",
    )
    zh = Card(
        title="梯度检查点的输入不带梯度",
        sign="先是 torch/utils/checkpoint.py 的警告 None of the inputs have requires_grad=True，接着报 element 0 of tensors does not require grad，或者 loss 纹丝不动。",
        cause="可重入（reentrant）的梯度检查点只有在分段输入需要梯度时才建图。LoRA 把 embedding 冻住了，输入都不需要梯度，整段就被当成常数。",
        remedy='设 gradient_checkpointing_kwargs={"use_reentrant": False}（LLaMA-Factory 是 use_reentrant_gc: false，axolotl 在 gradient_checkpointing_kwargs 下写 use_reentrant: false），或在 get_peft_model 之前调用 model.enable_input_require_grads()。先开检查点再包 PEFT，顺序不要反。',
        verify="警告消失；一次 backward 之后第一层的 lora_B 有梯度。",
        prevention="统一用 non-reentrant 的检查点；把“一个 batch 看梯度”的测试留在仓库里。",
        question="报错上面有没有 None of the inputs have requires_grad=True 这条警告？开了梯度检查点吗？",
        quiz="为什么全参训练碰不到这个问题？因为 embedding 可训练，第一段的输入本来就需要梯度。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "torch/utils/checkpoint.py:31: UserWarning: None of the inputs have requires_grad=True. Gradients will be None"
                ),
                crash=make.crashed("RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"),
            ),
            Evidence(
                script=make.scripted("checkpointing-without-input-grads", quote="model.gradient_checkpointing_enable()"),
                crash=make.crashed("RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"),
            ),
            Evidence(
                log=make.logged("UserWarning: None of the inputs have requires_grad=True. Gradients will be None"),
                metrics=make.ran(loss=make.level(80, 2.2), grad_norm=[0.0] * 80, learning_rate=make.peaked(80)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same error without checkpointing: the loss was detached
                script=make.scripted("detach-in-loss", checked=("checkpointing-without-input-grads",)),
                crash=make.crashed("RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn"),
            ),
            Evidence(  # the same warning, from a frozen vision tower, in a run that learns
                log=make.logged("UserWarning: None of the inputs have requires_grad=True. Gradients will be None"),
                metrics=make.ran(loss=make.falling(), grad_norm=make.level(200, 1.0, 0.2)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        warned, error = lines(seen, INPUTS_WITHOUT_GRAD, weight=4.0), lines(seen, NO_GRAD_FN, weight=3.0)
        shown = facts(seen, "checkpointing-without-input-grads", weight=4.0)
        moving = falls(seen)
        if moving is not None:
            return self.ruled_out(moving)
        if gradients(seen) == "alive":
            return self.ruled_out(say("gradient norms are above 0", "梯度范数大于 0", -9.0))
        stuck = gradients(seen) == "zero"
        checkpointed = setting(seen, "gradient_checkpointing")
        if (warned or shown) and (error or stuck):
            zero = (say("every gradient norm is exactly 0", "每一步梯度范数都是 0", 3.0),) if stuck else ()
            return self.confirmed(*warned, *error, *shown, *zero, *checkpointed)
        if warned or shown:
            return conclude(self, (*warned, *shown, *checkpointed), missing=("crash",))
        if error and seen.script is not None and "checkpointing-without-input-grads" in seen.script.checked:
            return self.ruled_out(
                say(
                    "the script makes the checkpointed inputs require gradients",
                    "脚本里已让检查点分段的输入带梯度",
                    -6.0,
                    section="script",
                )
            )
        if error:
            flag = seen.settings.flag("gradient_checkpointing") if seen.settings is not None else None
            switched = setting(seen, "gradient_checkpointing", 0.0 if flag is None else 2.0 if flag else -4.0)
            return self.suspected(*error, *switched, missing=("script", "log"))
        return self.not_checked("log", "crash", "script")
