"""Training looked right, and what is served is not."""

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Output, Outputs, Score, Scores
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms import _outputs as read
from tuneclinic.symptoms._scores import NOISE, scores, told_tuning, tuning

BROKEN_SHARE = 0.3
"""Share of answers that are empty or garbled. A working model gives next to none."""

GARBLED = 0.05
"""Share of replacement and control characters that makes a text garbled; clean UTF-8 text has none."""

ENOUGH_PAIRS = 3
"""Answers equal to the base model's needed before that is no coincidence."""

SAME_LENGTH = 40
"""Characters from which an answer equal to the base model's is telling; short answers coincide."""


class WorseInInference(Symptom):
    id = "worse-in-inference"
    letter = "E"
    needs = ("outputs", "scores")
    search = (
        "fine-tuned model is bad at inference but loss was good",
        "vLLM output differs from training evaluation",
        "LoRA adapter has no effect, same output as base model",
        "deployed model gives worse answers than in the notebook",
        "garbage output in ollama after converting to gguf",
        "训练效果很好，推理质量不对",
        "部署之后效果变差",
        "加载 LoRA 之后输出和原模型一样",
        "great eval results but terrible output when deployed",
        "results in production are worse than offline",
        "训练时效果好，上线效果很差",
        "lora 没生效，跟基座输出一样",
        "vllm 推理结果和训练时对不上",
    )

    en = SymptomCard(
        title="Good in training, worse when served",
        seen="Loss and evaluation were fine, but the served model answers worse, answers like the base, or writes garbled text. There is no error: with a wrong template or dtype the server still runs, only the text is worse.",
        check="Render one training row on the training side and on the serving side and compare the tokens, first the beginning (two BOS?) and the end. Then compare the logits of one row: adapter on and off, training dtype and serving dtype.",
        treatment="Serve with the training template, the same dtype and the same base revision. Make sure that the adapter is really loaded. Copy the sampling settings of the evaluation.",
        prevention="Ship the inference configuration (template, stop ids, sampling, dtype, base revision) in the same folder as the weights, and let the server check it at start-up.",
    )
    zh = SymptomCard(
        title="训练正常，推理变差",
        seen="loss 和评估都正常，部署后回答变差，或者跟 base 一模一样，或者乱码。不会报错：模板或 dtype 不对，服务照样能跑，只是输出变差。",
        check="同一条训练样本分别走训练侧和推理侧渲染，逐 token 对比，先看开头（有没有两个 BOS）和结尾。再比一行 logits：挂不挂 adapter、训练 dtype 和推理 dtype。",
        treatment="推理用训练时的模板、同样的 dtype、同一版 base，确认 adapter 真的挂上了；采样参数照抄评估时的。",
        prevention="推理配置（模板、stop id、采样、dtype、base 版本）和权重放在同一个目录发布，服务启动时自动核对。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    tuple(
                        Output(
                            f"q{n}",
                            f"As a general assistant I would say that answer {n} depends on the case.",
                            f"o.jsonl row {n}",
                            base=f"As a general assistant I would say that answer {n} depends on the case.",
                        )
                        for n in range(1, 5)
                    )
                )
            ),
            Evidence(outputs=Outputs(tuple(Output(f"q{n}", "", f"o.jsonl row {n}") for n in range(1, 5)))),
            Evidence(scores=Scores((Score("contracts", "f1", 0.22, 0.42, domain=True, where="scores.csv:2"),))),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    tuple(
                        Output(f"q{n}", f"Clause {n} ends the contract.", f"o.jsonl row {n}", base="It depends.")
                        for n in range(1, 5)
                    )
                ),
            ),
            Evidence(scores=Scores((Score("contracts", "f1", 0.81, 0.42, domain=True, where="scores.csv:2"),))),
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        outputs = read.items(seen)
        broken = [output for output in outputs if not output.text.strip() or _garbled(output.text)]
        if broken and len(broken) >= BROKEN_SHARE * len(outputs):
            text = read.counted(len(broken), len(outputs), "are empty or garbled", "为空或是乱码")
            return self.shown(read.quoted(broken[0], text))
        pairs = [output for output in outputs if output.base is not None and len(output.text.strip()) >= SAME_LENGTH]
        same = [output for output in pairs if output.base is not None and output.base.strip() == output.text.strip()]
        if len(pairs) >= ENOUGH_PAIRS and len(same) == len(pairs):
            text = read.counted(len(same), len(pairs), "equal the base model's to the letter", "和 base 的回答一字不差")
            return self.shown(read.quoted(same[0], text), read.quoted(same[0]))
        domain = [(change, score) for score in scores(seen) if score.domain and (change := tuning(score)) is not None]
        worse = [score for change, score in domain if change < -NOISE]
        if worse:
            return self.shown(*(told_tuning(score) for score in worse[:3]))
        if domain or outputs:
            exhibits = [told_tuning(score) for _, score in domain[:2]]
            if outputs:
                text = read.counted(len(broken), len(outputs), "are empty or garbled", "为空或是乱码")
                exhibits.append(read.quoted(outputs[0], text))
            return self.absent(*exhibits)
        return self.not_checked("outputs", "scores")


def _garbled(text: str) -> bool:
    """Whether a text is full of replacement, private-use or control characters."""
    head = text[:2000]
    odd = sum(
        character == "\ufffd" or "\ue000" <= character <= "\uf8ff" or (character < " " and character not in "\t\n\r")
        for character in head
    )
    return odd > GARBLED * len(head)
