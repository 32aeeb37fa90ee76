"""Too many passes over the data."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, finite, say, setting, shape_of
from tuneclinic.casebook.learning._training import USUAL_EPOCHS, change_size, epoch_at, epochs
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

PAST_THE_TURN = 1.0
"""Epochs trained after the evaluation loss turned up from which the passes themselves are proven too many: a whole pass bought
nothing but a worse model."""
TOKEN_LOSS = 0.3
"""Nats below which a first loss is of no language model: 33 public supervised runs start at 0.43 or above."""


class TooManyEpochs(Case):
    id = "too-many-epochs"
    symptoms = {"loss-near-zero": 0.3, "overfits": 0.35, "parrots": 0.25, "forgets": 0.2}
    stage = "hyperparameters"
    needs = ("metrics", "settings")
    probe = "evaluation"
    change = {"epochs": 2}
    search = (
        "train loss drops at every epoch",
        "overfitting after 2 epochs",
        "loss staircase at epoch boundaries",
        "epoch 太多 过拟合",
        "训练轮数太多",
        "每个 epoch 开头 loss 掉一截",
    )

    en = Card(
        title="Too many epochs",
        sign="The training loss falls in steps, one at the start of each epoch, towards zero, while the evaluation loss turned up an epoch or more ago. Outputs repeat training answers.",
        cause="From the second epoch on the model sees the same rows again, and learns the rows rather than the task. One to three epochs are usual; the smaller the data set and the higher learning rate and rank, the fewer are needed.",
        remedy="Use the checkpoint with the lowest evaluation loss. Then train again with num_train_epochs (axolotl: num_epochs) set to that point, usually 1 to 3. Set load_best_model_at_end: true with early stopping: EarlyStoppingCallback(early_stopping_patience=3) in Trainer, early_stopping_steps: 3 in LLaMA-Factory, early_stopping_patience: 3 in axolotl.",
        verify="The new run ends near the lowest evaluation loss, and new prompts are answered in words that are not in the training set.",
        prevention="Split off a held-out set before the first run, evaluate at least twice per epoch, and let early stopping end the run.",
        question="How many epochs did you train, and at which epoch was the evaluation loss lowest?",
        quiz="The training loss drops sharply at step 500, and an epoch has 500 steps. Why then? The second epoch began: the model has seen those rows before. It memorises, it does not generalise.",
    )
    zh = Card(
        title="训练 epoch 太多",
        sign="训练 loss 呈台阶状下降，每个 epoch 开头掉一截，一直掉到接近 0；而验证 loss 早在一个多 epoch 之前就开始回升。输出像在背训练集答案。",
        cause="从第二个 epoch 开始，模型见的都是见过的样本，学到的是样本本身而不是任务。常规是 1～3 个 epoch；数据越少、学习率和 rank 越大，需要的 epoch 越少。",
        remedy="用验证 loss 最低的 checkpoint，重训时把 num_train_epochs（axolotl 是 num_epochs）设到拐点处，一般 1～3。打开 load_best_model_at_end: true 并加早停：Trainer 用 EarlyStoppingCallback(early_stopping_patience=3)，LLaMA-Factory 是 early_stopping_steps: 3，axolotl 是 early_stopping_patience: 3。",
        verify="新训练停在验证 loss 最低点附近；换新问题，回答不再是训练集里的原句。",
        prevention="第一次训练前就留出验证集，每个 epoch 至少评估两次，让早停来结束训练。",
        question="训了几个 epoch？验证 loss 在第几个 epoch 最低？",
        quiz="每个 epoch 500 步，第 500 步之后训练 loss 突然掉一截，为什么？第二个 epoch 开始了，样本都见过，这是记住而不是学会。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=8),
                metrics=make.ran(
                    loss=make.falling(400, 2.0, 0.05, noise=0.02),
                    eval_loss=(
                        range(25, 401, 25),
                        [1.6, 1.4, 1.3, 1.35, 1.45, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.15, 2.2, 2.25, 2.3, 2.3],
                    ),
                    epoch=[8 * step / 400 for step in range(1, 401)],
                ),
            ),
            Evidence(
                settings=make.configured("axolotl", method="full", learning_rate=2e-5, epochs=5),
                metrics=make.ran(
                    loss=make.falling(500, 2.4, 0.2, noise=0.03),
                    eval_loss=(range(50, 501, 50), [1.9, 1.7, 1.65, 1.72, 1.8, 1.9, 2.05, 2.15, 2.2, 2.3]),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # as many passes, and the evaluation still falls
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=8),
                metrics=make.ran(
                    loss=make.falling(400), eval_loss=(range(50, 401, 50), [1.6, 1.4, 1.3, 1.22, 1.17, 1.13, 1.11, 1.1])
                ),
            ),
            Evidence(  # the evaluation turns up within a single pass
                settings=make.configured(method="full", learning_rate=2e-5, epochs=1),
                metrics=make.ran(
                    loss=make.falling(400, 2.0, 0.4, noise=0.02),
                    eval_loss=(range(50, 401, 50), [1.6, 1.4, 1.35, 1.5, 1.7, 1.9, 2.1, 2.3]),
                ),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, passes = shape_of(seen), epochs(seen)
        if passes is None:
            return self.not_checked("settings")
        if passes <= 1:
            return self.ruled_out(_passes(passes, -6.0), *setting(seen, "epochs"))
        exhibits = [_passes(passes, 1.0 if passes > USUAL_EPOCHS else -1.0), *setting(seen, "epochs")]
        past = 0.0
        if form.overfits_from is not None:
            turn = epoch_at(seen, form.overfits_from)
            past = passes - turn if turn is not None else 0.0
            exhibits.append(_turned(form.overfits_from, turn, past))
        if form.epoch_steps:
            exhibits.append(say("the training loss drops at each epoch border", "训练 loss 在每个 epoch 交界处掉一截", 1.5))
        memorised = form.near_zero_from is not None and ((form.first or 0.0) >= TOKEN_LOSS or _excerpt(seen))
        if form.near_zero_from is not None and memorised:
            step = f"{form.near_zero_from:g}"
            exhibits.append(say(f"the training loss is about 0 from step {step} on", f"训练 loss 从第 {step} 步起接近 0", 1.0))
        showing = form.overfits_from is not None or memorised
        if not showing:
            if form.points and _eval_falls(seen):
                return self.ruled_out(say("the evaluation loss does not turn up", "验证 loss 没有回升", -5.0))
            return self.not_checked("metrics", exhibits=tuple(exhibits))
        exhibits.extend(change_size(seen))
        proof = past >= PAST_THE_TURN and passes > USUAL_EPOCHS
        turn = epoch_at(seen, form.overfits_from) if form.overfits_from is not None else None
        return conclude(self, exhibits, proof=proof, change={"epochs": max(1, round(turn or 2))})


def _passes(passes: float, weight: float) -> Exhibit:
    return say(
        f"{passes:.3g} epochs; 1 to 3 are usual",
        f"训了 {passes:.3g} 个 epoch；常规 1～3 个",
        weight,
        section="settings",
    )


def _turned(step: float, turn: float | None, past: float) -> Exhibit:
    at = "" if turn is None else f", epoch {turn:.2g}"
    at_zh = "" if turn is None else f"（第 {turn:.2g} 个 epoch）"
    return say(
        f"the evaluation loss is lowest at step {step:g}{at}; {past:.2g} more epochs follow",
        f"验证 loss 在第 {step:g} 步{at_zh}最低，此后又训了 {past:.2g} 个 epoch",
        3.0 if past >= PAST_THE_TURN else 1.0,
        where=f"step {step:g}",
    )


def _excerpt(seen: Evidence) -> bool:
    """Whether the log begins after the first pass: its first loss tells nothing of where the run began."""
    logged = finite(seen, "epoch")
    return bool(logged.size and logged[0] > 1)


def _eval_falls(seen: Evidence) -> bool:
    return seen.metrics is not None and seen.metrics.get("eval_loss") is not None
