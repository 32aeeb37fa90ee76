"""A base model is taught a chat template whose tokens it has never been trained on."""

from __future__ import annotations

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern
from tuneclinic.sections import Adapter, Output, Outputs, Tokenizer

TUNED = pattern(
    r"instruct|chat|[-_]it\b|[-_]sft|[-_]dpo|[-_]rl|zephyr|vicuna|alpaca|tulu|hermes|assistant|thinking|distill|orca|openchat|guanaco"
)
"""Names of models that were tuned to talk."""
FAMILIES = pattern(
    r"llama|qwen|mistral|mixtral|gemma|phi|falcon|yi-|deepseek|internlm|baichuan|smollm|olmo|pythia|gpt|opt-|bloom|mpt"
)
"""Names from which one can tell a base model by the lack of a suffix."""
HYBRID = pattern(r"qwen3|qwen3\.5|phi-?[34]|phi-?3\.5|smollm3|glm|deepseek-(r1|v3)|gpt-oss")
"""Families whose plain name is the chat model."""
TRAINED_MARKERS = pattern(r"qwen")
"""Families whose base models saw the template's tokens in pre-training: the suspicion is weaker there."""
MARKERS = ("<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|eot_id|>", "<start_of_turn>", "<|assistant|>", "<|user|>")
"""Turn markers that are tokens of their own; [INST] and `### Response:` are plain text, which a base model can read."""
NAMED = ("chatml", "qwen", "llama3", "gemma", "phi", "glm", "internlm2", "yi", "deepseek", "mistral_small")
PLAIN = ("default", "alpaca", "vicuna", "empty", "plain", "fewshot", "llama2", "none", "false", "zero")
EMBEDDINGS = ("embed_tokens", "lm_head", "embedding", "wte", "all-linear-and-embedding")
MOST = 0.5
"""Share of outputs that did not stop from which it is a habit."""


class BaseModelWithChatTemplate(Case):
    id = "base-model-with-chat-template"
    symptoms = {"parrots": 0.06, "never-stops": 0.07}
    stage = "environment"
    needs = ("settings", "model", "outputs")
    probe = "show"
    search = (
        "base model with chat template LoRA never stops",
        "fine-tuned base model does not emit im_end",
        "use instruct or base model for LoRA chat",
        "Llama-3 base LoRA endless generation modules_to_save",
        "base 模型用 chat 模板微调停不下来",
        "底座模型 LoRA 对话模板 复读",
        "选 base 还是 instruct 微调",
    )

    en = Card(
        title="A base model with an untrained chat template",
        sign="The loss falls well, yet the model does not stop, repeats itself or writes the markers as text. With the -Instruct model the same data work.",
        cause="A base model has rows for <|eot_id|>, <|im_end|> and similar tokens in embedding and lm_head, but they were hardly ever trained. LoRA on attention and MLP does not change those rows, so the end token cannot become likely, and a few thousand rows do not teach a new format.",
        remedy='Start from the chat model (model: …-Instruct), or train the rows: modules_to_save=["embed_tokens", "lm_head"] (LLaMA-Factory: additional_target: embed_tokens,lm_head; axolotl: lora_modules_to_save), at the cost of two full matrices. Or use a plain-text template that ends in the base model\'s own eos (LLaMA-Factory: template: alpaca or default).',
        verify="After 200 steps the probability of the end token at the end of a training answer is above 0.9, and answers to five prompts all stop by themselves.",
        prevention="Before training compare the norms of the template tokens' embedding rows with the mean of all rows: untrained rows differ clearly.",
        question="Is the model a base or an instruct model, and are embed_tokens and lm_head trained?",
        quiz="Llama-3-8B base, LoRA on all linear layers, llama3 template: why does <|eot_id|> not come? Its rows in embedding and lm_head were never trained, and LoRA does not touch them.",
    )
    zh = Card(
        title="base 模型套了没训过的模板",
        sign="loss 降得好好的，模型却停不下来、复读，或者把标记当普通文字写出来；同样的数据换成 -Instruct 模型就没事。",
        cause="<|eot_id|>、<|im_end|> 这类 token 在 base 模型的 embedding 和 lm_head 里有对应的行，但几乎没训过。LoRA 只挂在 attention 和 MLP 上，改不到这几行，结束符的概率上不来；几千条数据也教不会一种新格式。",
        remedy='换对话版模型（model: …-Instruct），或者把这几行也训上：modules_to_save=["embed_tokens", "lm_head"]（LLaMA-Factory 写 additional_target: embed_tokens,lm_head，axolotl 写 lora_modules_to_save），代价是多两个完整矩阵。也可以改用以 base 自己的 eos 收尾的纯文本模板（LLaMA-Factory 的 template: alpaca 或 default）。',
        verify="训 200 步后，训练样本答案末尾处结束符的概率大于 0.9；随便问五个问题都能自己停。",
        prevention="训练前把模板 token 的 embedding 行范数和全表平均值比一下，没训过的行差别很明显。",
        question="模型是 base 还是 instruct？embed_tokens 和 lm_head 训了吗？",
        quiz="Llama-3-8B base，LoRA 挂满线性层，用 llama3 模板，为什么 <|eot_id|> 出不来？embedding 和 lm_head 里它那一行没训过，LoRA 又改不到。",
    )
    change = {"modules_to_save": ["embed_tokens", "lm_head"]}
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("llama-factory", model="meta-llama/Meta-Llama-3-8B", template="llama3", method="lora"),
                outputs=Outputs(
                    tuple(Output(f"q{n}", f"answer {n} and on", f"o.jsonl row {n}", finish="length") for n in range(1, 5))
                ),
            ),
            Evidence(
                settings=make.configured(model="mistralai/Mistral-7B-v0.1", lora_rank=16),
                tokenizer=Tokenizer(
                    template="{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
                ),
                outputs=Outputs(
                    tuple(
                        Output(f"q{n}", "Yes.<|im_end|>\n<|im_start|>user\nAnd", f"o.jsonl row {n}", tokens=256)
                        for n in (1, 2, 3)
                    ),
                    256,
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same, from the instruct model
                settings=make.configured(
                    "llama-factory", model="meta-llama/Meta-Llama-3-8B-Instruct", template="llama3", method="lora"
                ),
                outputs=Outputs(
                    tuple(Output(f"q{n}", f"answer {n} and on", f"o.jsonl row {n}", finish="length") for n in range(1, 5))
                ),
            ),
            Evidence(  # the rows are trained
                settings=make.configured(
                    "llama-factory",
                    model="meta-llama/Meta-Llama-3-8B",
                    template="llama3",
                    method="lora",
                    modules_to_save="embed_tokens,lm_head",
                )
            ),
            Evidence(  # a template of plain text
                settings=make.configured("llama-factory", model="meta-llama/Meta-Llama-3-8B", template="alpaca", method="lora")
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        model = _model(seen)
        if not model:
            return self.not_checked("settings", "model")
        if _talks(model):
            return self.ruled_out(say(f"{model} is a chat model", f"{model} 是对话版模型", -6.0, section="settings"))
        against = _trained_rows(seen) or _plain(seen)
        if against:
            return self.ruled_out(*against)
        marked = _marked(seen)
        if not FAMILIES.search(model.lower()) or not marked or not _adapter(seen):
            return self.not_checked("tokenizer", "settings")
        base = say(f"by its name {model} is a base model", f"从名字看 {model} 是 base 模型", 1.0, section="settings")
        stops = _never_stops(seen)
        if stops is not None and stops.weight < 0:
            return self.ruled_out(stops, base)
        weak = bool(TRAINED_MARKERS.search(model.lower()))
        exhibits = (base, *marked, *([stops] if stops is not None else []))
        if stops is None:
            return self.not_checked("outputs", exhibits=exhibits)
        return self.suspected(*exhibits) if weak else self.confirmed(*exhibits)


def _model(seen: Evidence) -> str:
    """The name of the model that was tuned, without its folder."""
    name = seen.settings.get("model") if seen.settings is not None else None
    adapter = seen.model.adapter if seen.model is not None else None
    held = name or (adapter.base if adapter is not None else None) or (seen.model.name if seen.model is not None else None)
    return str(held or "").rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1][:120]


def _talks(model: str) -> bool:
    low = model.lower()
    return bool(TUNED.search(low) or (HYBRID.search(low) and "base" not in low))


def _adapter(seen: Evidence) -> bool:
    """Whether an adapter is trained rather than all weights."""
    method = text_of(seen, "method")
    if method in {"full", "freeze"}:
        return False
    has = seen.model is not None and seen.model.adapter is not None
    return has or "lora" in method or (seen.settings is not None and "lora_rank" in seen.settings)


def _trained_rows(seen: Evidence) -> tuple[Exhibit, ...]:
    """What says that embedding and head are trained."""
    adapter: Adapter | None = seen.model.adapter if seen.model is not None else None
    saved = ",".join(adapter.modules_to_save) if adapter is not None else ""
    for name in ("modules_to_save", "target_modules"):
        if any(part in text_of(seen, name) for part in EMBEDDINGS):
            return setting(seen, name, -7.0)
    if any(part in saved for part in EMBEDDINGS):
        return (say(f"modules_to_save: {saved}", f"modules_to_save: {saved}", -7.0, section="model"),)
    if text_of(seen, "method") == "full":
        return setting(seen, "method", -7.0)
    return ()


def _plain(seen: Evidence) -> tuple[Exhibit, ...]:
    template = text_of(seen, "template")
    return setting(seen, "template", -5.0) if template in PLAIN else ()


def _marked(seen: Evidence) -> tuple[Exhibit, ...]:
    """The template with turn markers that are tokens of their own."""
    template = text_of(seen, "template")
    if template.startswith(NAMED) or any(marker in template for marker in MARKERS):
        return setting(seen, "template", 1.0)
    held = seen.tokenizer.template if seen.tokenizer is not None else None
    marker = next((marker for marker in MARKERS if held and marker in held), None)
    if marker is None:
        return ()
    return (say(f"the template uses {marker}", f"模板里用到 {marker}", 1.0, section="tokenizer"),)


def _never_stops(seen: Evidence) -> Exhibit | None:
    """How many outputs ran to the limit, of those whose end is known; None where none is."""
    limit = seen.outputs.max_new_tokens if seen.outputs is not None else None
    ends = [_stopped(output, limit) for output in (seen.outputs.items if seen.outputs is not None else ())]
    known = [end for end in ends if end is not None]
    if not known:
        return None
    running = known.count(False)
    return say(
        f"{running} of {len(known)} outputs did not stop by themselves",
        f"{len(known)} 条输出里有 {running} 条没有自己停下",
        6.0 if running >= MOST * len(known) else -4.0,
        section="outputs",
    )


def _stopped(output: Output, limit: float | None) -> bool | None:
    if output.finish:
        return "length" not in output.finish.lower() and "max" not in output.finish.lower()
    if output.tokens is not None and limit:
        return output.tokens < limit
    return None
