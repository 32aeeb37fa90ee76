"""DPO and RL: rewards, log-probabilities or KL behave oddly."""

from __future__ import annotations

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.curves import Shape
from tuneclinic.curves.rows import PREFERENCE, REINFORCEMENT
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import Series
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import flat, jitter, run
from tuneclinic.symptoms._series import course, curve, look, number, stated
from tuneclinic.words import Text

SERIES = (
    "rewards/chosen",
    "rewards/margins",
    "rewards/accuracies",
    "logps/chosen",
    "reward",
    "kl",
    "completion_length",
    "entropy",
)
"""Series that preference and reinforcement runs log."""

ANY_RUN = ("entropy", "kl", "completion_length")
"""Those that other runs log too: TRL's SFTTrainer logs the entropy of its predictions, which falls in every run that learns."""

ENOUGH_ROWS = 10
"""Rows needed before a beginning and an end can be compared."""

COLLAPSED = 0.1
"""Share of its first value that entropy or completion length falls under when a policy has collapsed."""

FALLEN = 3.0
"""Noise bands that a chosen reward must fall by to be called falling."""


class PreferenceOdd(Symptom):
    id = "preference-odd"
    letter = "B"
    search = (
        "DPO chosen rewards decrease",
        "rewards/chosen and rewards/rejected both go down",
        "DPO accuracy stuck at 0.5",
        "GRPO reward is not increasing",
        "KL explodes in PPO",
        "DPO 训练 chosen 的 reward 一直降",
        "GRPO 奖励不涨",
        "rewards/margins 一直是 0",
        "DPO loss stuck at 0.693",
        "reward hacking, KL goes up",
        "reward flat in RL training",
        "KL 越来越大",
    )

    en = SymptomCard(
        title="Preference or RL rewards look odd",
        seen="DPO: the chosen reward falls, or margin and accuracy stay at chance level. RL: the KL grows out of control, the reward does not move, or answers shrink to a few tokens.",
        check="Look at margin, chosen, rejected, KL and lengths together. Chosen falling together with rejected while the margin grows is normal for DPO. Otherwise check: are the two answers of a pair really different, is the reference the model that training starts from, is the loss implemented correctly?",
        treatment="Margin at 0: inspect the pairs and the reference. KL out of control: lower the learning rate, raise beta. Reward not moving: look at the spread inside a group, since equal rewards give no gradient.",
        prevention="Keep a reference run on pairs that you know, and log margin, KL and lengths from the first step.",
    )
    zh = SymptomCard(
        title="偏好 / RL 指标异常",
        seen="DPO 里 chosen 的 reward 往下走，或者 margin、accuracy 一直停在随机水平；RL 里 KL 失控、奖励不动，或者回答塌缩成几个 token。",
        check="把 margin、chosen、rejected、KL、长度放在一起看。chosen 和 rejected 一起降、margin 在涨，这是 DPO 的正常现象。否则查：一对里两个回答是不是真的不同，reference 是不是训练起点那个模型，loss 写得对不对。",
        treatment="margin 为 0：看样本对和 reference。KL 失控：降学习率、加大 beta。奖励不动：看组内奖励差异，奖励都一样就没有梯度。",
        prevention="在熟悉的样本对上留一次参考实验，margin、KL、长度从第一步就记。",
    )
    sick = Lazy(
        lambda: [
            run(
                "dpo",
                loss=np.linspace(0.69, 0.4, 60),
                rewards__chosen=np.linspace(0.0, -2.0, 60) + jitter(60, 0.05),
                rewards__rejected=np.linspace(0.0, -3.2, 60) + jitter(60, 0.05),
                rewards__margins=np.linspace(0.0, 1.2, 60) + jitter(60, 0.05),
            ),
            run(
                "dpo",
                loss=flat(60, 0.6931, 0.001),
                rewards__margins=jitter(60, 0.004),
                rewards__accuracies=0.5 + jitter(60, 0.03),
            ),
            run("grpo", loss=np.zeros(60), kl=np.geomspace(0.01, 60, 60), reward=np.linspace(0.2, 0.4, 60)),
        ]
    )
    healthy = Lazy(
        lambda: [
            run(
                "dpo",
                loss=np.linspace(0.69, 0.4, 60),
                rewards__chosen=np.linspace(0.0, -0.3, 60) + jitter(60, 0.05),
                rewards__rejected=np.linspace(0.0, -1.5, 60) + jitter(60, 0.05),
                rewards__margins=np.linspace(0.0, 1.2, 60) + jitter(60, 0.05),
                rewards__accuracies=np.linspace(0.5, 0.8, 60) + jitter(60, 0.03),
            ),
            run("grpo", loss=np.zeros(60), kl=np.linspace(0.0, 0.04, 60), reward=np.linspace(0.2, 0.7, 60)),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        held = [(name, series) for name in SERIES if (series := curve(seen, name)) is not None and len(series) >= ENOUGH_ROWS]
        if all(name in ANY_RUN for name, _ in held) and look(seen).kind not in PREFERENCE | REINFORCEMENT:
            return self.not_checked("metrics")
        by_name, shape = dict(held), look(seen)
        found = [*_preference(shape, by_name), *_policy(shape, by_name)]
        if found:
            return self.shown(*found, first_step=float(held[0][1].steps[0]))
        return self.absent(*(course(name, series) for name, series in held[:3]))


def _edges(series: Series) -> tuple[float, float, float]:
    """Medians of the first and the last tenth (3 rows at least), and the noise from row to row as a standard deviation."""
    values = series.values[np.isfinite(series.values)]
    if len(values) < ENOUGH_ROWS:
        return 0.0, 0.0, 0.0
    part = max(3, len(values) // 10)
    noise = 1.4826 * float(median(np.abs(np.diff(values)))) / np.sqrt(2)
    return float(median(values[:part])), float(median(values[-part:])), noise


def _preference(shape: Shape, by_name: dict[str, Series]) -> list[Exhibit]:
    """Oddities of pair-wise training: a falling chosen answer, pairs that are not told apart, or all told apart."""
    names: list[str] = []
    if shape.chosen_falls:
        names += ["rewards/chosen", "logps/chosen", "rewards/margins"]
    if shape.margin_flat or shape.accuracy_saturated:
        names += ["rewards/margins", "rewards/accuracies"]
    return [course(name, by_name[name]) for name in dict.fromkeys(names) if name in by_name]


def _policy(shape: Shape, by_name: dict[str, Series]) -> list[Exhibit]:
    """Oddities of reinforcement: runaway KL, a reward that never varies, a policy that has collapsed."""
    found: list[Exhibit] = []
    kl, reward = by_name.get("kl"), by_name.get("reward")
    if shape.kl_blows_up_from is not None and kl is not None:
        found.append(course("kl", kl))
    if reward is not None:
        finite = reward.values[np.isfinite(reward.values)]
        if len(finite) and float(np.ptp(finite)) == 0:
            value = number(float(finite[-1]))
            text = Text(f"reward is {value} in every row", f"每一行 reward 都是 {value}")
            found.append(stated(text, reward, float(reward.steps[-1])))
    for name in ("completion_length", "entropy"):
        series = by_name.get(name)
        if series is not None:
            first, last, _ = _edges(series)
            if first > 0 and 0 <= last < COLLAPSED * first:
                found.append(course(name, series))
    return found
