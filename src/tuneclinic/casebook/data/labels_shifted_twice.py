"""Labels are shifted by the user and again by the model."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import own_labels, statistic
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean, conclude, facts, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

FACT = "labels-shifted-twice"
MOVED_SHARE = 0.8
"""Share of trained labels that equal the following input id: all but each row's last; by chance, in repetitive text, a few percent do."""
EQUAL_SHARE = 0.95
"""Share of positions that must agree; the rest are ends, masks and padding. A judgement, not measured."""
SHIFTS_ITSELF = frozenset({"transformers", "trl", "unsloth", "peft", "llama-factory", "axolotl", "ms-swift"})
"""Frameworks whose models shift labels inside the loss."""


class LabelsShiftedTwice(Case):
    id = "labels-shifted-twice"
    symptoms = {"loss-at-uniform": 0.05}
    needs = ("script", "data", "settings")
    probe = "loss-check"
    search = (
        "labels shifted twice",
        "should I shift labels for AutoModelForCausalLM",
        "model predicts the token after next",
        "loss far above the pretrained loss, no error",
        "labels 移了两次",
        "transformers 内部已经 shift 了 labels",
        "模型在预测隔一个的 token",
        "预训练模型的起始 loss 太高",
    )

    en = Card(
        title="Labels are shifted twice",
        sign="The loss of a pretrained model starts far above its usual 1 to 3 and settles around 4. Generated text skips words.",
        cause="The script moves labels by one (labels = input_ids[1:]) and passes them to a Hugging Face model, which moves them once more. The model is trained to predict the token after the next one.",
        remedy="Pass labels unshifted and as long as input_ids: labels = input_ids.clone(), then -100 on prompt and padding. Or keep your shift and compute the loss yourself from model(input_ids).logits.",
        verify="Before the first step, the untouched model's loss on plain text is its usual 1 to 3.",
        prevention="Before every training compare the first loss with the base model's own loss on the same rows.",
        question="Are labels as long as input_ids and equal to them wherever they are trained, or already moved by one?",
        quiz="With a double shift, does the loss stay at ln(V)? No, it falls to a value in between: the token after the next is partly predictable.",
    )
    zh = Card(
        title="labels 被移了两次",
        sign="预训练模型的起始 loss 远高于平时的 1～3，最后停在 4 左右；生成的文本像是隔一个词跳着写。",
        cause="脚本里已经把 labels 移了一位（labels = input_ids[1:]），又交给 Hugging Face 模型，它内部再移一次。结果模型学的是预测下下个 token。",
        remedy="labels 不要自己移，和 input_ids 等长：labels = input_ids.clone()，prompt 和 padding 处填 -100。要保留自己的 shift，就用 model(input_ids).logits 自己算 loss。",
        verify="第一步之前，原始模型在普通文本上的 loss 应是 1～3。",
        prevention="每次训练前，拿第一个 loss 和 base 模型在同样样本上的 loss 比一下。",
        question="labels 和 input_ids 是不是等长、参与训练的部分逐位相等？还是已经错了一位？",
        quiz="移了两次，loss 会停在 ln(V) 吗？不会，会停在中间某个值，因为下下个 token 也有一部分能猜到。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(FACT, quote="{'input_ids': ids[:-1], 'labels': ids[1:]}")),
            Evidence(
                data=make.rowset(100, layout="tokenised", statistics={"labels_equal_share": 0.03, "labels_shifted_share": 1.0}),
                settings=run.configured("trl", learning_rate=1e-5),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(checked=(FACT,)), metrics=run.ran(loss=run.level(100, 4.1))),
            Evidence(
                data=make.rowset(100, layout="tokenised", statistics={"labels_equal_share": 1.0, "labels_shifted_share": 0.04})
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof, moved = facts(seen, FACT), _moved(seen)
        framework = seen.settings.framework if seen.settings is not None else ""
        if proof or (moved and moved[0].weight > 0 and framework in SHIFTS_ITSELF):
            return self.confirmed(*proof, *moved)
        return conclude(self, (*clean(seen, FACT), *moved, *(() if moved else own_labels(seen))), missing=("script",))


def _moved(seen: Evidence) -> tuple[Exhibit, ...]:
    """How the labels of a tokenised set stand to its ids."""
    shifted, equal = statistic(seen, "labels_shifted_share"), statistic(seen, "labels_equal_share")
    if shifted is None or equal is None:
        return ()
    if shifted >= MOVED_SHARE and equal < 1 - MOVED_SHARE:
        told = f"{shifted:.0%} of the trained labels equal the next input id: they are already shifted"
        return (say(told, f"{shifted:.0%} 的训练 label 等于下一个输入 id：已经移过一位", 8.0, section="data"),)
    if equal >= EQUAL_SHARE:
        return (
            say(
                f"{equal:.0%} of the trained labels equal their own input id",
                f"{equal:.0%} 的训练 label 等于同位置的输入 id",
                -6.0,
                section="data",
            ),
        )
    return ()
