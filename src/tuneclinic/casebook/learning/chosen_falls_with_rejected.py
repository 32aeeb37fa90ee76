"""Both rewards fall and the margin grows: benign."""

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._examples import Array
from tuneclinic.casebook.learning._facts import conclude, finite, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

ENOUGH = 10
"""Logged rows below which a trend of rewards is noise: eleven public DPO runs log 20 or more."""
USUAL_END = -4.0
"""Lowest usual end of the chosen reward: eleven public DPO runs end between -3.2 and 0.7 (10th percentile -3.0)."""


class ChosenFallsWithRejected(Case):
    id = "chosen-falls-with-rejected"
    kind = "benign"
    symptoms = {"preference-odd": 0.3}
    stage = "hyperparameters"
    needs = ("metrics",)
    probe = "evaluation"
    change = {"beta": 0.1}
    search = (
        "dpo chosen reward goes down",
        "rewards/chosen negative",
        "logps chosen decreases during DPO",
        "DPO chosen 的 reward 也在降",
        "DPO chosen 和 rejected 一起下降",
        "rewards/chosen 是负的正常吗",
    )

    en = Card(
        title="Chosen and rejected fall together (normal)",
        sign="In DPO rewards/chosen or logps/chosen falls; rewards/rejected falls faster, and margin and accuracy rise.",
        cause="The DPO loss only asks for a wider gap. Chosen and rejected answers share most of their tokens, so lowering one also lowers the other. Most published DPO runs end with a negative chosen reward.",
        remedy='Nothing to fix while the margin grows and the outputs are good. If quality falls, add an SFT term: loss_type=["sigmoid", "sft"] with loss_weights=[1.0, 1.0] in TRL 0.29 and later (rpo_alpha=1.0 before), pref_ftx: 1.0 in LLaMA-Factory, dpo_loss_type and dpo_loss_weights in axolotl (rpo_alpha in older versions). Or halve the learning rate, or raise beta.',
        verify="Accuracy ends at 0.7 to 0.9 with a margin of 0.5 to 1.6, and in a blind comparison on held-out prompts the answers are better than before training.",
        prevention="Watch margin, accuracy and answer length, not the chosen reward alone.",
        question="Does the margin grow while both rewards fall?",
        quiz="rewards/chosen -1.1, rewards/rejected -2.4, accuracy 0.78. Stop the run? No, these are the medians of healthy runs.",
    )
    zh = Card(
        title="chosen、rejected 同降（正常）",
        sign="DPO 里 rewards/chosen 或 logps/chosen 在降；rewards/rejected 降得更快，margin 和 accuracy 在涨。",
        cause="DPO 的 loss 只要求差距拉大。chosen 和 rejected 大部分 token 相同，压低一个就会带下另一个。公开的 DPO 训练多数 chosen reward 终值为负。",
        remedy='只要 margin 在涨、输出没变差，就不用修。如果质量下降，加 SFT 项：TRL 0.29 起用 loss_type=["sigmoid", "sft"] 加 loss_weights=[1.0, 1.0]（之前是 rpo_alpha=1.0），LLaMA-Factory 是 pref_ftx: 1.0，axolotl 是 dpo_loss_type、dpo_loss_weights（旧版 rpo_alpha）；或者学习率减半、加大 beta。',
        verify="accuracy 终值 0.7～0.9，margin 0.5～1.6；验证集上盲评，训练后优于训练前。",
        prevention="盯 margin、accuracy 和回答长度，不要只看 chosen reward。",
        question="两个 reward 下降的同时，margin 在涨吗？",
        quiz="rewards/chosen -1.1、rewards/rejected -2.4、accuracy 0.78，要停吗？不用，这正是正常训练的中位数。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(100, 0.69, 0.5, noise=0.01),
                    rewards__chosen=make.falling(100, 0.0, -1.1),
                    rewards__rejected=make.falling(100, 0.0, -2.4),
                    rewards__accuracies=make.falling(100, 0.5, 0.78, noise=0.02),
                )
            ),
            Evidence(
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(60, 0.69, 0.55, noise=0.01),
                    logps__chosen=make.falling(60, -180.0, -230.0, noise=2.0),
                    logps__rejected=make.falling(60, -175.0, -260.0, noise=2.0),
                    rewards__margins=make.falling(60, 0.0, 0.9, noise=0.03),
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # both fall, and the margin does not grow
                metrics=make.ran(
                    kind="dpo",
                    loss=make.level(100, 0.69, 0.01),
                    rewards__chosen=make.falling(100, 0.0, -6.1),
                    rewards__rejected=make.falling(100, 0.0, -6.1),
                )
            ),
            Evidence(
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(100, 0.69, 0.5, noise=0.01),
                    rewards__chosen=make.falling(100, 0.0, 0.8),
                    rewards__rejected=make.falling(100, 0.0, -0.9),
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        chosen, rejected, name = _pair(seen)
        if len(chosen) < ENOUGH or len(chosen) != len(rejected):
            return self.not_checked("metrics")
        first, last = _ends(chosen)
        other_first, other_last = _ends(rejected)
        if last >= first:
            return self.ruled_out(say(f"{name} of the chosen answers does not fall", f"chosen 的 {name} 没有下降", -5.0))
        logged = finite(seen, "rewards/margins")
        grown = float(np.diff(_ends(logged))[0]) if len(logged) >= ENOUGH else (last - other_last) - (first - other_first)
        noise = 3 * float(median(np.abs(np.diff(logged if len(logged) >= ENOUGH else chosen - rejected))))
        shown = say(
            f"{name}: chosen {first:.3g} → {last:.3g}, rejected {other_first:.3g} → {other_last:.3g}, margin {grown:+.3g}",
            f"{name}：chosen {first:.3g} → {last:.3g}，rejected {other_first:.3g} → {other_last:.3g}，margin {grown:+.3g}",
            6.0 if grown > noise / len(chosen) ** 0.5 and grown > 0 else -5.0,
        )
        if shown.weight < 0:
            return self.ruled_out(shown)
        far = name == "rewards" and last < USUAL_END
        if far:
            lower = say(
                f"the chosen reward ends at {last:.3g}; usual final values are -3 to 0.7",
                f"chosen reward 终值 {last:.3g}；常见范围 -3～0.7",
                -4.0,
            )
            return conclude(self, (shown, lower))
        return self.confirmed(shown)


def _pair(seen: Evidence) -> tuple[Array, Array, str]:
    for name in ("rewards", "logps"):
        chosen, rejected = finite(seen, f"{name}/chosen"), finite(seen, f"{name}/rejected")
        if len(chosen) and len(rejected):
            return chosen, rejected, name
    return np.empty(0), np.empty(0), ""


def _ends(values: Array) -> tuple[float, float]:
    """Medians of the first and of the last tenth, at least three rows."""
    part = max(3, len(values) // 10)
    return float(median(values[:part])), float(median(values[-part:]))
