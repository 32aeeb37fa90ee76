"""No parameter is trainable."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, conclude, facts, falls, flat, lines, quoted, say, setting, shape_of
from tuneclinic.casebook.learning._gradients import (
    INPUTS_WITHOUT_GRAD,
    NO_GRAD_FN,
    gradients,
    trainable_exhibit,
    untouched_adapter,
)
from tuneclinic.casebook.learning._training import has_adapter
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit


class NothingTrainable(Case):
    id = "nothing-trainable"
    symptoms = {"loss-at-uniform": 0.1, "loss-not-falling": 0.1, "cannot-overfit": 0.08}
    stage = "overfit"
    needs = ("metrics", "model", "script", "log", "crash", "weights", "settings")
    probe = "gradient-chain"
    signatures = (
        r"trainable params: 0(\.0+)?\s*(\|\||,|$)",
        r"number of trainable parameters\s*[=:]\s*0\s*$",
        r"optimizer got an empty parameter list",
    )
    search = (
        "trainable params: 0",
        "optimizer got an empty parameter list",
        "losses identical every epoch",
        "可训练参数为 0",
        "参数全被冻结",
        "每个 epoch loss 一模一样",
    )

    en = Card(
        title="Nothing is trainable",
        sign="The loss never moves and repeats to the last digit every epoch. The start of the log says 'trainable params: 0', or the optimizer reports an empty parameter list.",
        cause="Every parameter has requires_grad=False: the adapter was loaded for inference (is_trainable is False by default), a freezing loop also froze the adapter, or vision tower, projector and language model are all frozen.",
        remedy="Load a saved adapter with PeftModel.from_pretrained(model, path, is_trainable=True) (LLaMA-Factory: adapter_name_or_path; axolotl: lora_model_dir), or freeze first and add the adapter afterwards. Call model.print_trainable_parameters() just before the trainer is built.",
        verify="The count is above zero, and one optimizer step changes the hash of a trainable tensor.",
        prevention="Assert in the script that at least one parameter requires a gradient and is in the optimizer; otherwise stop before the first step.",
        question="How many trainable parameters does the log report?",
        quiz="The losses 0.97, 1.37, 1.24 come back digit for digit in epochs 2 and 3. What does it prove? That no weight changed. Why is the next question.",
    )
    zh = Card(
        title="没有任何可训练参数",
        sign="loss 纹丝不动，每个 epoch 逐位重复。日志开头写着 trainable params: 0，或者优化器报参数列表为空。",
        cause="所有参数 requires_grad 都是 False：adapter 按推理方式加载（is_trainable 默认 False），冻结循环把 adapter 也冻了，或者视觉塔、projector、语言模型全冻了。",
        remedy="加载已有 adapter 用 PeftModel.from_pretrained(model, path, is_trainable=True)（LLaMA-Factory 是 adapter_name_or_path，axolotl 是 lora_model_dir），或先冻结、再加 adapter。建 trainer 之前调一次 model.print_trainable_parameters()。",
        verify="可训练参数大于 0，并且走一步优化器后可训练张量的哈希变了。",
        prevention="脚本里断言至少有一个参数 requires_grad 且在优化器里，否则第一步之前就停。",
        question="日志里打印的可训练参数量是多少？",
        quiz="0.97、1.37、1.24 这几个 loss 在第 2、3 个 epoch 逐位重现，说明什么？说明没有权重动过，至于为什么是下一个问题。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged("trainable params: 0 || all params: 3660320768 || trainable%: 0.0"),
                metrics=make.ran(loss=[0.9741, 1.3742, 1.2390, 0.8811, 1.0502] * 12),
            ),
            Evidence(crash=make.crashed("ValueError", "optimizer got an empty parameter list")),
            Evidence(
                model=make.modelled(trainable=0.0),
                metrics=make.ran(loss=make.level(100, 2.3), learning_rate=make.peaked(100)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same flat loss with millions of trainable parameters whose gradients flow
                log=make.logged("trainable params: 9,232,384 || all params: 3,660,320,768 || trainable%: 0.25"),
                model=make.modelled(trainable=9_232_384.0),
                metrics=make.ran(loss=make.level(100, 2.3), grad_norm=make.level(100, 1.1, 0.2), learning_rate=make.peaked(100)),
            ),
            Evidence(metrics=make.ran(loss=make.falling(), grad_norm=make.level(200, 1.0, 0.2))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proofs = (*quoted(self, seen), *facts(seen, "everything-frozen"))
        counted = trainable_exhibit(seen, PROOF, -4.0)
        if proofs or (counted and counted[0].weight > 0):
            return self.confirmed(*proofs, *counted, *flat(seen))
        moving = falls(seen)
        if moving is not None:
            return self.ruled_out(moving, *counted)
        if gradients(seen) == "alive":
            return self.ruled_out(
                say("gradient norms are above 0: something is trainable", "梯度范数大于 0：有参数可训练", -8.0), *counted
            )
        form = shape_of(seen)
        if form.nan_from is not None or form.masked_from is not None:
            return self.not_checked("model", exhibits=counted)
        exhibits = [*counted, *untouched_adapter(seen, 2.0), *flat(seen)]
        if form.repeats_exactly:
            exhibits.append(
                say(
                    f"the same losses repeat every {form.repeats_exactly} rows to the last digit",
                    f"每 {form.repeats_exactly} 行 loss 逐位重复",
                    3.0,
                )
            )
        if gradients(seen) == "zero":
            exhibits.append(say("every gradient norm is exactly 0", "每一步梯度范数都是 0", 3.0))
        exhibits.extend(_all_frozen(seen))
        if not lines(seen, INPUTS_WITHOUT_GRAD):
            exhibits.extend(lines(seen, NO_GRAD_FN, weight=2.0))
        strong = [exhibit for exhibit in exhibits if exhibit.weight >= 1 or exhibit.weight < 0]
        if not strong:
            return self.not_checked("model", "script", exhibits=tuple(exhibits))
        return conclude(self, exhibits, missing=("model", "script"))


def _all_frozen(seen: Evidence) -> tuple[Exhibit, ...]:
    """Where vision tower, projector and language model are all frozen and no adapter is trained."""
    names = ("freeze_vision", "freeze_projector", "freeze_language")
    if seen.settings is None or has_adapter(seen) or not all(seen.settings.flag(name) for name in names):
        return ()
    return tuple(exhibit for name in names for exhibit in setting(seen, name, 1.0))
