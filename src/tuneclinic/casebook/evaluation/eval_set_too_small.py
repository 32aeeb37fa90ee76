"""The evaluation set is too small for the difference that is to be seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuneclinic.case import Card, Case
from tuneclinic.casebook.evaluation._facts import erratic, held_out_rows, steady
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import finite, say, setting
from tuneclinic.curves.thresholds import ERRATIC_TURNS
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

TINY = 30
"""Rows up to which one answer moves an accuracy by three points or more."""
SMALL = 100
"""Rows up to which the mean loss is known to about a twentieth: losses of rows spread by half their mean."""
DISTINCT = 4
"""Different accuracies that must all be multiples of 1/n before n is believed: three fit by chance in one run of some dozens."""
PRINTED = 1e-4
"""Distance from a multiple that rounding to four digits makes."""
SWING = 0.06
"""Jitter of accuracies from one evaluation to the next, as a standard deviation, from which the noise of a tiny set is what one sees."""


class EvalSetTooSmall(Case):
    id = "eval-set-too-small"
    symptoms = {"eval-erratic": 0.1}
    stage = "environment"
    needs = ("metrics", "settings", "data")
    probe = "evaluation"
    search = (
        "validation set too small noisy accuracy",
        "eval accuracy jumps by 5 percent",
        "how many samples for validation set LLM fine-tuning",
        "验证集太小 指标抖动",
        "验证集要多少条",
        "accuracy 只有几个取值",
    )

    en = Card(
        title="The evaluation set is too small",
        sign="The evaluation jumps from checkpoint to checkpoint without a trend. An accuracy takes only a few values (0.80, 0.85, 0.90). With another split seed the checkpoints rank differently.",
        cause="With n rows the standard error of an accuracy is up to 0.5/√n: nine points at n = 30. The mean loss of so few rows depends on a few hard ones.",
        remedy="Evaluate at least a few hundred rows, the same ones each time: val_size: 500 in LLaMA-Factory, val_set_size: 0.05 or more in axolotl, train_test_split(test_size=500, seed=42) for the Trainer. If you have no more data, use k-fold, or report the interval and do not choose a checkpoint by differences inside it.",
        verify="Evaluate three thirds of the set separately: they differ by less than the difference you want to see.",
        prevention="Write the interval next to each score; ±1/√n (about two standard errors) is close enough.",
        question="How many rows are evaluated, and how much do the checkpoints differ?",
        quiz="20 validation rows, 85 % against 80 %. Is the second checkpoint worse? The difference is one row, so nobody can tell.",
    )
    zh = Card(
        title="验证集太小",
        sign="各 checkpoint 的指标乱跳、没有趋势，准确率只有几个取值（0.80、0.85、0.90），换个划分种子，checkpoint 的排名就变了。",
        cause="n 条样本的准确率，标准误最大约 0.5/√n：n = 30 时就是 9 个点。这么少的样本，平均 loss 也被个别难样本牵着走。",
        remedy="至少评几百条，每次都用同一批：LLaMA-Factory 设 val_size: 500，axolotl 设 val_set_size: 0.05 以上，Trainer 用 train_test_split(test_size=500, seed=42)。实在没有更多数据，就用 k 折，或者报出区间，差异落在区间之内就别拿来挑 checkpoint。",
        verify="把验证集分三份分别评估，三个结果之间的差小于你想看的差异。",
        prevention="每个分数旁边写上误差，正负 1/√n（约两倍标准误）就够用。",
        question="评估用了多少条？checkpoint 之间差多少？",
        quiz="验证集 20 条，85% 对 80%，第二个 checkpoint 更差吗？只差一条，看不出来。",
    )
    change = {"eval_split": 0.05}
    sick = make.Lazy(
        lambda: [
            Evidence(
                metrics=make.ran(
                    loss=make.falling(120),
                    eval_accuracy=(range(15, 121, 15), [0.6667, 0.4167, 0.75, 0.5, 0.8333, 0.5833, 0.6667, 0.4167]),
                )
            ),
            Evidence(
                settings=make.configured("llama-factory", eval_split=12),
                metrics=make.ran(
                    loss=make.falling(120), eval_loss=(range(15, 121, 15), [1.3, 2.0, 1.1, 2.2, 1.2, 1.9, 1.05, 2.1])
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # as erratic, on a thousand rows
                settings=make.configured("llama-factory", eval_split=1000),
                metrics=make.ran(
                    loss=make.falling(120), eval_loss=(range(15, 121, 15), [1.3, 2.0, 1.1, 2.2, 1.2, 1.9, 1.05, 2.1])
                ),
            ),
            Evidence(  # as few, and nothing jumps
                settings=make.configured("llama-factory", eval_split=12),
                metrics=make.ran(
                    loss=make.falling(120), eval_loss=(range(15, 121, 15), [1.5, 1.4, 1.3, 1.25, 1.2, 1.18, 1.17, 1.16])
                ),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        rows, jumps, grain = held_out_rows(seen), erratic(seen), _grain(seen)
        split = setting(seen, "eval_split", 0.0)
        if grain is not None:
            return self.confirmed(grain, *split, *jumps)
        if rows is not None and rows > SMALL:
            return self.ruled_out(
                say(f"about {rows:.0f} rows are evaluated", f"评估了大约 {rows:.0f} 条", -5.0, section="settings")
            )
        against = steady(seen)
        if against:
            return self.ruled_out(*against)
        if rows is None or not jumps:
            return self.not_checked("metrics", "settings", exhibits=split)
        few = say(f"only about {rows:.0f} rows are evaluated", f"只评估了大约 {rows:.0f} 条", 4.0, section="settings")
        return self.confirmed(few, *split, *jumps) if rows <= TINY else self.suspected(few, *split, *jumps)


def _swings(values: np.ndarray[Any, np.dtype[Any]]) -> bool:
    """Whether accuracies jump up and down rather than rise: large steps that turn as often as independent values do."""
    steps = np.diff(values)
    turns = float(np.mean(np.sign(steps[1:]) != np.sign(steps[:-1])))
    return float(np.std(steps)) / float(np.sqrt(2)) >= SWING and turns >= ERRATIC_TURNS


def _grain(seen: Evidence) -> Exhibit | None:
    """An exhibit that all accuracies are multiples of 1/n for a small n, and swing; None where they do not."""
    values = finite(seen, "eval_accuracy")
    distinct = np.unique(values)
    if len(distinct) < DISTINCT or values.min() < 0 or values.max() > 1 or not _swings(values):
        return None
    if np.allclose(values * 100, np.round(values * 100), atol=1e-6):
        return None  # printed to two digits: multiples of 1/100 whatever the set
    for count in range(2, TINY + 1):
        if np.all(np.abs(values * count - np.round(values * count)) <= count * PRINTED):
            listed = ", ".join(f"{value:g}" for value in distinct[:5].tolist())
            return say(
                f"every accuracy is a multiple of 1/{count} ({listed} …): about {count} rows were evaluated",
                f"所有准确率都是 1/{count} 的倍数（{listed} …）：评估集大约只有 {count} 条",
                8.0,
            )
    return None
