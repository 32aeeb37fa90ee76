"""Greedy or nearly greedy decoding runs into loops."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import about, answers, loops, sampling
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_setting
from tuneclinic.words import Text

COLD = 0.1
"""Temperature up to which decoding is greedy in practice: the second choice at one nat behind has a chance of e^-10."""
COLD_BITS = 1.0
"""Bits of greedy decoding beside loops: half of all evaluations decode greedily, loops or none."""
WARM = 0.5
"""Temperature from which sampling leaves loops by itself (Holtzman et al. 2020 find them gone from about 0.7 on)."""
LOOPED = "The contract ends when the contract ends. " * 12


class SamplingTooCold(Case):
    id = "sampling-too-cold"
    symptoms = {"parrots": 0.1}
    stage = "environment"
    needs = ("outputs", "serving", "settings")
    probe = "parity"
    change = {"temperature": 0.7, "top_p": 0.8}
    search = (
        "greedy decoding repeats sentences",
        "temperature 0 leads to endless repetition",
        "do_sample False repeats itself",
        "model loops with low temperature",
        "temperature 0 复读",
        "贪心解码一直重复",
        "采样温度太低 复读机",
        "do_sample=False 重复输出",
    )

    en = Card(
        title="Temperature too low: answers loop",
        sign="Long answers repeat one sentence to the end. With temperature 0.7 the same weights do not, and the base model loops at temperature 0 as well.",
        cause="If the likeliest token is always taken, a sentence that has occurred becomes likelier each time it recurs, and without randomness nothing leads out of the loop. Small models, and reasoning models with long outputs, are affected most. This is a matter of decoding; fine-tuning has not caused it.",
        remedy='Sample: temperature 0.6 to 0.8, top_p 0.8 to 0.95 (use the values of the model card). transformers: generate(do_sample=True, temperature=0.7, top_p=0.8). vLLM: --override-generation-config \'{"temperature": 0.7, "top_p": 0.8}\'. Ollama: PARAMETER temperature 0.7. If it has to be greedy: repetition_penalty 1.05 to 1.1 and a smaller length limit.',
        verify="The share of looping answers falls to that of the base model at the same settings.",
        prevention="Measure diversity with the sampling values that will be served, and write them into generation_config.json.",
        question="Which temperature and do_sample are in use, and does the base model loop at the same values?",
        quiz="A tuned model loops at temperature 0. What do you test first? The base model at temperature 0: if it loops too, training is not the cause.",
    )
    zh = Card(
        title="温度太低，回答陷入循环",
        sign="长回答到后面一直重复同一句。同一份权重 temperature 0.7 就没事，base 模型在 temperature 0 下也一样复读。",
        cause="每步都取概率最高的 token，一句话出现过一次，再出现的概率就更高，没有随机性就跳不出来。小模型和长输出的推理模型最严重。这是解码问题，不是微调造成的。",
        remedy='开采样：temperature 0.6～0.8，top_p 0.8～0.95（按模型卡推荐值）。transformers：generate(do_sample=True, temperature=0.7, top_p=0.8)。vLLM：--override-generation-config \'{"temperature": 0.7, "top_p": 0.8}\'。Ollama：PARAMETER temperature 0.7。必须 greedy 的话，repetition_penalty 设 1.05～1.1，并把长度上限调小。',
        verify="循环回答的比例降到与同样参数下的 base 模型相当。",
        prevention="用上线的采样参数测多样性，并把参数写进 generation_config.json。",
        question="temperature、do_sample 是多少？同样参数下 base 模型也复读吗？",
        quiz="微调后的模型 temperature 0 复读，先试什么？让 base 模型也用 temperature 0 跑，也复读就不是训练的问题。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                outputs=own.answered(LOOPED, LOOPED, "Fine.", LOOPED, base=LOOPED),
                serving=own.served("vllm", sampling={"temperature": 0.0}),
            ),
            Evidence(
                outputs=own.answered(LOOPED, LOOPED, "Fine.", base=LOOPED),
                settings=make.configured(do_sample=False),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # loops although it samples: another cause
                outputs=own.answered(LOOPED, LOOPED, LOOPED),
                serving=own.served("vllm", sampling={"temperature": 0.8}),
            ),
            Evidence(  # as cold, and no loops
                outputs=own.answered("It ends in May.", "It is valid.", "Clause 4 applies."),
                serving=own.served("vllm", sampling={"temperature": 0.0}),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        decoding = _temperature(seen)
        held = answers(seen)
        if decoding is None or not held:
            return self.not_checked("outputs" if not held else "serving")
        temperature, exhibit = decoding
        looping = [output for output in held if loops(output.text)]
        en, zh = f"{len(looping)} of {len(held)} answers loop", f"{len(held)} 个回答里有 {len(looping)} 个在循环"
        if not looping:
            return self.ruled_out(about(held[0], en, zh, -6.0), exhibit)
        if temperature >= WARM:
            return self.ruled_out(_weighed(exhibit, -6.0), about(looping[0], en, zh))
        if temperature > COLD:
            return self.not_checked("serving", exhibits=(exhibit,))
        based = [output for output in held if output.base is not None]
        also = [output for output in based if output.base is not None and loops(output.base)]
        cold = (_weighed(exhibit, COLD_BITS), about(looping[0], en, zh))
        if len(also) >= 2 and len(also) >= len(looping) / 2:
            text = (
                f"the base model loops in {len(also)} of {len(based)} too",
                f"base 模型 {len(based)} 个里也有 {len(also)} 个循环",
            )
            return self.confirmed(*cold, about(also[0], *text, 6.0))
        if len(based) >= len(looping) and not also:
            return self.ruled_out(exhibit, about(based[0], "the base model does not loop", "base 模型不循环", -5.0))
        return self.suspected(*cold, missing=("outputs",))


def _weighed(exhibit: Exhibit, weight: float) -> Exhibit:
    return Exhibit(exhibit.text, exhibit.where, exhibit.source, weight=weight, section=exhibit.section)


def _temperature(seen: Evidence) -> tuple[float, Exhibit] | None:
    """The temperature at work: the server's, else the configuration's; 0 where sampling is off."""
    if seen.serving is not None and "temperature" in seen.serving.sampling:
        return sampling(seen, "temperature")
    if seen.settings is not None and seen.settings.flag("do_sample") is False:
        text = Text("do_sample is off: greedy decoding", "do_sample 关闭：贪心解码")
        return 0.0, from_setting(seen.settings.values["do_sample"], text=text)
    return sampling(seen, "temperature")
