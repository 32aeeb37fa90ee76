"""A handful of samples cannot be memorised."""

import numpy as np

from tuneclinic.curves.rows import TOKEN_LOSSES
from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence, Exhibit, from_setting
from tuneclinic.examples import Lazy
from tuneclinic.sections import Data, Setting, Settings
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms._examples import falling, flat, run
from tuneclinic.symptoms._series import course, curve, kind, look, number, stated
from tuneclinic.words import Text

TINY_ROWS = 32
"""Rows up to which a training is a memorisation test: the usual test takes 1 to 32 samples."""

MANY_PASSES = 10
"""Passes over the samples before which nothing is said: the usual test trains for 10 to 100 epochs."""

NOT_MEMORISED = 0.5
"""Nats per token. A memorised answer is far below 0.1; half a nat is a mean
probability of 0.6 a token."""


class CannotOverfit(Symptom):
    id = "cannot-overfit"
    letter = "C"
    needs = ("metrics", "data", "settings")
    search = (
        "cannot overfit a single batch",
        "model can't memorise 10 examples",
        "overfit test on ten samples fails",
        "loss does not reach zero on one batch",
        "sanity check overfitting one batch stuck",
        "单 batch 过拟合降不到 0",
        "10 条数据都背不下来",
        "小样本过拟合测试不过",
        "fails to memorise a tiny dataset",
        "overfitting a few examples does not work",
        "loss stays high on 5 training samples",
        "几条样本训 100 轮还记不住",
        "过拟合测试失败",
        "同一个 batch 训很多步 loss 还很高",
    )

    en = SymptomCard(
        title="Ten samples cannot be memorised",
        seen="You train on ten samples, or on one batch again and again, and the loss stays well above 0.1. A healthy set-up can memorise ten answers, so something between the data and the optimizer is broken.",
        check="In this order: label alignment; the loss against a reference implementation; preprocessing; the gradient chain from the loss to the trainable tensors; label smoothing; only then the size of the model.",
        treatment="Fix one batch, turn dropout and shuffling off, and go through that list until the loss falls below 0.1 and the model repeats the answers through the inference path.",
        prevention="Run this test before the first training with any new framework, model or template. It takes about a minute.",
    )
    zh = SymptomCard(
        title="10 条样本都过拟合不了",
        seen="只拿几条样本训，或者反复喂同一个 batch，loss 还是远高于 0.1。正常的配置一定背得下 10 条，背不下就说明从数据到 optimizer 之间有东西坏了。",
        check="按这个顺序查：标签对齐、loss 和参考实现对拍、预处理、从 loss 到可训练参数的梯度链、标签平滑，最后才轮到模型太小。",
        treatment="固定一个 batch，关掉 dropout 和 shuffle，按上面的顺序查下去，直到 loss 低于 0.1，而且走推理流程能把答案背出来。",
        prevention="换了新框架、新模型或新模板，第一次训练前先跑这个测试，一分钟左右。",
    )
    sick = Lazy(
        lambda: [
            run(loss=flat(60, 1.7))
            .merge(Evidence(data=Data("messages", rows=10, total=10, sources=("ten.jsonl",))))
            .merge(Evidence(settings=Settings({"epochs": Setting(30, "config.yaml:9", "config.yaml", "num_train_epochs")})))
        ]
    )
    healthy = Lazy(
        lambda: [
            run(loss=falling(60, 2.4, 0.02))
            .merge(Evidence(data=Data("messages", rows=10, total=10)))
            .merge(Evidence(settings=Settings({"epochs": Setting(30, "config.yaml:9", "config.yaml", "num_train_epochs")}))),
            run(loss=flat(60, 1.7), epoch=np.linspace(0.05, 3, 60)).merge(Evidence(data=Data("messages", rows=5000, total=5000))),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        loss, shape = curve(seen), look(seen)
        if loss is None or kind(seen) not in TOKEN_LOSSES:
            return self.not_checked("metrics")
        test = _is_a_test(seen)
        if test is None:
            return self.not_checked("data", "settings")
        passes = _passes(seen)
        if not test or shape.last is None or shape.last <= NOT_MEMORISED:
            return self.absent(*test, course("loss", loss))
        if passes is None or passes < MANY_PASSES:
            return self.not_checked("metrics")
        text = Text(
            f"after {number(passes)} epochs over the samples the loss is still {number(shape.last)}",
            f"已训了 {number(passes)} 个 epoch，loss 仍是 {number(shape.last)}",
        )
        return self.shown(*test, stated(text, loss, float(loss.steps[-1])), first_step=float(loss.steps[0]))


def _is_a_test(seen: Evidence) -> tuple[Exhibit, ...] | None:
    """What says that this is a memorisation test; empty where the set is larger, None where its size is unknown."""
    samples = seen.settings.number("max_samples") if seen.settings is not None else None
    if samples is not None and 0 < samples <= TINY_ROWS and seen.settings is not None:
        return (from_setting(seen.settings.values["max_samples"]),)
    if seen.data is None or seen.data.total is None:
        return None
    if not 0 < seen.data.total <= TINY_ROWS:
        return ()
    source = seen.data.sources[0] if seen.data.sources else ""
    text = Text(f"the training set holds {seen.data.total} rows", f"训练集只有 {seen.data.total} 条")
    return (Exhibit(text, source, source, section="data"),)


def _passes(seen: Evidence) -> float | None:
    """How often each sample was seen: the logged epoch, else the epochs that were set."""
    epoch = curve(seen, "epoch")
    if epoch is not None and np.isfinite(epoch.values).any():
        return float(np.nanmax(epoch.values))
    return seen.settings.number("epochs") if seen.settings is not None else None
