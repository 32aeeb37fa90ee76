"""The loss sits where guessing evenly would put it."""

import numpy as np

from tuneclinic.curves.rows import TOKEN_LOSSES
from tuneclinic.curves.thresholds import FLAT_POINTS
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Model
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, flat, run
from tuneclinic.symptoms._series import course, curve, kind, long_enough, look, number, stated
from tuneclinic.words import Text

VOCABULARY = 32_000
_MODEL = Evidence(model=Model(vocabulary=VOCABULARY))
_UNIFORM = float(np.log(VOCABULARY))


class LossAtUniform(Symptom):
    id = "loss-at-uniform"
    letter = "C"
    needs = ("metrics", "model", "tokenizer")
    search = (
        "loss stuck at ln(vocab_size)",
        "loss stays around 10.37",
        "loss equals log of vocabulary size",
        "model predicts uniformly, random-guess loss",
        "cross entropy stays at 11.9 for a 151936 vocabulary",
        "loss 卡在 ln(V)",
        "loss 一直在 10.4 左右，等于瞎猜",
        "loss 停在词表大小的对数",
        "loss is exactly log(V), like an untrained model",
        "initial loss 11.76 and it never moves",
        "stuck at random chance level",
        "loss 和随机初始化的模型一样",
        "loss 约等于 log(词表)",
        "一直是均匀分布的 loss",
    )

    en = SymptomCard(
        title="Loss stays at the guessing level",
        seen="The loss stays at ln(vocabulary), the value of guessing every token with equal probability. Or it stays a little below: the model has learned which tokens are frequent, and nothing about the input.",
        check="Work through one sample of three tokens by hand: which logit is compared with which label? Count how many labels are not -100. Hash one trainable tensor before and after a step: does any weight change?",
        treatment="Fix the shift first (labels must be shifted exactly once), then the mask. Then make sure that the optimizer holds the parameters that require gradients. Try a higher learning rate last.",
        prevention="Keep a unit test of the loss mask. After every change of the data pipeline, decode three samples and look at them together with their labels.",
    )
    zh = SymptomCard(
        title="loss 卡在乱猜的水平",
        seen="loss 停在 ln(词表大小)，也就是每个 token 均匀乱猜的值；或者略低一点，模型只学会了哪些 token 常见，跟输入毫无关系。",
        check="手工对一条 3 个 token 的样本：哪个 logit 对哪个 label？数一下不是 -100 的 label 有多少。取一个可训练张量，走一步前后各算一次哈希，看权重到底动没动。",
        treatment="先把移位改对（labels 只移一次，不多不少），再看掩码，再确认 optimizer 里拿的正是 requires_grad 的参数。调大学习率放到最后。",
        prevention="给 loss 掩码写个单元测试；数据处理代码每改一次，就解码三条样本连 labels 一起看。",
    )
    sick = Lazy(
        lambda: [
            run(loss=flat(level=_UNIFORM, scale=0.004)).merge(_MODEL),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(first=_UNIFORM, last=4.2)).merge(_MODEL),
            run(loss=flat(level=1.4)).merge(_MODEL),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        shape, loss = look(seen), curve(seen)
        if loss is None or not long_enough(seen) or kind(seen) not in TOKEN_LOSSES:
            return self.not_checked("metrics")
        if shape.uniform is None:
            return self.not_checked("model", "tokenizer")
        if (
            not shape.at_uniform
            and not shape.at_marginal
            and len(loss) < FLAT_POINTS
            and (shape.last or 0.0) > 0.5 * shape.uniform
        ):
            return self.not_checked("metrics")
        if not shape.at_uniform and not shape.at_marginal:
            return self.absent(course("loss", loss))
        level = number(shape.level if shape.level is not None else float(loss.values[-1]))
        ceiling = number(shape.uniform)
        if shape.at_uniform:
            text = Text(
                f"loss stays at {level}; ln(vocabulary) of this model is {ceiling}",
                f"loss 停在 {level}，这个模型的 ln(词表大小) 是 {ceiling}",
            )
        else:
            text = Text(
                f"loss stays at {level}, a little below ln(vocabulary) = {ceiling}",
                f"loss 停在 {level}，比 ln(词表大小) = {ceiling} 略低",
            )
        start = float(loss.steps[0])
        return self.shown(stated(text, loss, float(loss.steps[-1])), course("loss", loss), first_step=start)
