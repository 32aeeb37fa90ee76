"""The reference model is not the policy's start."""

import math

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, number, say, series, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

START = math.log(2)
"""Where a sigmoid preference loss starts when policy and reference are equal."""
FIRST_ROWS = 2.0
"""Steps up to which a policy has hardly moved: the rate is still warming up."""
OFF_LOSS = 0.1
"""Nats from ln 2 that dropout and 16-bit rounding do not reach in the first row (public runs start at 0.690 to 0.695)."""
OFF_REWARD = 0.2
"""Implicit reward in the first row that rounding does not reach: it is beta times a difference of log-probabilities that is 0."""


class ReferenceDiffers(Case):
    id = "reference-differs"
    symptoms = {"preference-odd": 0.08}
    stage = "environment"
    needs = ("metrics", "settings")
    probe = "parity"
    search = (
        "DPO loss does not start at 0.693",
        "rewards not zero at first step dpo",
        "wrong reference model DPO",
        "DPO 第一步 loss 不是 0.693",
        "参考模型不一致",
    )

    en = Card(
        title="Reference and starting policy differ",
        sign="The first DPO loss is not 0.693, or in the first row rewards/chosen and rewards/rejected are already away from 0, before any real update.",
        cause="Policy and reference have different weights or precision: the base model as reference for a policy that went through SFT, an adapter on the policy that the reference lacks, a quantised reference, another template, or dropout active in one of them.",
        remedy="Use the SFT model itself as reference: ref_model=None with an adapter (TRL switches the adapter off for the reference), or load both from one path in one dtype (ref_model in LLaMA-Factory). Merge the SFT adapter into the model before you add the DPO adapter.",
        verify="With logging_steps: 1 the first row shows loss 0.693 and rewards of 0.00.",
        prevention="In every DPO run with the sigmoid loss, assert abs(first_loss - math.log(2)) < 0.01 in the first step.",
        question="What are loss and rewards in the very first logged row (logging_steps: 1)?",
        quiz="First DPO row: loss 1.9, rewards/chosen -3. What is wrong before any training? The reference: with equal models the log-ratio is 0 and the loss is ln 2.",
    )
    zh = Card(
        title="参考模型和训练起点不一致",
        sign="DPO 第一个 loss 不是 0.693，或第一行 rewards/chosen、rewards/rejected 就已经偏离 0，而这时还没有真正更新过。",
        cause="策略和参考不是同一份权重或精度：策略是 SFT 过的，参考却用了 base；策略带 adapter 而参考没有；参考是量化的；模板不同；或其中一个 dropout 没关。",
        remedy="参考就用 SFT 模型本身：带 adapter 时 ref_model=None（TRL 计算参考时自动关掉 adapter），或两者从同一路径、同一 dtype 加载（LLaMA-Factory 是 ref_model）。先把 SFT 的 adapter 合并进模型，再加 DPO 的 adapter。",
        verify="设 logging_steps: 1，第一行 loss 是 0.693，reward 是 0.00。",
        prevention="用 sigmoid loss 的 DPO，第一步都断言 abs(first_loss - math.log(2)) < 0.01。",
        question="日志第一行（logging_steps: 1）的 loss 和 reward 是多少？",
        quiz="DPO 第一行 loss 1.9、rewards/chosen -3，还没训就错在哪？错在参考模型：两者相同时 log 比值为 0，loss 就是 ln 2。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(60, 1.9, 0.8, noise=0.02),
                    rewards__chosen=make.falling(60, -3.0, -2.0, noise=0.05),
                    rewards__rejected=make.falling(60, -1.5, -3.0, noise=0.05),
                )
            ),
            Evidence(
                settings=make.configured("trl", stage="dpo", model="sft-model", reference_model="meta-llama/Llama-3.1-8B"),
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(60, 0.95, 0.5, noise=0.02),
                    rewards__chosen=make.falling(60, 1.4, 1.0, noise=0.05),
                    rewards__rejected=make.falling(60, 1.7, -0.5, noise=0.05),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(60, 0.693, 0.5, noise=0.003),
                    rewards__chosen=make.falling(60, 0.0, -1.0, noise=0.005),
                    rewards__rejected=make.falling(60, 0.0, -2.0, noise=0.005),
                )
            ),
            Evidence(  # the first row is an average over fifty steps: it tells nothing, and the loss is another one
                settings=make.configured("trl", stage="dpo", preference_loss="ipo"),
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(60, 25.0, 10.0),
                    rewards__chosen=make.falling(60, 0.0, -1.0, noise=0.005),
                    rewards__rejected=make.falling(60, 0.0, -2.0, noise=0.005),
                ),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        kind = seen.metrics.kind if seen.metrics is not None else ""
        if kind != "dpo":
            return self.not_checked("metrics")
        named = _named(seen)
        first = [exhibit for name in ("rewards/chosen", "rewards/rejected") for exhibit in _reward(seen, name)]
        loss = _loss(seen)
        exhibits = [*named, *first, *loss]
        if not exhibits:
            return self.not_checked("metrics")
        # a log without step numbers does not tell how many updates its first row is the mean of
        counted = seen.metrics is not None and (not seen.metrics.rows_are_steps or number(seen, "logging_steps") == 1)
        proof = sum(exhibit.weight for exhibit in (*first, *loss)) >= 5 and counted
        return conclude(self, exhibits, proof=proof, missing=("settings",))


def _named(seen: Evidence) -> tuple[Exhibit, ...]:
    model, reference = text_of(seen, "model"), text_of(seen, "reference_model")
    if not model or not reference or reference in {"none", "null", model}:
        return ()
    return setting(seen, "reference_model", 2.0)


def _reward(seen: Evidence, name: str) -> tuple[Exhibit, ...]:
    held = series(seen, name)
    if held is None or held.steps[0] > FIRST_ROWS or not math.isfinite(held.values[0]):
        return ()
    value = float(held.values[0])
    off = abs(value) > OFF_REWARD
    return (
        say(
            f"{name} is {value:.3g} in the first row; it starts at 0 when the two models are equal",
            f"第一行 {name} 就是 {value:.3g}；两个模型相同时应从 0 开始",
            3.0 if off else -4.0,
            where=held.where(0),
            source=held.source,
        ),
    )


def _loss(seen: Evidence) -> tuple[Exhibit, ...]:
    """The first loss beside ln 2, where the loss is the plain sigmoid one."""
    held, kind = series(seen, "loss"), text_of(seen, "preference_loss")
    plain = kind in {"", "sigmoid"} and not number(seen, "sft_weight") and not number(seen, "label_smoothing")
    if held is None or not plain or held.steps[0] > FIRST_ROWS or not math.isfinite(held.values[0]):
        return ()
    value = float(held.values[0])
    off = abs(value - START) > OFF_LOSS
    return (
        say(
            f"the first loss is {value:.3f}; equal models give ln 2 = 0.693",
            f"第一个 loss 是 {value:.3f}；两个模型相同时应为 ln 2 = 0.693",
            2.0 if off else -4.0,
            where=held.where(0),
            source=held.source,
        ),
    )
