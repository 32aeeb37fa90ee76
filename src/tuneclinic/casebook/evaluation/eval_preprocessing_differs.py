"""Evaluation sees its inputs through another preprocessing than training."""

from __future__ import annotations

from tuneclinic.case import Card, Case
from tuneclinic.casebook.evaluation._facts import erratic
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Setting, Settings

FACT = "eval-preprocess-differs"
SHARED = ("template", "system", "image_max_pixels", "image_min_pixels", "max_length", "padding_side", "rope_scaling")
"""Settings that change what one and the same row looks like to the model."""
SIDES = ("eval", "valid", "test", "predict", "infer")
"""Parts of file names that tell an evaluation's configuration."""


def _two_files(train: object, held_out: object, name: str = "template") -> Settings:
    other = Setting(held_out, "eval.yaml:4", "eval.yaml", name)
    conflicts = {name: (other,)} if train != held_out else {}
    return Settings({name: Setting(train, "train.yaml:9", "train.yaml", name)}, "llama-factory", conflicts=conflicts)


class EvalPreprocessingDiffers(Case):
    id = "eval-preprocessing-differs"
    symptoms = {"eval-erratic": 0.18}
    stage = "environment"
    needs = ("script", "settings")
    probe = "evaluation"
    search = (
        "validation transform different normalization mean",
        "eval uses different chat template than training",
        "different resize interpolation in evaluation",
        "评估和训练预处理不一致",
        "验证集归一化均值不一样",
        "评估用的模板和训练不同",
    )

    en = Card(
        title="Evaluation preprocesses inputs differently",
        sign="A training row scores worse when it is sent through the evaluation path. For images, accuracy is far below training from the first evaluation on.",
        cause="Two pieces of code prepare the input and differ: Normalize mean, resize or interpolation, maximum number of pixels, template or system prompt, maximum length. The model sees inputs it was not trained on, and nothing raises an error.",
        remedy="Build one processor (or one function render(row)) and use it on both sides; only random augmentation may differ. Put the shared settings into one file that both commands read (LLaMA-Factory: template, default_system, cutoff_len, image_max_pixels).",
        verify="Send one training row through both paths: input ids and pixel values are equal, and so is the loss.",
        prevention="A test that compares both paths on three rows, run automatically before every training.",
        question="Is the loss of a training row through the evaluation path the same as through the training path?",
        quiz="Training accuracy is 96 %, validation 61 % from the first epoch, and the validation loop gives 62 % on the training set. Overfitting? No: the same rows score low too, so the path differs.",
    )
    zh = Card(
        title="评估的预处理和训练不一样",
        sign="拿训练样本走评估流程，分数也变差；图像任务从第一次评估起，准确率就远低于训练。",
        cause="输入由两段代码各做一遍，而且不一样：Normalize 均值、resize 方式或插值、最大像素数、模板或 system 提示、最大长度。模型见到的是没训过的输入，却不会报错。",
        remedy="只建一个 processor（或一个 render(row) 函数），两边共用；只有随机增强可以不同。共享的设置放到一个文件，两条命令都读它（LLaMA-Factory 是 template、default_system、cutoff_len、image_max_pixels）。",
        verify="同一条训练样本走两条路，input ids、像素值相等，loss 也相等。",
        prevention="写个测试，拿三条样本比对两条路径，每次训练前跑。",
        question="训练样本走评估流程算出来的 loss，和训练流程一样吗？",
        quiz="训练准确率 96%，验证从第一个 epoch 起就是 61%，用验证循环测训练集也只有 62%，是过拟合吗？不是，同样的样本也低，说明流程不同。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(FACT, quote="val_transform = Compose([Resize(224), ToTensor()])")),
            Evidence(settings=_two_files("qwen", "default")),
            Evidence(settings=_two_files(1003520, 262144, "image_max_pixels")),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=(FACT,))),
            Evidence(settings=_two_files("qwen", "qwen"), script=make.scripted(checked=(FACT,))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found, differ = facts(seen, FACT), _differ(seen)
        sure = [exhibit for exhibit in differ if exhibit.weight >= 5]
        if found or sure:
            return self.confirmed(*found, *differ, *erratic(seen))
        if differ:
            return self.suspected(*differ, *erratic(seen))
        against = clean(seen, FACT)
        return self.ruled_out(*against) if against else self.not_checked("script", exhibits=erratic(seen, 0.0))


def _differ(seen: Evidence) -> tuple[Exhibit, ...]:
    """Settings that an evaluation's own file gives another value than the training's file."""
    if seen.settings is None:
        return ()
    found = []
    for name in SHARED:
        mine = seen.settings.values.get(name)
        for other in seen.settings.conflicts.get(name, ()):
            if mine is None or other.default or _of_evaluation(mine.source) == _of_evaluation(other.source):
                continue
            # a longer maximum for evaluation is often meant: it lowers a doubt, no more
            weight = 2.0 if name in {"max_length", "padding_side"} else 6.0
            found.append(
                say(
                    f"{mine.quote} ({mine.where}), but {other.quote} ({other.where})",
                    f"{mine.quote}（{mine.where}），而 {other.quote}（{other.where}）",
                    weight,
                    section="settings",
                    where=other.where,
                    source=other.source,
                )
            )
            break
    return tuple(found)


def _of_evaluation(source: str) -> bool:
    name = source.rsplit("/", 1)[-1].lower()
    return any(side in name for side in SIDES)
