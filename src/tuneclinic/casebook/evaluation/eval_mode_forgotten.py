"""The model is evaluated in training mode, or trained on in evaluation mode."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.evaluation._facts import by_trainer, erratic
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, conclude, facts, number, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence
from tuneclinic.sections import Metrics

FACTS = ("eval-without-eval-mode", "train-mode-not-restored")


class EvalModeForgotten(Case):
    id = "eval-mode-forgotten"
    symptoms = {"eval-erratic": 0.3}
    stage = "environment"
    needs = ("script", "settings", "metrics")
    probe = "evaluation"
    search = (
        "forgot model.eval() during validation",
        "validation loss changes every time with same checkpoint",
        "dropout active during evaluation",
        "batch norm eval accuracy jumps",
        "验证时忘了 model.eval()",
        "同一个 checkpoint 每次评估结果不一样",
        "评估时 dropout 没关",
        "评估完忘了切回 train",
    )

    en = Card(
        title="Evaluation runs in training mode",
        sign="The same checkpoint scores differently each time. The evaluation loss jumps while training is smooth, and is worse than the generated answers suggest.",
        cause="Nobody calls model.eval(), so dropout (LoRA's too) stays random and batch norm uses the statistics of the evaluation batch. The opposite fault: eval() is called and train() never again, so training continues without dropout.",
        remedy="Put model.eval() and `with torch.inference_mode():` around the evaluation loop, and model.train() after it; keep all three in one function. Trainer, LLaMA-Factory and axolotl do this themselves, so look in your own loops and callbacks. from_pretrained returns a model in eval mode, but your first model.train() ends that.",
        verify="Evaluate one checkpoint twice: the numbers are equal to the last digit. Put `assert not model.training` into the loop.",
        prevention="Keep that assert, and run the first evaluation of every run twice.",
        question="Does the same checkpoint, evaluated twice, give the same number?",
        quiz="lora_dropout 0.1, and two evaluations of one checkpoint give 1.31 and 1.37. What is missing? model.eval(): dropout is still on.",
    )
    zh = Card(
        title="评估时没切到 eval 模式",
        sign="同一个 checkpoint 每次评估分数都不一样；训练平稳而验证 loss 忽上忽下，数值比生成效果给人的印象更差。",
        cause="没人调 model.eval()，dropout（LoRA 的也算）仍在随机丢，batch norm 用的是评估 batch 的统计量。反过来也有：调了 eval() 却没再 train()，后面的训练就没有 dropout 了。",
        remedy="评估循环外面加 model.eval() 和 `with torch.inference_mode():`，结束后 model.train()，三样放进一个函数。Trainer、LLaMA-Factory、axolotl 自己会做，所以去查手写的循环和 callback。from_pretrained 返回的模型本来是 eval 模式，第一次 model.train() 之后就不是了。",
        verify="同一个 checkpoint 评两遍，数字一位不差；循环里 assert not model.training。",
        prevention="这个 assert 留着；每次训练第一次评估时连评两遍。",
        question="同一个 checkpoint 评两遍，结果一样吗？",
        quiz="lora_dropout 0.1，同一 checkpoint 两次评估 1.31 和 1.37，少了什么？model.eval()，dropout 还开着。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(FACTS[0], quote="out = model(**batch)"), metrics=_jumps()),
            Evidence(script=make.scripted(FACTS[1], quote="model.eval()")),
            Evidence(
                script=make.scripted(FACTS[0], quote="logits = model(x)"), settings=make.configured("pytorch", lora_dropout=0.1)
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=FACTS), metrics=_jumps()),  # it jumps, and the mode is right
            Evidence(settings=make.configured("llama-factory", lora_dropout=0.1), metrics=_jumps()),  # the Trainer sees to it
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found, jumps = facts(seen, *FACTS, weight=7.0), erratic(seen)
        if found:
            harmless = number(seen, "lora_dropout") == 0 and not jumps
            if harmless:
                return conclude(self, (*facts(seen, *FACTS, weight=1.0), *setting(seen, "lora_dropout")))
            return self.confirmed(*found, *jumps, *setting(seen, "lora_dropout"))
        against = (*clean(seen, FACTS[0]), *by_trainer(seen))
        return self.ruled_out(*against) if against else self.not_checked("script", exhibits=jumps)


def _jumps() -> Metrics:
    return make.ran(loss=make.falling(120), eval_loss=(range(15, 121, 15), [1.3, 2.9, 1.1, 3.4, 1.2, 2.7, 1.05, 3.1]))
