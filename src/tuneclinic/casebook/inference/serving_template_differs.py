"""The server applies another chat template than training did."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import about, answers
from tuneclinic.casebook.inference._templates import Side, families, served, systems, trained
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_fact
from tuneclinic.sections import Data, Sample

SAME = -8.0
SYSTEM_PROOF = 6.0
"""Bits of a system text that is not the one all rows were trained under."""
FEWEST_ROWS = 5
"""A judgement, not measured: rows before a shared system text is a habit of the set."""
ONE_SYSTEM = 0.9
"""Share of rows that carry one and the same system text, from which the model knows no other."""
"""Bits against: both sides emit the same markers."""


class ServingTemplateDiffers(Case):
    id = "serving-template-differs"
    symptoms = {"worse-in-inference": 0.28, "template-residue": 0.35, "parrots": 0.08}
    stage = "data"
    needs = ("serving", "outputs")
    probe = "parity"
    search = (
        "chat template at inference differs from training",
        "ollama output wrong after fine-tuning, transformers is fine",
        "vllm gives worse answers than transformers generate",
        "Modelfile TEMPLATE for my fine-tuned model",
        "推理模板和训练模板不一致",
        "部署到 ollama 之后胡言乱语",
        "vllm 推理效果比训练时差",
        "chat template 对不上",
    )

    en = Card(
        title="Serving uses another chat template",
        sign="In the training script the model answers well; behind vLLM, Ollama or llama.cpp it rambles, ignores the instruction or prints template markers. There is no error anywhere.",
        cause="A template is only text around the question. With other markers, another default system text or no template at all, the model sees a beginning it was never trained on and falls back to the habits of the base model. Converters and servers choose a template by model name; they do not know which one you trained with.",
        remedy="Serve with the training template. vLLM and SGLang: --chat-template ./chat_template.jinja (the file saved with the weights). llama.cpp: --jinja --chat-template-file ./chat_template.jinja. Ollama: write TEMPLATE into the Modelfile with the same markers, the same SYSTEM text, and PARAMETER stop for the turn's end. LLaMA-Factory: the same template: in training, chat and api. Trained on plain '### Response:' text: send that text to /v1/completions and do not use the chat endpoint.",
        verify="Render one training row both ways and compare: the ids of tokenizer.apply_chat_template(messages) with vLLM's /tokenize, or the text with llama.cpp's /apply-template. They must be equal.",
        prevention="Save chat_template.jinja with the weights, and let a test compare the rendered ids of one row before each release.",
        question="Which chat template did training use, and which one does the server apply? Paste both, or one prompt as the server sends it.",
        quiz="Serving uses the wrong template. Which error appears? None: only the answers get worse.",
    )
    zh = Card(
        title="推理用的对话模板和训练不一致",
        sign="训练脚本里回答正常，一放到 vLLM、Ollama、llama.cpp 后面就跑题、不听指令，或者吐出模板标记；全程没有报错。",
        cause="模板只是包在问题外面的一段文本。标记不同、默认 system 不同，或者干脆没有模板，模型看到的开头就是训练里从没出现过的，于是退回 base 的习惯。转换工具和推理框架按模型名选模板，并不知道你训练时用的是哪一个。",
        remedy="推理改用训练的模板。vLLM、SGLang：--chat-template ./chat_template.jinja（和权重一起保存的那份）。llama.cpp：--jinja --chat-template-file ./chat_template.jinja。Ollama：在 Modelfile 里写 TEMPLATE，标记和 SYSTEM 都与训练相同，并用 PARAMETER stop 写上轮次结束符。LLaMA-Factory：训练、chat、api 用同一个 template。训练数据是 '### Response:' 这种纯文本的，走 /v1/completions 原样发送，不走 chat 接口。",
        verify="拿一条训练样本两边各渲染一遍再对比：tokenizer.apply_chat_template(messages) 的 id 对 vLLM 的 /tokenize，或渲染文本对 llama.cpp 的 /apply-template，完全相等才算通过。",
        prevention="chat_template.jinja 随权重一起保存，每次发布前自动比对一条样本渲染出来的 id。",
        question="训练用的是哪个对话模板？推理端用的是哪个？把两份模板，或推理端实际发出的一条 prompt 贴出来。",
        quiz="推理用错了模板会报什么错？什么都不报，只是回答变差。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>"),
                serving=own.served("ollama", "Modelfile", template=own.OLLAMA_LLAMA2, stops=("[INST]",)),
            ),
            Evidence(  # trained on plain text with '### Response:', served through the tokenizer's chat template
                data=Data(
                    "text",
                    3,
                    3,
                    tuple(
                        Sample(n, "train.jsonl", (("text", f"### Instruction:\nq{n}\n\n### Response:\na{n}"),))
                        for n in range(1, 4)
                    ),
                ),
                tokenizer=own.tokenized(own.LLAMA3, eos="<|eot_id|>"),
                serving=own.served("vllm", model="out/merged"),
                outputs=own.answered("I am not sure.", "I am not sure.", prompt="<|start_header_id|>user<|end_header_id|>\n\nq"),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # another syntax, the same markers
                tokenizer=own.tokenized(own.CHATML, eos="<|im_end|>"),
                serving=own.served("ollama", "Modelfile", template=own.OLLAMA_CHATML, stops=("<|im_end|>",)),
            ),
            Evidence(
                settings=make.configured("llama-factory", template="llama3"),
                serving=own.served("vllm", template="./llama3.jinja"),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        system = _system(seen)
        if system is not None and system.weight >= SYSTEM_PROOF:
            return self.confirmed(system)
        order = _order(seen)
        if order:
            return self.suspected(*order, missing=("outputs",))
        here = trained(seen)
        if here is None:
            return self.not_checked("tokenizer", "settings")
        there = served(seen)
        prompts = _prompts(seen, here)
        if prompts is not None and prompts.weight > 0:
            return self.confirmed(here.exhibit, prompts)
        if there is None:
            if prompts is not None:
                return self.ruled_out(here.exhibit, prompts)
            bare = seen.script.fact("generate-without-template") if seen.script is not None else None
            if bare is not None:
                return self.suspected(here.exhibit, from_fact(bare, 3.0), missing=("outputs",))
            return self.not_checked("serving", exhibits=())
        if here.families & there.families:
            return self._agreeing(here, there, system)
        if there.families == {"no template"}:
            passed = say(
                "the server passes the prompt on without any template",
                "推理端不套任何模板，prompt 原样送进去",
                3.0,
                section="serving",
            )
            return self.suspected(here.exhibit, passed, missing=("outputs",))
        if _guessed(here, there):
            return self.suspected(here.exhibit, _weighed(there.exhibit, 4.0), missing=("outputs",))
        return self.confirmed(here.exhibit, _weighed(there.exhibit, 8.0), *_stops(seen, here))

    def _agreeing(self, here: Side, there: Side, system: Exhibit | None) -> Finding:
        """Markers agree; system texts that differ still count: the server's own, and defaults where both sides are Jinja."""
        if system is not None and system.weight > 0:
            return self.suspected(here.exhibit, there.exhibit, system, missing=("outputs",))
        mine, theirs = systems(here.text), systems(there.text)
        if mine and theirs and not mine & theirs:
            trained_text, served_text = min(mine)[:60], min(theirs)[:60]
            differs = say(
                f"default system texts differ: {trained_text!r} in training, {served_text!r} at serving",
                f"默认 system 不同：训练是 {trained_text!r}，推理是 {served_text!r}",
                2.5,
                section="serving",
            )
            return self.suspected(here.exhibit, there.exhibit, differs, missing=("outputs",))
        return self.ruled_out(here.exhibit, _weighed(there.exhibit, SAME))


def _order(seen: Evidence) -> tuple[Exhibit, ...]:
    """A client that sends the text before the picture, for a model that was trained with the picture first."""
    fact = seen.script.fact("text-before-picture") if seen.script is not None else None
    if fact is None or seen.data is None:
        return ()
    held = [sample for sample in seen.data.samples if sample.images and "<image>" in sample.prompt]
    first = [sample for sample in held if sample.prompt.lstrip().startswith("<image>")]
    if len(held) < FEWEST_ROWS or len(first) < ONE_SYSTEM * len(held):
        return ()
    text = f"in {len(first)} of {len(held)} training rows the picture comes first, the client sends the text first"
    zh = f"{len(held)} 条训练样本里有 {len(first)} 条图片在前，推理请求却是文字在前"
    return (from_fact(fact), say(text, zh, SYSTEM_PROOF, section="data", where=first[0].where))


def _system(seen: Evidence) -> Exhibit | None:
    """The server's system text beside the one that nearly all training rows carry; None where either side has none."""
    serving, data = seen.serving, seen.data
    if serving is None or not serving.system or data is None or len(data.samples) < FEWEST_ROWS:
        return None
    held = [_plain(text) for sample in data.samples for role, text in sample.messages[:1] if role == "system"]
    common = max(set(held), key=held.count, default="")
    if not held:
        return _unasked(seen)
    if not common or held.count(common) < ONE_SYSTEM * len(data.samples):
        return None
    same = _plain(serving.system) == common
    return say(
        f"training rows carry the system text {common[:60]!r}, the server sends {_plain(serving.system)[:60]!r}",
        f"训练样本的 system 是 {common[:60]!r}，推理端发的是 {_plain(serving.system)[:60]!r}",
        SAME if same else SYSTEM_PROOF,
        section="serving",
        where=serving.places.get("system", ""),
    )


def _unasked(seen: Evidence) -> Exhibit | None:
    """A system text of the server's for a model that was trained without one, or under the template's own."""
    serving, template = seen.serving, (seen.tokenizer.template or "") if seen.tokenizer is not None else ""
    own = {_plain(text) for text in systems(template)}
    if serving is None or not serving.system or any(_plain(serving.system).startswith(text) for text in own):
        return None
    return say(
        f"no training row carries a system text, the server sends {_plain(serving.system)[:60]!r}",
        f"训练样本里没有 system，推理端却发了 {_plain(serving.system)[:60]!r}",
        2.0,
        section="serving",
        where=serving.places.get("system", ""),
    )


def _plain(text: str) -> str:
    """A text without differences of spacing, case and closing marks."""
    return " ".join(text.lower().split()).rstrip(" .。!！")


def _weighed(exhibit: Exhibit, weight: float) -> Exhibit:
    return Exhibit(exhibit.text, exhibit.where, exhibit.source, weight=weight, section=exhibit.section)


def _guessed(here: Side, there: Side) -> bool:
    """Whether one side is told by plain role names only, which also occur in ordinary text."""
    return "plain roles" in here.families | there.families


def _stops(seen: Evidence, here: Side) -> tuple[Exhibit, ...]:
    """Stop strings of another family than the trained one."""
    stops = seen.serving.stops if seen.serving is not None else ()
    foreign = [stop for stop in stops if (held := families(stop)) and not held & here.families]
    if not foreign:
        return ()
    where = seen.serving.places.get("stops", "") if seen.serving is not None else ""
    return (say(f"it stops on {foreign[0]!r}", f"停止符是 {foreign[0]!r}", 1.0, section="serving", where=where),)


def _prompts(seen: Evidence, here: Side) -> Exhibit | None:
    """The recorded prompts, where most of them hold the markers of one template: for where it is another one."""
    held = answers(seen)
    marked = [(output, families(output.prompt)) for output in held if re.search(r"<[|｜]|\[INST\]|<start_of|### ", output.prompt)]
    marked = [(output, found) for output, found in marked if found and found != {"plain roles"}]
    if len(marked) * 2 <= len(held):
        return None
    other = [(output, found) for output, found in marked if not found & here.families]
    if "plain roles" in here.families and other:
        return None
    first, found = (other or marked)[0]
    shown = ", ".join(sorted(found))
    foreign = len(other) * 2 > len(marked)
    return about(first, f"prompts are sent in {shown}", f"实际发出的 prompt 是 {shown} 格式", 8.0 if foreign else SAME)
