"""The loss is where such a loss lies: benign."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, falls, say, shape_of
from tuneclinic.casebook.learning._gradients import gradients
from tuneclinic.casebook.learning._training import learning_rate, rate_exhibit, usual_rate
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

PLAUSIBLE = (0.4, 1.9)
"""Nats a token: lowest to highest final loss of 32 public supervised runs on instruct models (10th to 90th percentile 0.41 to 1.27,
highest 1.86); relative drops there begin at 2 %."""


class LossIsPlausible(Case):
    id = "loss-is-plausible"
    kind = "benign"
    symptoms = {"loss-not-falling": 0.05}
    stage = "overfit"
    needs = ("metrics",)
    probe = "evaluation"
    search = (
        "loss stays around 1.0 when fine-tuning an instruct model",
        "is a loss of 1.1 normal",
        "loss does not go below 1",
        "loss 一直在 1 左右正常吗",
        "指令微调 loss 降不下去 正常",
    )

    en = Card(
        title="This loss is normal",
        sign="When you fine-tune a chat model, the loss starts near 1 nat and hardly falls. Gradients are above 0, the learning rate is usual, and the noise is ordinary.",
        cause="An open answer can be worded in many ways, and the loss counts every choice of words: about 1 nat per token remains even when the model already knows how to answer. A strong instruct model on similar data starts close to that level and can gain only a few per cent.",
        remedy="Nothing to fix. Judge by held-out generations or a task score. If the score does not change either, the data teaches nothing new: collect rows on which the model fails.",
        verify="Ten samples can be memorised below 0.1, which proves labels, gradient chain and learning rate. On held-out prompts the outputs move towards the data.",
        prevention="Before training, measure the loss of the base model on the held-out set, and decide which score the run is judged by.",
        question="Is the base an instruct model, are the answers open text, and can ten samples be memorised?",
        quiz="The loss of a summariser goes from 1.12 to 1.05 in an epoch. Is it broken? That alone does not show it: run the ten-sample test and compare outputs before you change anything.",
    )
    zh = Card(
        title="这个 loss 是正常的",
        sign="微调对话模型，loss 从 1 左右开始，几乎不降；梯度正常、学习率正常、噪声也正常。",
        cause="开放式回答有很多种说法，loss 把每次选词都算进去：模型本来就会答时，剩下的大约就是每 token 1 nat。强指令模型遇到相近的数据，起点就贴着这个底，能再降几个百分点就不错了。",
        remedy="不用修。看验证集生成结果或任务指标。如果指标也不动，说明数据没教新东西，去找模型答错的样本。",
        verify="10 条样本能过拟合到 0.1 以下，就证明标签、梯度链、学习率都没问题；验证集上的输出在向数据靠拢。",
        prevention="训练前先测 base 模型在验证集上的 loss，并定好用什么指标评判这次训练。",
        question="base 是指令模型吗？答案是开放文本吗？10 条样本能过拟合吗？",
        quiz="摘要任务 loss 一个 epoch 从 1.12 降到 1.05，是不是坏了？单看这个不能说坏：先做 10 条过拟合测试、对比输出，再动别的。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(method="lora", learning_rate=2e-4, model="Qwen/Qwen2.5-7B-Instruct"),
                metrics=make.ran(
                    loss=make.level(200, 1.05, 0.08), grad_norm=make.level(200, 0.8, 0.2), learning_rate=make.peaked()
                ),
            ),
            Evidence(
                settings=make.configured("axolotl", method="full", learning_rate=1e-5),
                metrics=make.ran(
                    loss=make.level(300, 0.92, 0.06), grad_norm=make.level(300, 2.1, 0.4), learning_rate=make.peaked(300, 1e-5)
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # as flat, with no gradient
                settings=make.configured(method="lora", learning_rate=2e-4),
                metrics=make.ran(loss=make.level(200, 1.05, 0.08), grad_norm=[0.0] * 200, learning_rate=make.peaked()),
            ),
            Evidence(  # as flat, at a rate that moves nothing
                settings=make.configured(method="lora", learning_rate=1e-6),
                metrics=make.ran(
                    loss=make.level(200, 1.05, 0.08), grad_norm=make.level(200, 0.8, 0.2), learning_rate=make.peaked(peak=1e-6)
                ),
            ),
            Evidence(  # as flat, far above what open answers cost
                settings=make.configured(method="lora", learning_rate=2e-4),
                metrics=make.ran(
                    loss=make.level(200, 4.1, 0.08), grad_norm=make.level(200, 0.8, 0.2), learning_rate=make.peaked()
                ),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form = shape_of(seen)
        if not form.points or (seen.metrics is not None and seen.metrics.kind not in {"causal-lm", ""}):
            return self.not_checked("metrics")
        moving = falls(seen)
        if moving is not None or not form.no_learning:
            return self.ruled_out(moving or say("the loss is not flat", "loss 不是平的", -4.0))
        level = form.level if form.level is not None else form.last
        if level is None:
            return self.not_checked("metrics")
        low, high = PLAUSIBLE
        inside = low <= level <= high
        shown = say(
            f"the loss stays at {level:.2f}; public runs on instruct models end at {low:g} to {high:g}",
            f"loss 在 {level:.2f}；公开的指令模型微调，终值一般在 {low:g}～{high:g}",
            3.0 if inside else -6.0,
        )
        if not inside or form.repeats_exactly or form.at_uniform or form.nan_from is not None or form.masked_from is not None:
            told = () if inside else (shown,)
            return self.ruled_out(*told, say("the series shows a fault", "曲线显示有问题", -6.0))
        if gradients(seen) == "zero":
            return self.ruled_out(say("every gradient norm is 0", "梯度范数全是 0", -9.0))
        rate = learning_rate(seen)
        usual = rate is not None and rate >= usual_rate(seen)[0]
        if rate is not None and not usual:
            return self.ruled_out(*rate_exhibit(seen, -6.0))
        alive = gradients(seen) == "alive"
        exhibits = [shown, *rate_exhibit(seen, 1.0)]
        if alive:
            exhibits.append(say("gradients are above 0", "梯度正常", 2.0))
        return conclude(self, exhibits, proof=alive and usual, missing=("settings",))
