"""Two start tokens open the text."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, rows
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean as script_clean
from tuneclinic.casebook.learning._facts import conclude, facts, quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Serving, Tokenizer

CHECK, FACT = "double-bos", "double-bos-tokenised"
TEMPLATE_HEAD = 400
"""Characters at a template's beginning in which it writes its start token."""


class DoubleBos(Case):
    id = "double-bos"
    symptoms = {"worse-in-inference": 0.12}
    needs = ("data", "script", "tokenizer", "serving", "log")
    probe = "show"
    signatures = (
        r"prompt (?:also )?starts with a bos token.{0,80}(?:2|two) bos tokens",
        r"added a bos token to the prompt .{0,120}also starts with a bos token",
        r"\[128000, 128000\b",  # the start id of Llama 3 printed twice
        r"\[151646, 151646\b",  # … and of DeepSeek's distilled models
        r"double bos|duplicate (?:leading )?bos|duplicate leading \"?<\|begin_of_text\|>|duplicate leading \"?<s>",
    )
    search = (
        "two begin_of_text tokens in input_ids",
        "[128000, 128000, 128006] double bos",
        "added a BOS token to the prompt but the prompt also starts with a BOS token",
        "apply_chat_template then tokenizer adds bos again",
        "开头两个 bos",
        "重复的 <|begin_of_text|>",
        "apply_chat_template 之后又加了一次 BOS",
        "双 BOS 推理变差",
    )

    en = Card(
        title="Two start tokens (BOS)",
        sign="input_ids begin with [128000, 128000, …] or [1, 1, …]. No error appears; answers are a little worse, in serving or already in training.",
        cause="The chat template writes the start token into the text, and the tokenizer adds one more when that text is tokenised. If only one side does it, training and serving differ at the first position, to which most attention heads look.",
        remedy="Tokenise rendered text with tokenizer(text, add_special_tokens=False), or let the template do both steps: apply_chat_template(messages, tokenize=True). llama.cpp: remove the start token from the template, or start with --override-kv tokenizer.ggml.add_bos_token=bool:false. vLLM: send messages to /v1/chat/completions instead of rendered text to /v1/completions.",
        verify="The first two ids of a training row differ from each other, and the ids of the same row are equal in training and at the server.",
        prevention="Assert input_ids[0] != input_ids[1] on the first batch, in training and in serving.",
        question="What are the first two ids of a tokenised row, in training and in serving?",
        quiz="Decoded with skip_special_tokens=True, the row looks right. What does that prove? Nothing: both start tokens are hidden.",
    )
    zh = Card(
        title="开头有两个 BOS",
        sign="input_ids 以 [128000, 128000, …] 或 [1, 1, …] 开头。不报错，只是效果略差，可能是推理端，也可能训练时就这样。",
        cause="对话模板已经把 BOS 写进文本，分词时 tokenizer 又加了一个。如果只有一边这样，训练和推理在第一个位置上就不一样，而多数注意力头都盯着这个位置。",
        remedy="渲染好的文本用 tokenizer(text, add_special_tokens=False) 分词，或者让模板一步到位：apply_chat_template(messages, tokenize=True)。llama.cpp：把模板里的 BOS 去掉，或启动时加 --override-kv tokenizer.ggml.add_bos_token=bool:false。vLLM：走 /v1/chat/completions 发 messages，别把渲染好的文本发给 /v1/completions。",
        verify="训练样本的前两个 id 不相同；同一条样本在训练和推理端逐 id 一致。",
        prevention="训练和推理都在第一个 batch 上断言 input_ids[0] != input_ids[1]。",
        question="分词后的前两个 id 是什么？训练和推理各看一次。",
        quiz="用 skip_special_tokens=True 解码看着没问题，能说明什么？什么也说明不了，两个 BOS 都被隐藏了。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(200, double_bos=range(1, 65), layout="tokenised")),
            Evidence(script=run.scripted(FACT, quote="ids = tokenizer(text).input_ids"), tokenizer=make.llama3()),
            Evidence(
                log=run.logged(
                    "llama_tokenize: Added a BOS token to the prompt as specified by the model but the prompt also starts with a BOS token. So now the final prompt starts with 2 BOS tokens."
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(200, checked=(CHECK,), layout="tokenised"), tokenizer=make.llama3()),
            Evidence(script=run.scripted(FACT), tokenizer=make.chatml()),  # a template without a start token
            Evidence(script=run.scripted(checked=(FACT,)), tokenizer=make.llama3()),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = quoted(self, seen)
        fact, writes = facts(seen, FACT, weight=5.0), _writes_bos(seen.tokenizer)
        adds = seen.tokenizer.adds_bos if seen.tokenizer is not None else None
        served = _served(seen.serving)
        if counted(seen, CHECK):
            return self.confirmed(*rows(seen, CHECK), *fact, *named)
        if named or (fact and writes and adds) or served:
            return self.confirmed(*named, *fact, *served, *(writes if fact else ()))
        held = (*clean(seen, CHECK), *script_clean(seen, FACT))
        if fact and seen.tokenizer is not None and seen.tokenizer.template and not writes:
            held = (*held, say("the template writes no start token of its own", "模板本身不写 BOS", -6.0, section="tokenizer"))
        elif fact and adds is False:
            held = (*held, say("this tokenizer adds no start token", "这个 tokenizer 不会加 BOS", -6.0, section="tokenizer"))
        elif fact:
            held = (*held, *(Exhibit(one.text, one.where, one.source, weight=2.0, section=one.section) for one in fact))
        return conclude(self, held, missing=("tokenizer", "script"))


def _writes_bos(tokenizer: Tokenizer | None) -> tuple[Exhibit, ...]:
    template = tokenizer.template if tokenizer is not None else None
    if tokenizer is None or not template or not tokenizer.bos:
        return ()
    head = template[:TEMPLATE_HEAD]
    if "bos_token" not in head and tokenizer.bos not in head:
        return ()
    source = next(iter(tokenizer.sources), "")
    told = say(
        f"the chat template writes {tokenizer.bos} itself",
        f"对话模板自己会写 {tokenizer.bos}",
        3.0,
        section="tokenizer",
        where=source,
        source=source,
    )
    return (told,)


def _served(serving: Serving | None) -> tuple[Exhibit, ...]:
    """A llama.cpp template that opens with a start token, for a model that adds one."""
    if serving is None or not serving.adds_bos or not serving.template or serving.engine not in {"ollama", "llama.cpp"}:
        return ()
    head = serving.template.lstrip()
    for token in ("<|begin_of_text|>", "<s>", "<bos>"):
        if head.startswith(token):
            where = serving.places.get("template", "")
            return (
                say(
                    f"the served template opens with {token}, and the engine adds one",
                    f"推理端模板以 {token} 开头，引擎又会加一个",
                    8.0,
                    section="serving",
                    where=where,
                ),
            )
    return ()
