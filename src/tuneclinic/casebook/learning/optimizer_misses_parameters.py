"""The optimizer does not hold the parameters that get gradients."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, clean, conclude, facts, falls, flat, say, shape_of
from tuneclinic.casebook.learning._gradients import gradients, untouched_adapter
from tuneclinic.casebook.learning._training import NO_RATE, learning_rate
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

FACTS = ("optimizer-before-peft", "optimizer-wrong-parameters")


class OptimizerMissesParameters(Case):
    id = "optimizer-misses-parameters"
    symptoms = {"loss-at-uniform": 0.08, "loss-not-falling": 0.06}
    stage = "overfit"
    needs = ("metrics", "script")
    probe = "gradient-chain"
    search = (
        "optimizer created before get_peft_model",
        "gradients are non zero but weights do not change",
        "grad_norm fine but loss constant",
        "有梯度但权重不更新",
        "optimizer 没拿到 LoRA 参数",
    )

    en = Card(
        title="The optimizer does not hold the trained parameters",
        sign="Gradient norms are above 0 and the learning rate is set, yet the loss repeats every epoch and lora_B in the saved adapter is still zero.",
        cause="The optimizer was built before the model was wrapped by PEFT, moved to the GPU, resized or re-tied, so it updates tensors that the forward pass no longer uses. Or its parameter list was filtered and lost the adapter, or bf16 steps are skipped without a message.",
        remedy="Build the optimizer last: load, resize, wrap with PEFT, move to the GPU, then torch.optim.AdamW(p for p in model.parameters() if p.requires_grad). With a Trainer, let it build the optimizer.",
        verify="Hash every trainable tensor before and after one step: all change. The ids of the trainable parameters equal those in optimizer.param_groups.",
        prevention="One assertion before training: {id(p) for g in optimizer.param_groups for p in g['params']} contains every parameter with requires_grad.",
        question="In the script, is the optimizer built before or after get_peft_model, resize_token_embeddings and .to(device)?",
        quiz="'trainable params: 9M' is printed and grad_norm is 1.2. Does that prove training? No: neither says that the optimizer holds those 9M. Hash a tensor before and after a step.",
    )
    zh = Card(
        title="优化器里没有要训的参数",
        sign="梯度范数正常，学习率也有，可 loss 每个 epoch 原样重复，存下来的 adapter 里 lora_B 还是零。",
        cause="优化器在 PEFT 包装、搬设备、resize 或重新绑定权重之前就建好了，更新的是前向已经不用的旧张量；或者传进去的参数列表被过滤掉了 adapter；也可能 bf16 下每步都被悄悄跳过。",
        remedy="优化器最后再建：加载、resize、包 PEFT、搬到 GPU，之后才 torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)。用 Trainer 就别自己建优化器。",
        verify="一步前后对所有可训练张量算哈希，全都应变化；可训练参数的 id 与 optimizer.param_groups 一致。",
        prevention="训练前加一句断言：{id(p) for g in optimizer.param_groups for p in g['params']} 覆盖所有 requires_grad 的参数。",
        question="脚本里优化器是在 get_peft_model、resize_token_embeddings、.to(device) 之前还是之后建的？",
        quiz="打印了 trainable params: 9M，grad_norm 1.2，能证明在训练吗？不能，都没说这 9M 在优化器里；走一步前后对张量算哈希才算数。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("optimizer-before-peft", quote="optimizer = AdamW(model.parameters(), lr=2e-4)"),
                metrics=make.ran(loss=make.level(100, 2.3), grad_norm=make.level(100, 1.1, 0.2), learning_rate=make.peaked(100)),
            ),
            Evidence(
                metrics=make.ran(
                    loss=[0.9741, 1.3742, 1.2390, 0.8811, 1.0502, 1.1183, 0.9920, 1.3007] * 8,
                    grad_norm=[1.91, 2.11, 1.84, 1.77, 2.32, 2.05, 1.98, 2.2] * 8,
                    learning_rate=[2e-4] * 64,
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same repetition with the rate at 0: there is nothing to step by
                metrics=make.ran(
                    loss=[0.9741, 1.3742, 1.2390, 0.8811, 1.0502, 1.1183, 0.9920, 1.3007] * 8,
                    grad_norm=[1.91, 2.11, 1.84, 1.77, 2.32, 2.05, 1.98, 2.2] * 8,
                    learning_rate=[0.0] * 64,
                ),
            ),
            Evidence(
                script=make.scripted(checked=FACTS),
                metrics=make.ran(loss=make.level(100, 2.3), grad_norm=make.level(100, 1.1, 0.2), learning_rate=make.peaked(100)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proofs = facts(seen, *FACTS)
        moving = falls(seen)
        if moving is not None and not proofs:
            return self.ruled_out(moving)
        if proofs:
            return self.confirmed(*proofs, *flat(seen)) if moving is None else self.suspected(*proofs, moving)
        form, rate = shape_of(seen), learning_rate(seen)
        if rate is not None and rate <= NO_RATE:
            return self.ruled_out(
                say(
                    f"the learning rate is {rate:g}: no optimizer can change a weight with it",
                    f"学习率是 {rate:g}：哪个优化器也动不了权重",
                    -8.0,
                )
            )
        if form.repeats_exactly and gradients(seen) == "alive" and rate:
            repeated = say(
                f"the same losses repeat every {form.repeats_exactly} rows to the last digit although gradients and learning rate are above 0",
                f"梯度和学习率都正常，loss 却每 {form.repeats_exactly} 行逐位重复",
                PROOF,
            )
            return self.confirmed(repeated, *untouched_adapter(seen, 2.0))
        if gradients(seen) == "zero":
            return self.ruled_out(
                say("every gradient norm is 0: the fault is before the optimizer", "梯度范数全是 0：问题在优化器之前", -6.0)
            )
        exhibits = [*clean(seen, *FACTS), *untouched_adapter(seen, 3.0)]
        if form.repeats_exactly:
            exhibits.append(
                say(
                    f"the same losses repeat every {form.repeats_exactly} rows to the last digit",
                    f"每 {form.repeats_exactly} 行 loss 逐位重复",
                    2.5,
                )
            )
        if form.constant_grad_norm is not None:
            exhibits.append(
                say(
                    f"the gradient norm is {form.constant_grad_norm:g} at every step: gradients are computed, the weights never change",
                    f"每一步梯度范数都是 {form.constant_grad_norm:g}：梯度在算，权重却没动",
                    3.0,
                )
            )
        return conclude(self, exhibits, missing=("script",)) if exhibits else self.not_checked("script", exhibits=flat(seen))
