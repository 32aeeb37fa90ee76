"""The reward no longer tells answers apart."""

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import finite, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

ALL_ALIKE = 0.9
"""Share of groups with one and the same reward from which nearly every update is empty."""
NO_SPREAD = 1e-3
"""Standard deviation of rewards inside a group that counts as none: rewards are of the order of one."""
SATURATED = 0.995
"""Training accuracy of pairs that is memorised; eleven public DPO runs end at 0.62 to 0.91."""
WIDE_MARGIN = 5.0
"""Margin far beyond usual ends (0.1 to 3.0 in eleven public DPO runs)."""
EARLY = 0.5
"""Share of the run after which saturation may be the end of the training and is not judged."""


class RewardSaturates(Case):
    id = "reward-saturates"
    symptoms = {"preference-odd": 0.1}
    stage = "data"
    needs = ("metrics",)
    probe = "evaluation"
    search = (
        "frac_reward_zero_std is 1",
        "reward_std 0 GRPO does not learn",
        "DPO accuracy reaches 1.0 immediately",
        "GRPO reward 全一样 不学习",
        "DPO accuracy 一下就到 1",
        "奖励饱和",
    )

    en = Card(
        title="The reward is saturated",
        sign="GRPO: reward stays at its maximum (or minimum), reward_std is 0 and frac_reward_zero_std is near 1. DPO: accuracy is 1.0 and the loss about 0 before half of the run.",
        cause="There is nothing left to compare. All samples of a group get the same reward, so the advantage is 0 and there is no gradient. Or the two answers of a pair differ by something trivial (length, a marker, the style of another model) that is learned at once.",
        remedy="GRPO: choose prompts on which 20 to 80 % of the samples succeed, raise the sampling temperature, add partial rewards, drop groups without spread. DPO: read twenty pairs and find what gives the chosen answer away, rebuild the pairs from one model, lower the learning rate, stop earlier.",
        verify="frac_reward_zero_std falls below one half. DPO accuracy climbs over hundreds of steps, and held-out accuracy climbs with it.",
        prevention="Before training, score samples of the base model: the spread inside a group must not be 0. For pairs, test whether length alone tells chosen from rejected.",
        question="In how many groups do the rewards differ, or at which step did the DPO accuracy reach 1.0?",
        quiz="GRPO: reward 1.0 everywhere, loss 0. Converged? Perhaps, but on these prompts nothing more is learned: every advantage is 0.",
    )
    zh = Card(
        title="奖励饱和了",
        sign="GRPO：reward 顶在最高（或最低），reward_std 为 0，frac_reward_zero_std 接近 1。DPO：还没到一半 accuracy 就到 1.0，loss 接近 0。",
        cause="没有可比较的东西了。一组样本奖励全相同，advantage 为 0，没有梯度；或者 chosen、rejected 的区别太表面（长度、某个标记、另一个模型的口气），一学就会。",
        remedy="GRPO：换难度合适的题，让 20%～80% 的采样能答对，提高温度，加分级奖励，丢掉没有差异的组。DPO：人工看 20 对，找出是什么泄露了答案；用同一个模型重新构造成对数据，降学习率，早点停。",
        verify="frac_reward_zero_std 降到一半以下；DPO 的 accuracy 在几百步里慢慢爬，验证集也跟着涨。",
        prevention="训练前先给 base 的采样打分，组内差异不能是 0；成对数据先试试只看长度能不能分出来。",
        question="有多少组的奖励是有差异的？或者 DPO 的 accuracy 是第几步到 1.0 的？",
        quiz="GRPO 的 reward 全是 1.0、loss 为 0，收敛了吗？也许，但这些题上已经学不到东西：advantage 全为 0。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(
                    kind="grpo",
                    loss=make.level(120, 0.0, 0.0),
                    reward=make.level(120, 1.0, 0.0),
                    reward_std=make.level(120, 0.0, 0.0),
                    frac_reward_zero_std=make.level(120, 1.0, 0.0),
                )
            ),
            Evidence(
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(100, 0.69, 0.0, noise=0.0, speed=25),
                    rewards__accuracies=make.then(make.falling(100, 0.6, 1.0, noise=0.0), 1.0, 15),
                    rewards__margins=make.falling(100, 0.0, 14.0, noise=0.1, speed=20),
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # loss 0 as GRPO's is, with spread inside the groups
                metrics=make.ran(
                    kind="grpo",
                    loss=make.level(120, 0.0, 0.001),
                    reward=make.falling(120, 0.2, 0.6),
                    reward_std=make.level(120, 0.35, 0.05),
                    frac_reward_zero_std=make.level(120, 0.2, 0.05),
                )
            ),
            Evidence(
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(100, 0.69, 0.5, noise=0.01),
                    rewards__accuracies=make.falling(100, 0.5, 0.78, noise=0.02),
                    rewards__margins=make.falling(100, 0.0, 1.2),
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found = _groups(seen) or _pairs(seen)
        if found is None:
            return self.not_checked("metrics")
        return self.confirmed(found) if found.weight > 0 else self.ruled_out(found)


def _groups(seen: Evidence) -> Exhibit | None:
    """Spread of rewards inside groups over the second half of the run."""
    share, spread = finite(seen, "frac_reward_zero_std"), finite(seen, "reward_std")
    if len(share) >= 10:
        value = float(median(share[len(share) // 2 :]))
        return say(
            f"all rewards are equal in {value:.0%} of the groups",
            f"{value:.0%} 的组里奖励全部相同",
            7.0 if value >= ALL_ALIKE else -6.0,
        )
    if len(spread) >= 10:
        value = float(median(spread[len(spread) // 2 :]))
        return say(
            f"the rewards inside a group have a standard deviation of {value:.3g}",
            f"组内奖励标准差 {value:.3g}",
            6.0 if value <= NO_SPREAD else -6.0,
        )
    return None


def _pairs(seen: Evidence) -> Exhibit | None:
    """Accuracy and margin of pairs: both far beyond usual before the middle of the run."""
    held, margins = finite(seen, "rewards/accuracies"), finite(seen, "rewards/margins")
    if len(held) < 10:
        return None
    tail = held[int(len(held) * EARLY) :]
    accuracy = float(np.mean(tail))
    margin = float(median(margins[-max(3, len(margins) // 10) :])) if len(margins) else None
    saturated = accuracy >= SATURATED and (margin is None or margin >= WIDE_MARGIN)
    told = "" if margin is None else f", margin {margin:.3g}"
    return say(
        f"the DPO accuracy is {accuracy:.3f} over the second half{told}",
        f"后半程 DPO accuracy {accuracy:.3f}{told}",
        6.0 if saturated and margin is not None else (0.5 if saturated else -5.0),
    )
