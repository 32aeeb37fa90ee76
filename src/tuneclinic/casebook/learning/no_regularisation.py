"""Nothing holds the weights back."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, number, say, setting, shape_of
from tuneclinic.casebook.learning._training import (
    FEW_ROWS,
    USUAL_EPOCHS,
    USUAL_RANK_HIGH,
    epochs,
    learning_rate,
    rows,
    usual_rate,
)
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

REGULARISERS = ("weight_decay", "lora_dropout", "neftune_alpha")


class NoRegularisation(Case):
    id = "no-regularisation"
    symptoms = {"overfits": 0.06}
    stage = "hyperparameters"
    needs = ("settings",)
    probe = "evaluation"
    change = {"lora_dropout": 0.05, "weight_decay": 0.01}
    search = ("lora_dropout 0 weight_decay 0 overfits", "add dropout to lora", "没有正则 过拟合", "lora_dropout 设多少")

    en = Card(
        title="No regularisation is used",
        sign="The evaluation loss turns up although learning rate, rank, epochs and number of rows are all usual, and the configuration has dropout 0 and weight decay 0.",
        cause="Nothing penalises the model for fitting the last detail of each row. If the data has little variety, these details are noise, and the model learns them too.",
        remedy="Set lora_dropout: 0.05 to 0.1 and weight_decay: 0.01 to 0.1. For chat data you can add NEFTune: neftune_noise_alpha: 5 (TRL, axolotl), neftune_alpha: 5 (LLaMA-Factory). Use the checkpoint at the turn. Among the remedies for overfitting this is the weakest: fewer epochs and more rows come first.",
        verify="With dropout on, the training loss ends a little higher, and the evaluation loss turns later and lower.",
        prevention="Put dropout 0.05 and early stopping into the recipe template; remove them only for a reason.",
        question="What are lora_dropout and weight_decay, and is there early stopping?",
        quiz="Evaluation loss rises in epoch 2, dropout is 0. Do you raise dropout first? No: fewer epochs and more data help far more; dropout adds a little.",
    )
    zh = Card(
        title="没有任何正则化",
        sign="学习率、rank、epoch、样本数都正常，验证 loss 还是回升，而配置里 dropout 是 0、weight decay 也是 0。",
        cause="模型把每条样本的最后一点细节都拟合掉也没有代价。数据不够多样时这些细节就是噪声，照样被学了进去。",
        remedy="lora_dropout 设 0.05～0.1，weight_decay 设 0.01～0.1；对话数据可以加 NEFTune：TRL、axolotl 设 neftune_noise_alpha: 5，LLaMA-Factory 设 neftune_alpha: 5；并使用拐点处的 checkpoint。抗过拟合的手段里它最弱，先考虑减 epoch、加数据。",
        verify="加 dropout 后训练 loss 终值略高，验证 loss 拐点更晚、更低。",
        prevention="配方模板里默认 dropout 0.05 加早停，要去掉得有理由。",
        question="lora_dropout 和 weight_decay 各是多少？有没有早停？",
        quiz="验证 loss 第 2 个 epoch 回升，dropout 是 0，先加 dropout 吗？不，先减 epoch、加数据，效果大得多；dropout 只能再补一点。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(
                    method="lora", learning_rate=2e-4, epochs=3, lora_rank=16, lora_dropout=0.0, weight_decay=0.0
                ),
                data=make.counted(4000),
                metrics=make.ran(
                    loss=make.falling(300, 2.0, 0.5, noise=0.03),
                    eval_loss=(range(30, 301, 30), [1.6, 1.4, 1.33, 1.3, 1.36, 1.45, 1.55, 1.65, 1.75, 1.8]),
                ),
            ),
            Evidence(
                settings=make.configured("axolotl", method="full", learning_rate=1e-5, epochs=2, weight_decay=0.0),
                data=make.counted(9000),
                metrics=make.ran(
                    loss=make.falling(300, 2.1, 0.6, noise=0.03),
                    eval_loss=(range(30, 301, 30), [1.7, 1.5, 1.42, 1.4, 1.48, 1.56, 1.66, 1.75, 1.85, 1.9]),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same turn with dropout on
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=3, lora_rank=16, lora_dropout=0.1),
                data=make.counted(4000),
                metrics=make.ran(
                    loss=make.falling(300, 2.0, 0.5, noise=0.03),
                    eval_loss=(range(30, 301, 30), [1.6, 1.4, 1.33, 1.3, 1.36, 1.45, 1.55, 1.65, 1.75, 1.8]),
                ),
            ),
            Evidence(  # no regulariser, and no need of one
                settings=make.configured(method="lora", learning_rate=2e-4, epochs=3, lora_dropout=0.0, weight_decay=0.0),
                metrics=make.ran(loss=make.falling(300), eval_loss=(range(30, 301, 30), make.falling(10, 1.8, 1.1, noise=0.005))),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form = shape_of(seen)
        given = [name for name in REGULARISERS if number(seen, name) is not None]
        if any(number(seen, name) for name in given):
            held = [name for name in given if number(seen, name)]
            return self.ruled_out(*(exhibit for name in held for exhibit in setting(seen, name, -4.0)))
        if form.overfits_from is None:
            if seen.metrics is not None and seen.metrics.get("eval_loss") is not None:
                return self.ruled_out(say("the evaluation loss does not turn up", "验证 loss 没有回升", -5.0))
            return self.not_checked("metrics")
        if not given:
            return self.not_checked("settings")
        exhibits = [exhibit for name in given for exhibit in setting(seen, name, 0.5)]
        usual = _others_usual(seen)
        if usual:
            exhibits.append(
                say(
                    "learning rate, rank, epochs and rows are all usual",
                    "学习率、rank、epoch、样本数都在常规范围",
                    4.0,
                    section="data",
                )
            )
        return conclude(self, exhibits, proof=usual)


def _others_usual(seen: Evidence) -> bool:
    """Whether every stronger cause of overfitting was read and is within its usual range."""
    passes, rate, count = epochs(seen), learning_rate(seen), rows(seen)
    if passes is None or rate is None or count is None:
        return False
    return (
        passes <= USUAL_EPOCHS
        and rate <= usual_rate(seen)[2]
        and count >= FEW_ROWS
        and (number(seen, "lora_rank") or 0) <= USUAL_RANK_HIGH
    )
