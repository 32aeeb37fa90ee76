"""Gradient accumulation is normalised wrongly."""

from __future__ import annotations

import re

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._contrasts import contrasts
from tuneclinic.casebook.learning._facts import as_number, conclude, facts, number, say, series, setting, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Environment

BAD = ((4, 46, 0), (4, 48, 3))
"""transformers releases from the first to before the second: 4.46.0 multiplies the loss back always, 4.46.3 divides the log alone,
4.47 adds up, 4.48.0 inverts its check, 4.48.3 is right (read from the releases' sources and huggingface/transformers#35207,
#35438, #35556)."""
AGREES = 0.15
"""Relative distance within which a ratio of losses is the accumulation count: noise of a mean over tens of rows."""
LEAST_FIRST = 0.3
"""Below the smallest first loss of 74 published runs of fine-tuning (0.31)."""
USUAL_FIRST = (0.55, 3.5)
"""First losses of nine in ten of those runs."""
WINDOWS = 3
"""Ends of epochs that must dip alike: two may by chance."""
SAME_SHARE = 0.06
"""Distance of a ratio from j/k, half the gap between neighbours at the usual k = 8."""


class AccumulationMisnormalised(Case):
    id = "accumulation-misnormalised"
    symptoms = {"loss-oscillates": 0.06, "multi-gpu-odd": 0.08}
    stage = "environment"
    needs = ("environment", "script", "metrics", "attempts")
    probe = "parity"
    search = (
        "loss is 4 times higher with gradient accumulation",
        "loss doubled with gradient_accumulation_steps=2",
        "num_items_in_batch",
        "梯度累积 loss 变成几倍",
        "梯度累积 loss 不对",
    )

    en = Card(
        title="Gradient accumulation is normalised wrongly",
        sign="The logged training loss is about the number of accumulation steps times too large, while the evaluation loss is normal. Gradient norms usually have the same factor.",
        cause="The losses of the micro-batches are added and never divided, or each is averaged alone although the token counts differ. transformers 4.46 to 4.48.2 did this for models and custom losses that do not take num_items_in_batch. Hand-written loops often forget the division.",
        remedy="Upgrade: pip install 'transformers>=4.48.3'. If you override compute_loss, accept num_items_in_batch and divide the summed loss by it. In your own loop divide by the number of trained tokens of the whole accumulation window on all ranks (loss.sum() / tokens_in_window), and do the same for the shorter last window.",
        verify="Batch 8 × accumulation 1 and batch 2 × accumulation 4 on the same rows give the same first loss and gradient norm to three digits.",
        prevention="Keep that comparison as a test; it takes two steps and no GPU.",
        question="Which transformers version, how many accumulation steps, and how does the first training loss compare with the first evaluation loss?",
        quiz="Training loss 8.4, evaluation loss 1.05, accumulation 8. What is the true training loss? About 1.05: the printed value is a sum over eight micro-batches.",
    )
    zh = Card(
        title="梯度累积的归一化错了",
        sign="日志里的训练 loss 大约是应有值的若干倍（倍数等于梯度累积步数），而验证 loss 正常；梯度范数一般也大同样的倍数。",
        cause="micro-batch 的 loss 只加不除，或者各自平均，而有效 token 数并不相同。transformers 4.46 到 4.48.2 对不接受 num_items_in_batch 的模型和自定义 loss 就有这个问题；手写循环则常常忘了除。",
        remedy="升级：pip install 'transformers>=4.48.3'。重写过 compute_loss 的，要接收 num_items_in_batch，并用 loss 之和除以它。自己写循环时，除以整个累积窗口、所有卡上的有效 token 数（loss.sum() / tokens_in_window），最后不满的窗口同样处理。",
        verify="同样的样本，batch 8 × 累积 1 和 batch 2 × 累积 4，第一步的 loss 和梯度范数三位有效数字一致。",
        prevention="把这个对比做成测试，两步就够，也不用 GPU。",
        question="transformers 是什么版本？梯度累积几步？第一个训练 loss 和第一个验证 loss 差几倍？",
        quiz="训练 loss 8.4，验证 loss 1.05，梯度累积 8，真实训练 loss 是多少？约 1.05，打印的是 8 个 micro-batch 之和。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                environment=Environment(packages={"transformers": "4.47.1"}),
                settings=make.configured(accumulation=8, batch_per_device=1),
                metrics=make.ran(
                    loss=8 * make.falling(200, 1.3, 1.0, noise=0.02),
                    eval_loss=(range(40, 201, 40), [1.12, 1.06, 1.03, 1.01, 1.0]),
                ),
            ),
            Evidence(
                script=make.scripted("accumulation-not-divided", quote="loss.backward()"),
                settings=make.configured("pytorch", accumulation=4),
            ),
            Evidence(
                settings=make.configured(accumulation=4, learning_rate=5e-5),
                metrics=make.ran(loss=4 * make.falling(100, 1.5, 1.1, noise=0.02)),
                attempts=make.tried(("ga-1", {"accumulation": 1, "learning_rate": 5e-5}, 1.5, 1.1)),
            ),
            Evidence(  # a sibling with the same batch cut otherwise
                settings=make.configured(accumulation=2, batch_per_device=3),
                metrics=make.ran(loss=2 * make.falling(100, 1.5, 1.1, noise=0.02)),
                attempts=make.tried(("ga-1", {"accumulation": 1, "batch_per_device": 6}, 1.5, 1.1)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same version, without the factor
                environment=Environment(packages={"transformers": "4.47.1"}),
                settings=make.configured(accumulation=8),
                metrics=make.ran(
                    loss=make.falling(200, 1.3, 1.0, noise=0.02), eval_loss=(range(40, 201, 40), [1.12, 1.06, 1.03, 1.01, 1.0])
                ),
            ),
            Evidence(  # a training loss far above the evaluation loss, with no accumulation
                settings=make.configured(accumulation=1),
                metrics=make.ran(
                    loss=make.falling(200, 10.4, 8.0, noise=0.02), eval_loss=(range(40, 201, 40), [1.12, 1.06, 1.03, 1.01, 1.0])
                ),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        steps = number(seen, "accumulation")
        if steps is not None and steps <= 1:
            return self.ruled_out(*setting(seen, "accumulation", -9.0))
        shown = facts(seen, "accumulation-not-divided", weight=7.0)
        version = _bad_version(seen)
        factor = _against_eval(seen, steps)
        twin = _against_attempt(seen, steps)
        if factor is not None and factor.weight < 0 and not twin:
            return self.ruled_out(factor)
        partial = _partial_window(seen, steps)
        proof = bool(shown or twin or (factor is not None and version))
        low = _far_below(seen, steps) if version else ()
        measured = (*twin, *([factor] if factor is not None else []), *partial, *low)
        exhibits = [*shown, *measured, *version, *setting(seen, "accumulation")]
        if not (shown or measured):
            return self.not_checked("metrics", "script", exhibits=tuple(exhibits))
        return conclude(self, exhibits, proof=proof, missing=("environment",), change={})


def _bad_version(seen: Evidence) -> tuple[Exhibit, ...]:
    version = seen.environment.packages.get("transformers", "") if seen.environment is not None else ""
    parts = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if parts is None or not BAD[0] <= tuple(int(part or 0) for part in parts.groups()) < BAD[1]:
        return ()
    where = seen.environment.places.get("transformers", "") if seen.environment is not None else ""
    text = f"transformers {version}: 4.46.0 to 4.48.2 normalise accumulation wrongly for some models and losses"
    return (
        say(
            text,
            f"transformers {version}：4.46.0～4.48.2 对部分模型和 loss 的梯度累积归一化有误",
            3.0,
            section="environment",
            where=where,
        ),
    )


def _far_below(seen: Evidence, steps: float | None) -> tuple[Exhibit, ...]:
    """A first loss below that of any usual run which times the accumulation count becomes a usual one."""
    loss = series(seen, "loss")
    if loss is None or not steps or shape_of(seen).kind not in {"", "causal-lm"}:
        return ()
    first = float(loss.values[0])
    if not 0 < first < LEAST_FIRST or not USUAL_FIRST[0] <= first * steps <= USUAL_FIRST[1]:
        return ()
    text = f"the first loss is {first:.3g}; times {steps:g} it would be {first * steps:.3g}, as usual"
    return (say(text, f"第一个 loss 只有 {first:.3g}，乘以 {steps:g} 是 {first * steps:.3g}，才是常见的量级", 3.0),)


def _against_eval(seen: Evidence, steps: float | None) -> Exhibit | None:
    """Training loss over evaluation loss at the same steps beside the accumulation count; None where it cannot be told."""
    loss, held = series(seen, "loss"), series(seen, "eval_loss")
    if loss is None or held is None or not steps or steps < 3:
        return None
    here = np.interp(held.steps, loss.steps, loss.values)
    with np.errstate(all="ignore"):
        ratios = here / held.values
    ratios = ratios[np.isfinite(ratios)]
    if not ratios.size:
        return None
    ratio = float(median(ratios))
    fits = abs(ratio / steps - 1) <= AGREES
    return say(
        f"training loss is {ratio:.2f} times the evaluation loss; accumulation is {steps:g}",
        f"训练 loss 是验证 loss 的 {ratio:.2f} 倍；梯度累积步数 {steps:g}",
        6.0 if fits else -6.0,
    )


def _against_attempt(seen: Evidence, steps: float | None) -> tuple[Exhibit, ...]:
    """Sibling runs whose first losses stand in the ratio of the accumulation counts."""
    loss = series(seen, "loss")
    if loss is None or not steps:
        return ()
    mine = float(loss.values[0])
    found = []
    for contrast in contrasts(seen, "accumulation", "batch_per_device"):
        other, first = as_number(contrast.attempt.settings.get("accumulation")), contrast.attempt.first_loss
        if not other or not first or other == steps:
            continue
        if abs((mine / first) / (steps / other) - 1) <= AGREES:
            text = f"first loss {mine:.4g} at accumulation {steps:g}, {first:.4g} at {other:g} ({contrast.attempt.name})"
            text_zh = f"梯度累积 {steps:g} 时第一个 loss {mine:.4g}，{other:g} 时 {first:.4g}（{contrast.attempt.name}）"
            found.append(say(text, text_zh, 8.0, section="attempts", where=contrast.attempt.name))
    return tuple(found)


def _partial_window(seen: Evidence, steps: float | None) -> tuple[Exhibit, ...]:
    """Whether loss and gradient norm dip at each epoch's last step by one and the same j/k: fewer batches, divided by all k."""
    loss, norms, logged = series(seen, "loss"), series(seen, "grad_norm"), series(seen, "epoch")
    if loss is None or norms is None or logged is None or not steps or len(loss) != len(norms):
        return ()
    passes = np.floor(np.interp(loss.steps, logged.steps, logged.values) - 1e-6)
    ends = np.flatnonzero(np.diff(passes) > 0)
    rest = np.setdiff1d(np.arange(len(loss)), ends)
    if len(ends) < WINDOWS or len(rest) < len(ends):
        return ()
    with np.errstate(all="ignore"):
        ratios = [float(median(one.values[ends]) / median(one.values[rest])) for one in (loss, norms)]
        spread = float(np.ptp(loss.values[ends]) / median(loss.values[rest]))
    share = round(ratios[0] * steps) / steps
    alike = all(abs(ratio - share) <= SAME_SHARE for ratio in ratios)
    if not (0 < share < 1 and alike and spread <= SAME_SHARE * len(ends)):
        return ()
    text = f"at the end of each of {len(ends)} epochs loss and gradient norm are {ratios[0]:.2f} times the usual: {share * steps:g} of {steps:g} batches"
    zh = f"{len(ends)} 个 epoch 的最后一步，loss 和梯度范数都是平时的 {ratios[0]:.2f} 倍：窗口里只有 {share * steps:g}/{steps:g} 个 batch"
    return (say(text, zh, 7.0, where=loss.where(int(ends[0])), source=loss.source),)
