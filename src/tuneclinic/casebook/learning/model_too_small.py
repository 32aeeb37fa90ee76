"""What is trained is too small to hold the data."""

import math

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, say, shape_of
from tuneclinic.casebook.learning._gradients import gradients, trainable_exhibit
from tuneclinic.casebook.learning._training import epochs, rows
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

BITS_A_PARAMETER = 2.0
"""Bits of knowledge that a trained transformer holds for each parameter (Allen-Zhu and Li, Physics of Language Models 3.3, 2024)."""
ENOUGH_PASSES = 20.0
"""Passes over a handful of rows after which they are memorised where they can be: the ten-sample test needs 10 to 50."""
FEW = 64.0
"""Rows up to which a run is an attempt to memorise."""
NOT_MEMORISED = 0.3
"""Nats above which ten samples are not memorised; the test asks for less than 0.1."""


class ModelTooSmall(Case):
    id = "model-too-small"
    symptoms = {"cannot-overfit": 0.04}
    stage = "overfit"
    needs = ("model", "metrics")
    probe = "overfit"
    change = {"lora_rank": 16}
    search = (
        "model too small to overfit",
        "rank 1 lora cannot memorize 10 samples",
        "模型太小 过拟合不了",
        "可训练参数太少 记不住",
    )

    en = Card(
        title="Too few trainable parameters",
        sign="On a handful of rows the loss falls smoothly and then stays far above 0, with healthy gradients, however many epochs you run. Labels and loss were checked.",
        cause="A network stores about 2 bits per parameter. A rank-1 adapter on one projection, a prompt of eight virtual tokens, or a toy model can store less than the answers contain, so part of them cannot be memorised.",
        remedy="Adapt all linear layers at rank 16: target_modules='all-linear', r=16 (LLaMA-Factory: lora_target: all, lora_rank: 16; axolotl: lora_target_linear: true, lora_r: 16), or take the next larger model. This is the last of five suspects: check label alignment, the loss, preprocessing and the gradient chain first.",
        verify="With ten times the trainable parameters the loss ends clearly lower; with enough of them ten samples go below 0.1.",
        prevention="Before the ten-sample test, compare 2 bits × trainable parameters with tokens × loss / ln 2 bits.",
        question="How many parameters are trainable, and how many tokens do the ten answers have in total?",
        quiz="3,000 trainable parameters, ten answers of 500 tokens at 2 nats per token. Can it memorise them? No: 14,000 bits do not fit into 6,000.",
    )
    zh = Card(
        title="可训练参数太少，装不下",
        sign="就那么几条样本，loss 平稳下降后停在离 0 很远的位置，梯度正常，再多训几个 epoch 也没用；标签和 loss 都查过没问题。",
        cause="网络每个参数大约只能存 2 bit。只在一个线性层上加 rank 1 的 LoRA、8 个虚拟 token 的 prompt，或玩具模型，能存的信息比答案本身还少，总有一部分记不住。",
        remedy="所有线性层都加 LoRA、rank 16：target_modules='all-linear'、r=16（LLaMA-Factory 是 lora_target: all、lora_rank: 16，axolotl 是 lora_target_linear: true、lora_r: 16），或换大一号的模型。它是五个嫌疑里最后一个：先查标签对齐、loss 实现、预处理和梯度链。",
        verify="可训练参数变成十倍后，loss 最后停得明显更低；参数足够时 10 条样本能降到 0.1 以下。",
        prevention="做 10 条过拟合测试前，先比较两个数：2 bit × 可训练参数，和 token 数 × loss / ln 2（bit）。",
        question="可训练参数有多少？10 条答案一共多少 token？",
        quiz="可训练参数 3000，10 条各 500 token 的答案、每 token 2 nat，记得住吗？记不住：1.4 万 bit 装不进 6000 bit。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                model=make.modelled(trainable=3072.0),
                data=make.counted(10, tokens_estimated=5000.0),
                settings=make.configured(method="lora", epochs=60, lora_rank=1, learning_rate=3e-4),
                metrics=make.ran(loss=make.falling(300, 2.6, 1.7, noise=0.01), grad_norm=make.level(300, 0.6, 0.1)),
            ),
            Evidence(
                model=make.modelled(parameters=20_000.0),
                data=make.counted(32, tokens_estimated=40_000.0),
                settings=make.configured("pytorch", method="full", epochs=100, learning_rate=1e-4),
                metrics=make.ran(loss=make.falling(400, 6.0, 3.1, noise=0.02), grad_norm=make.level(400, 0.9, 0.1)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same rest, with ten million trainable parameters: something else holds it
                model=make.modelled(trainable=1e7),
                data=make.counted(10, tokens_estimated=5000.0),
                settings=make.configured(method="lora", epochs=60, lora_rank=16, learning_rate=3e-4),
                metrics=make.ran(loss=make.falling(300, 2.6, 1.7, noise=0.01), grad_norm=make.level(300, 0.6, 0.1)),
            ),
            Evidence(  # as few parameters, and the samples are memorised
                model=make.modelled(trainable=3072.0),
                data=make.counted(10, tokens_estimated=5000.0),
                metrics=make.ran(loss=make.falling(300, 2.6, 0.05, noise=0.01)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        form, count = shape_of(seen), rows(seen)
        trained = seen.model.trainable or seen.model.parameters if seen.model is not None else None
        tokens = seen.data.statistics.get("tokens_estimated") if seen.data is not None else None
        if form.last is None or form.first is None or form.nan_from is not None:
            return self.not_checked("metrics")
        if form.last <= NOT_MEMORISED:
            return self.ruled_out(
                say(f"the loss ends at {form.last:.3g}: memorised", f"loss 终值 {form.last:.3g}：已经记住", -9.0)
            )
        if trained is None or tokens is None or count is None:
            return self.not_checked("model", "data")
        held, wanted = BITS_A_PARAMETER * trained, tokens * form.first / math.log(2)
        shown = say(
            f"{trained:,.0f} trained parameters can store about {held:,.0f} bits; the rows contain about {wanted:,.0f}",
            f"{trained:,.0f} 个可训练参数约能存 {held:,.0f} bit；数据约有 {wanted:,.0f} bit",
            5.0 if held < wanted else -7.0,
            section="model",
        )
        if held >= wanted:
            return self.ruled_out(shown)
        passes = epochs(seen) or 0.0
        if count > FEW or passes < ENOUGH_PASSES:
            return self.ruled_out(
                say("the run did not try to memorise a handful of rows", "这次训练并不是在记几条样本", -3.0, section="data")
            )
        learned = form.last < form.first * 0.9 and gradients(seen) != "zero"
        rests = say(
            f"after {passes:g} epochs over {count:g} rows the loss stays at {form.last:.3g}",
            f"{count:g} 条样本训了 {passes:g} 个 epoch，loss 停在 {form.last:.3g}",
            2.0,
        )
        return conclude(self, (shown, rests, *trainable_exhibit(seen, -5.0, 0.0)), proof=learned)
