"""The tokenizer has no padding token."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import lines, quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class NoPadToken(Case):
    id = "no-pad-token"
    symptoms = {"crashes": 0.05}
    needs = ("crash", "log", "tokenizer")
    probe = "show"
    signatures = (
        r"asking to pad but the tokenizer does not have a padding token",
        r"cannot handle batch sizes > 1 if no padding token is defined",
        r"(?:tokenizer|model) (?:does not|doesn't) have a (?:pad|padding)[ _]token",
        r"please (?:set|select) a (?:pad|padding)[ _]token",
        r"pad_token_id.{0,30}(?:is not|must be) (?:set|defined)",
    )
    search = (
        "Asking to pad but the tokenizer does not have a padding token",
        "Cannot handle batch sizes > 1 if no padding token is defined",
        "tokenizer.pad_token is None",
        "ValueError please select a token to use as pad_token",
        "tokenizer 没有 pad_token",
        "pad_token 是 None 报错",
        "batch size 大于 1 报没有 padding token",
        "Llama 没有 pad token",
    )

    en = Card(
        title="The tokenizer has no padding token",
        sign="ValueError: 'Asking to pad but the tokenizer does not have a padding token'; a classification or reward model says 'Cannot handle batch sizes > 1 if no padding token is defined'.",
        cause="Llama, Mistral, GPT-2 and others come without a pad token. A batch of rows of different lengths needs one; a sequence classifier also needs it in model.config to find the last real token.",
        remedy='Choose a token that is in the vocabulary and never in your texts: tokenizer.pad_token = "<|finetune_right_pad_id|>" (Llama 3.1), tokenizer.unk_token (Llama 2), "<|endoftext|>" (Qwen chat models). Then model.config.pad_token_id = tokenizer.pad_token_id. axolotl: special_tokens: {pad_token: "…"}. Do not use eos together with a collator that masks by id.',
        verify="A batch of two rows of different length goes through, and the padded ids are not eos.",
        prevention="Print pad, eos and bos with their ids at the start of every training.",
        question="What is tokenizer.pad_token, and what is model.config.pad_token_id?",
        quiz="Is add_special_tokens({'pad_token': '[PAD]'}) enough? No: the new id also needs model.resize_token_embeddings(len(tokenizer)).",
    )
    zh = Card(
        title="tokenizer 缺 pad token",
        sign="ValueError: Asking to pad but the tokenizer does not have a padding token；分类模型、奖励模型则报 Cannot handle batch sizes > 1 if no padding token is defined。",
        cause="Llama、Mistral、GPT-2 等发布时就没有 pad token。长短不一的样本要拼成 batch 就必须有；序列分类模型还要靠 model.config 里的 pad_token_id 找最后一个真实 token。",
        remedy='选一个词表里有、正文里不会出现的 token：Llama 3.1 用 tokenizer.pad_token = "<|finetune_right_pad_id|>"，Llama 2 用 unk_token，Qwen 对话模型用 "<|endoftext|>"；再设 model.config.pad_token_id = tokenizer.pad_token_id。axolotl 写 special_tokens: {pad_token: "…"}。collator 如果按 id 掩码，就别用 eos 当 pad。',
        verify="两条长度不同的样本能拼成 batch，补上的 id 不是 eos。",
        prevention="每次开训打印 pad、eos、bos 及其 id。",
        question="tokenizer.pad_token 是什么？model.config.pad_token_id 呢？",
        quiz="add_special_tokens({'pad_token': '[PAD]'}) 就够了吗？不够，新 id 还要 model.resize_token_embeddings(len(tokenizer))。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                crash=run.crashed(
                    "ValueError",
                    "Asking to pad but the tokenizer does not have a padding token. Please select a token to use as `pad_token`",
                )
            ),
            Evidence(
                crash=run.crashed("ValueError", "Cannot handle batch sizes > 1 if no padding token is defined.", phase="forward")
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(crash=run.crashed("IndexError", "index out of range in self"), tokenizer=make.chatml()),
            Evidence(tokenizer=make.llama3()),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = (*quoted(self, Evidence(crash=seen.crash)), *lines(Evidence(log=seen.log), *self.signatures[:2], weight=8.0))
        if named:
            return self.confirmed(*named)
        tokenizer = seen.tokenizer
        if tokenizer is not None and tokenizer.pad:
            source = next(iter(tokenizer.sources), "")
            return self.ruled_out(
                say(
                    f"the pad token is {tokenizer.pad}",
                    f"pad token 是 {tokenizer.pad}",
                    -6.0,
                    section="tokenizer",
                    where=source,
                    source=source,
                )
            )
        if seen.crash is not None and seen.crash.cause is not None:
            return self.ruled_out(
                say(
                    "the error is not about padding",
                    "报错与 padding 无关",
                    -4.0,
                    section="crash",
                    where=seen.crash.cause.where,
                )
            )
        return self.not_checked("crash", "tokenizer")
