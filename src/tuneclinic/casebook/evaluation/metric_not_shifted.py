"""A causal model's predictions are compared with labels one position off."""

from __future__ import annotations

import numpy as np

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, say, series
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

FACT = "metric-not-shifted"
TOKEN_ACCURACY = ("eval_mean_token_accuracy", "eval_token_accuracy", "eval_token_acc", "eval_accuracy")
"""What trainers call the share of right tokens. `eval_accuracy` may also be a task's own score."""
LOW = 0.3
"""Share of exp(-loss) below which a token accuracy does not belong to that loss: the mean probability of the right token is at
least exp(-loss) (Jensen's inequality), and taking the likeliest token is right about as often or oftener."""
FITS = 0.8
"""A judgement, not measured: an accuracy this near to what the loss implies was counted in step with it."""


class MetricNotShifted(Case):
    id = "metric-not-shifted"
    symptoms = {"eval-erratic": 0.12}
    stage = "environment"
    needs = ("script", "metrics")
    probe = "evaluation"
    search = (
        "compute_metrics accuracy near zero causal LM",
        "token accuracy low but eval loss is good",
        "shift logits and labels in compute_metrics",
        "compute_metrics 准确率接近 0",
        "eval loss 很低 但是 accuracy 很低",
        "评测指标没有错位 shift",
    )

    en = Card(
        title="The metric does not shift the labels",
        sign="The evaluation loss is good, but the token accuracy in compute_metrics is near chance, or changes without any relation to the loss.",
        cause="The logits at position i predict token i + 1. The model shifts inside its loss. compute_metrics gets unshifted logits and labels; if it compares the same positions, it measures how often the next token equals the current one.",
        remedy="Take the argmax in preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), otherwise all logits are gathered. In compute_metrics: preds = predictions[:, :-1]; refs = label_ids[:, 1:]; keep = refs != -100; accuracy = (preds == refs)[keep].mean().",
        verify="Check one row by hand: the decoded predictions, moved one place to the right, read like the answer. Accuracy is usually at least exp(-eval_loss).",
        prevention="Test the metric on three tokens with a known answer.",
        question="Does compute_metrics take [:, :-1] of the predictions and [:, 1:] of the labels?",
        quiz="eval_loss is 0.7 and token accuracy is 0.04. Can both be right? Hardly: exp(-0.7) is 0.5, and accuracy is usually about that or above.",
    )
    zh = Card(
        title="评估指标没有移位（shift）",
        sign="验证 loss 很好，compute_metrics 里的 token 准确率却接近随机，或者变化跟 loss 对不上。",
        cause="位置 i 的 logits 预测的是第 i+1 个 token。模型算 loss 时内部会移一位，compute_metrics 拿到的是没移位的 logits 和 labels，直接按位置比，量的其实是“下一个 token 等于当前 token”的比例。",
        remedy="argmax 放到 preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) 里做，不然会把全部 logits 攒起来。compute_metrics 里：preds = predictions[:, :-1]；refs = label_ids[:, 1:]；keep = refs != -100；accuracy = (preds == refs)[keep].mean()。",
        verify="手工看一条：预测解码出来右移一位，读起来就是答案；准确率一般不低于 exp(-eval_loss)。",
        prevention="给指标写个测试：三个 token、答案已知。",
        question="compute_metrics 里有没有对预测取 [:, :-1]、对 labels 取 [:, 1:]？",
        quiz="eval_loss 0.7，token 准确率 0.04，两个能同时对吗？几乎不可能：exp(-0.7) 约 0.5，准确率一般不低于它。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(FACT, quote="acc = (preds == labels).mean()")),
            Evidence(
                script=make.scripted(FACT, quote="return {'accuracy': accuracy_score(labels.ravel(), preds.ravel())}"),
                metrics=make.ran(
                    loss=make.falling(),
                    eval_loss=([50, 100, 150], [0.9, 0.8, 0.7]),
                    eval_accuracy=([50, 100, 150], [0.03, 0.04, 0.03]),
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted(checked=(FACT,)),
                metrics=make.ran(
                    loss=make.falling(),
                    eval_loss=([50, 100, 150], [0.9, 0.8, 0.7]),
                    eval_accuracy=([50, 100, 150], [0.03, 0.04, 0.03]),
                ),
            ),
            Evidence(
                metrics=make.ran(
                    loss=make.falling(),
                    eval_loss=([50, 100, 150], [0.9, 0.8, 0.7]),
                    eval_mean_token_accuracy=([50, 100, 150], [0.74, 0.76, 0.79]),
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found, low = facts(seen, FACT), _low(seen)
        shown = (low,) if low is not None else ()
        if found:
            return self.confirmed(*found, *shown)
        against = clean(seen, FACT)
        if against or (low is not None and low.weight < 0):
            return self.ruled_out(*against, *shown)
        if low is not None and low.weight > 0:
            return self.suspected(*shown, missing=("script",))
        return self.not_checked("script", exhibits=shown)


def _low(seen: Evidence) -> Exhibit | None:
    """The last token accuracy beside the least that its evaluation loss allows; None where one is missing or it says nothing."""
    loss = series(seen, "eval_loss")
    name = next((name for name in TOKEN_ACCURACY if series(seen, name) is not None), None)
    held = series(seen, name) if name is not None else None
    if loss is None or held is None or name is None or (seen.metrics is not None and seen.metrics.kind not in {"", "causal-lm"}):
        return None
    last, accuracy = float(loss.values[-1]), float(held.values[-1])
    if not np.isfinite(last) or last < 0 or not 0 <= accuracy <= 1:
        return None
    least = float(np.exp(-last))
    weight = -4.0 if accuracy >= FITS * least else 0.0
    if accuracy < LOW * least and least > LOW:
        weight = 1.0 if name == "eval_accuracy" else 4.0
    return say(
        f"{name} {accuracy:.3g} at evaluation loss {last:.3g}; exp(-loss) is {least:.2g}",
        f"{name} {accuracy:.3g}，验证 loss {last:.3g}，exp(-loss) 约 {least:.2g}",
        weight,
        where=held.where(-1),
        source=held.source,
    )
