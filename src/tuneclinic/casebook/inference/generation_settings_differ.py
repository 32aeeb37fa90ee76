"""The server samples otherwise than the evaluation did."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import about, answers, worse_scores
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_setting

GAPS = {"temperature": 0.3, "top_p": 0.2, "repetition_penalty": 0.1}
"""Differences that change answers visibly: stock configurations of one model family lie closer together than this."""
EXTREME = {"temperature": 1.5, "repetition_penalty": 1.3}
"""Values that break answers by themselves: stock configurations use 0.6 to 1.0, and 1.0 to 1.1 (penalties above 1.2 punish words
that an answer has to repeat, its end token among them)."""
TIGHT = 128
"""A limit on new tokens below which ordinary answers are cut."""
CUT = frozenset({"length", "max_tokens", "max_length", "max_new_tokens"})


class GenerationSettingsDiffer(Case):
    id = "generation-settings-differ"
    symptoms = {"worse-in-inference": 0.055}
    stage = "environment"
    needs = ("serving", "settings")
    probe = "parity"
    search = (
        "sampling parameters differ between evaluation and serving",
        "repetition_penalty too high breaks answers",
        "temperature different from generation_config",
        "answers cut off num_predict max_tokens",
        "推理采样参数和评测不一致",
        "repetition_penalty 太大",
        "generation_config 没生效",
        "回答被 max_tokens 截断",
    )

    en = Card(
        title="Serving and evaluation sample differently",
        sign="The same weights and the same template, but served answers wander, skip words or end half way. In the evaluation they were good.",
        cause="Sampling is part of the model's behaviour. The server has its own defaults (Ollama: temperature 0.8 and repeat_penalty 1.1; vLLM: generation_config.json if there is one), the client sends others, and the evaluation was greedy. A repetition penalty above 1.2 suppresses the end token and terms that have to be repeated; a small max_tokens cuts answers off.",
        remedy="Use one set of values everywhere: put temperature, top_p, top_k, repetition_penalty and eos_token_id into generation_config.json next to the weights. vLLM reads it (--generation-config auto; to change it --override-generation-config '{…}'). Ollama: PARAMETER temperature, top_p, repeat_penalty 1.0, num_predict -1. llama.cpp: --temp, --top-p, --repeat-penalty 1.0. Clients should not send these fields.",
        verify="At temperature 0 the server and the evaluation give the same answer; with the shared values the task score is within noise.",
        prevention="Evaluate with the values that will be served, and publish them with the weights.",
        question="Which temperature, top_p, repetition penalty and token limit did the evaluation use, and which does the server use?",
        quiz="repetition_penalty 1.5 against a repeating model: what breaks? Names, numbers and JSON keys that have to recur, and the end of turn.",
    )
    zh = Card(
        title="推理和评测的采样参数不一致",
        sign="权重、模板都一样，上线后回答却发散、掉字，或说到一半就停；评测时明明是好的。",
        cause="采样参数是模型行为的一部分。推理框架有自己的默认值（Ollama 是 temperature 0.8、repeat_penalty 1.1，vLLM 有 generation_config.json 就读它），客户端又传一套，而评测用的是 greedy。repetition_penalty 超过 1.2，会压低结束符和必须重复的术语；max_tokens 太小会把回答截断。",
        remedy="全链路用同一套：把 temperature、top_p、top_k、repetition_penalty、eos_token_id 写进权重旁边的 generation_config.json。vLLM 会读它（--generation-config auto；要改用 --override-generation-config '{…}'）。Ollama：PARAMETER temperature、top_p、repeat_penalty 1.0、num_predict -1。llama.cpp：--temp、--top-p、--repeat-penalty 1.0。客户端不要再传这些字段。",
        verify="temperature 0 时推理端和评测的回答一致；用统一参数时任务分数落在噪声范围内。",
        prevention="用上线的参数做评测，并把参数随权重一起发布。",
        question="评测时 temperature、top_p、repetition_penalty、max_tokens 各是多少？推理端呢？",
        quiz="为了治复读把 repetition_penalty 调到 1.5，会弄坏什么？必须重复的人名和数字、JSON 的键，还有结束符。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(temperature=0.7, repetition_penalty=1.05),
                serving=own.served("ollama", "Modelfile", sampling={"repetition_penalty": 1.5, "temperature": 0.7}),
            ),
            Evidence(
                settings=make.configured(do_sample=False),
                serving=own.served("vllm", sampling={"temperature": 1.0}),
                scores=own.lost(),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured(temperature=0.7, top_p=0.8, repetition_penalty=1.05),
                serving=own.served("vllm", sampling={"temperature": 0.6, "top_p": 0.8, "repetition_penalty": 1.05}),
                scores=own.lost(),
            ),
            Evidence(  # greedy on both sides, and worse all the same: another cause
                settings=make.configured(do_sample=False, temperature=1.0),
                serving=own.served("vllm", sampling={"temperature": 0.0}),
                scores=own.lost(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if seen.serving is None or not seen.serving.sampling:
            return self.not_checked("serving")
        pairs = list(_pairs(seen))
        cut = _cut(seen)
        if not pairs and not cut:
            return self.not_checked("settings")
        differ = [exhibit for _, exhibit in pairs if exhibit.weight > 0]
        if not differ and not cut:
            return self.ruled_out(*(exhibit for _, exhibit in pairs))
        harm = worse_scores(seen, 3.0)
        if harm or cut or any(extreme for extreme, exhibit in pairs if exhibit.weight > 0):
            return self.confirmed(*differ, *cut, *harm)
        return self.suspected(*differ, missing=("scores",))


def _pairs(seen: Evidence) -> list[tuple[bool, Exhibit]]:
    """(whether the served value is extreme, exhibit) of each quantity that both sides state."""
    found: list[tuple[bool, Exhibit]] = []
    if seen.serving is None or seen.settings is None or "generations" in seen.settings:
        return found  # a temperature among the settings of GRPO is that of its rollouts
    for name, gap in GAPS.items():
        there, here = seen.serving.sampling.get(name), seen.settings.number(name)
        greedy = name == "temperature" and seen.settings.flag("do_sample") is False
        here = 0.0 if greedy else here
        if there is None or here is None:
            continue
        setting = seen.settings.values["do_sample" if greedy else name]
        weight = 3.0 if abs(there - here) > gap else -4.0
        text = (
            f"{name}: {here:g} configured, {there:g} served",
            f"{name}：配置里 {here:g}，推理 {there:g}",
        )
        found.append(
            (there >= EXTREME.get(name, 1e9), say(*text, weight, section="serving", where=seen.serving.places.get(name, setting.where)))
        )  # fmt: skip
        if weight > 0:
            found.append((False, from_setting(setting)))
    return found


def _cut(seen: Evidence) -> tuple[Exhibit, ...]:
    """A small limit at the server, and answers that reach it."""
    limit = seen.serving.sampling.get("max_tokens") if seen.serving is not None else None
    held = answers(seen)
    cut = [output for output in held if output.finish in CUT]
    if limit is None or not 0 < limit <= TIGHT or len(cut) < 2 or len(cut) * 2 < len(held):
        return ()
    references = [len(output.reference) for output in cut if output.reference]
    if not references or sorted(references)[len(references) // 2] <= len(
        sorted(cut, key=lambda o: len(o.text))[len(cut) // 2].text
    ):
        return ()
    en = f"{len(cut)} of {len(held)} answers are cut at max_tokens = {limit:g}"
    return (about(cut[0], en, f"{len(held)} 个回答里有 {len(cut)} 个在 max_tokens = {limit:g} 处被截断", 6.0),)
