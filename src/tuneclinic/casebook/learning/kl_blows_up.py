"""The policy runs away from its reference."""

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, finite, lines, number, say, setting, shape_of
from tuneclinic.casebook.learning._training import learning_rate, rate_exhibit, usual_rate
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

NEGATIVE = -2.0
"""Nats under 0 that the noise of a KL estimate does not reach: reports of collapsed runs show -2.4 to -233."""
FAR_REWARD = 10.0
"""Size of an implicit DPO reward (beta × log-ratio) far beyond every usual end (-4.7 to 0.7 in eleven public runs)."""


class KlBlowsUp(Case):
    id = "kl-blows-up"
    symptoms = {"preference-odd": 0.18}
    stage = "hyperparameters"
    needs = ("metrics", "log")
    probe = "evaluation"
    change = {"beta": 0.1}
    signatures = (
        r"kl divergence is starting to become negative",
        r"average ratio of batch .{0,40}exceeds threshold",
    )
    search = (
        "KL divergence is starting to become negative",
        "The average ratio of batch exceeds threshold. Skipping batch",
        "GRPO kl explodes",
        "KL 爆炸",
        "KL 变成负数",
        "DPO reward 崩了 输出乱码",
    )

    en = Card(
        title="The KL to the reference explodes",
        sign="KL grows tenfold within a few hundred steps, or turns clearly negative. The reward rises for a while, but outputs become short, repetitive or strange. In DPO both rewards fall far below zero.",
        cause="The policy moves further in one update than the penalty can hold back: the learning rate is too high for preference training, beta is too low, or there are too many inner epochs on one batch of samples. A negative KL means that sampling and training see different distributions (top_k or a minimum length in generation, dropout on, another template).",
        remedy="Divide the learning rate by 5 to 10 (full tuning 5e-7, LoRA 5e-6). Raise beta (DPO 0.1, GRPO 0.01 to 0.04; pref_beta in LLaMA-Factory, rl_beta in axolotl). Use one inner epoch (num_iterations=1 in GRPO, num_ppo_epochs=1 in PPO). For a negative KL sample with top_k 0 (-1 in vLLM), top_p 1.0 and no minimum length.",
        verify="KL rises slowly and levels off. Answer length and entropy stay near their starting values while the reward still grows.",
        prevention="Log KL, length and entropy next to the reward, and stop the run when KL passes ten times the value of its first hundred steps.",
        question="How do KL, answer length and entropy change while the reward rises?",
        quiz="PPO warns of a KL of -5. Is the model better than its reference? No, the true KL cannot be negative: the scored samples do not come from the current policy.",
    )
    zh = Card(
        title="KL 失控，策略跑飞",
        sign="几百步内 KL 涨了十倍，或明显变负；reward 一度上升，输出却越来越短、重复或怪异。DPO 里则是两个 reward 一起掉到很负。",
        cause="一次更新走得太远，惩罚项拉不住：学习率对偏好训练来说太大、beta 太小、同一批样本更新的轮数太多。KL 为负说明采样和训练看到的分布不一致（生成时设了 top_k、最小长度，dropout 没关，模板不同）。",
        remedy="学习率除以 5～10（全参 5e-7，LoRA 5e-6）；加大 beta（DPO 0.1，GRPO 0.01～0.04；LLaMA-Factory 叫 pref_beta，axolotl 叫 rl_beta）；同一批样本只更新一轮（GRPO 的 num_iterations=1，PPO 的 num_ppo_epochs=1）。KL 为负时采样用 top_k 0（vLLM 是 -1）、top_p 1.0，不设最小长度。",
        verify="KL 缓慢上升后走平；reward 还在涨的同时，回答长度和熵保持在起点附近。",
        prevention="KL、长度、熵和 reward 一起打日志；KL 超过前一百步的十倍就停。",
        question="reward 上升时，KL、回答长度和熵怎么变？",
        quiz="PPO 警告 KL 是 -5，是不是比参考模型更好？不是，真实的 KL 不可能为负：打分的样本不是当前策略采出来的。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(
                    kind="grpo",
                    loss=make.level(200, 0.02, 0.01),
                    kl=np.concatenate([make.level(80, 0.04, 0.01), make.falling(120, 0.1, 9.0, noise=0.2)]),
                )
            ),
            Evidence(
                log=make.logged(
                    "UserWarning: KL divergence is starting to become negative: -5.27 - this might be a precursor for failed training."
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(kind="grpo", loss=make.level(200, 0.02, 0.01), kl=make.falling(200, 0.0, 0.12, noise=0.01))
            ),
            Evidence(  # both rewards fall a usual way
                metrics=make.ran(
                    kind="dpo",
                    loss=make.falling(100, 0.69, 0.5, noise=0.01),
                    rewards__chosen=make.falling(100, 0.0, -1.1),
                    rewards__rejected=make.falling(100, 0.0, -2.4),
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        said = lines(seen, *self.signatures, weight=6.0)
        values = finite(seen, "kl") if len(finite(seen, "kl")) else finite(seen, "objective/kl")
        shown = _kl(seen, values)
        chosen = finite(seen, "rewards/chosen")
        if len(chosen) >= 10 and seen.metrics is not None and seen.metrics.kind == "dpo":
            shown = (*shown, _dive(chosen))
        exhibits = [*said, *shown]
        if not exhibits:
            return self.not_checked("metrics")
        rate, beta = learning_rate(seen), number(seen, "beta")
        if any(exhibit.weight > 0 for exhibit in exhibits):
            exhibits.extend(rate_exhibit(seen, 1.5) if rate is not None and rate > usual_rate(seen)[2] else ())
            exhibits.extend(setting(seen, "beta"))
        change: dict[str, float] = {"learning_rate": rate / 10} if rate else {}
        if beta:
            change["beta"] = beta * 2
        strong = bool(said) or any(exhibit.weight >= 6 for exhibit in shown)
        return conclude(self, exhibits, proof=strong, missing=("settings",), change=change)


def _kl(seen: Evidence, values: object) -> tuple[Exhibit, ...]:
    held = np.asarray(values, dtype=np.float64)
    if len(held) < 10:
        return ()
    part = max(3, len(held) // 10)
    first, last = float(median(held[:part])), float(median(held[-part:]))
    risen = shape_of(seen).kl_blows_up_from
    bad = risen is not None or last < NEGATIVE
    where = f"step {risen:g}" if risen is not None else ""
    return (
        say(f"KL goes from {first:.3g} to {last:.3g}", f"KL 从 {first:.3g} 变到 {last:.3g}", 6.0 if bad else -5.0, where=where),
    )


def _dive(chosen: object) -> Exhibit:
    held = np.asarray(chosen, dtype=np.float64)
    last = float(median(held[-max(3, len(held) // 10) :]))
    return say(
        f"the chosen reward ends at {last:.3g}; usual final values are -3 to 0.7",
        f"chosen reward 终值 {last:.3g}；常见范围 -3～0.7",
        3.0 if abs(last) > FAR_REWARD else -3.0,
    )
