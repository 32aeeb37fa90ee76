"""Rows lack the start token that the model has seen in front of every text."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import facts, say, shape_of, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Data, Sample, Tokenizer

FACT = "start-token-switched-off"
NEEDS_IT = ("gemma", "recurrentgemma", "paligemma")
"""Families whose loss is known to rise by several nats without it (measured in public threads on Gemma 7B); Llama and Mistral lose little."""
HIGH_FIRST = 5.0
"""First loss, in nats, above that of every published run of fine-tuning a pretrained model (at most 3.8)."""
ALL_ROWS = 0.95
"""The token is added to all rows or to none; a row in twenty may be cut from the left."""


def _rows(*first: int) -> Data:
    held = tuple(Sample(number, "train.jsonl", input_ids=(token, 106, 1645, 108)) for number, token in enumerate(first, 1))
    return Data("tokenised", len(held), len(held), held)


class StartTokenMissing(Case):
    id = "start-token-missing"
    symptoms = {"loss-not-falling": 0.02, "worse-in-inference": 0.015}
    needs = ("tokenizer", "data", "script")
    probe = "show"
    search = (
        "gemma loss very high at the start",
        "missing bos token gemma fine-tuning",
        "add_bos_token false loss too high",
        "gemma 微调 loss 特别高",
        "没有加 bos token",
        "add_bos_token=False loss 偏高",
    )

    en = Card(
        title="The start token (BOS) is missing",
        sign="The first loss of a pretrained model is far above the usual 1 to 3 (Gemma: 8 and more) and falls slowly, while everything else looks right.",
        cause="In pretraining the model saw its start token before every text, and Gemma's attention depends on it. The rows were tokenised without it: add_bos_token is off, add_special_tokens=False was used on text without its own start token, or the template does not write it. Packing can drop it too.",
        remedy="Let exactly one side add it: tokenizer.add_bos_token = True for plain text, or a chat template that begins with {{ bos_token }} and is tokenised with add_special_tokens=False. LLaMA-Factory: the model's own template (template: gemma); axolotl: chat_template: tokenizer_default. Make sure that serving does the same.",
        verify="The first id of every row is tokenizer.bos_token_id, and before training the loss on your rows is 1 to 3.",
        prevention="Assert on the first batch that column 0 is the start token, if the model has one, and that column 1 is not.",
        question="What is the first id of a tokenised row, and what is tokenizer.bos_token_id?",
        quiz="Gemma 7B starts at a loss of 22, Llama 2 on the same rows at 1.9. What do you look at first? The first id of a row: without <bos> Gemma predicts badly.",
    )
    zh = Card(
        title="缺少 BOS（起始 token）",
        sign="预训练模型的第一个 loss 远高于常见的 1～3（Gemma 会到 8 以上），降得慢，其他地方又看不出问题。",
        cause="预训练时每段文本前面都有 BOS，Gemma 的注意力尤其依赖它。样本分词时没有加上：关了 add_bos_token、对本身不带 BOS 的文本用了 add_special_tokens=False，或者模板里没写；packing 也可能把它弄丢。",
        remedy="只让一方加、且只加一次：纯文本用 tokenizer.add_bos_token = True；对话模板以 {{ bos_token }} 开头，分词时 add_special_tokens=False。LLaMA-Factory 用模型自己的模板（template: gemma），axolotl 用 chat_template: tokenizer_default。推理端也要一致。",
        verify="每条样本的第一个 id 都是 tokenizer.bos_token_id；不训练直接算自己的样本，loss 在 1～3。",
        prevention="第一个 batch 断言：模型有 BOS 时第 0 列是它，第 1 列不是。",
        question="分词后样本的第一个 id 是多少？tokenizer.bos_token_id 又是多少？",
        quiz="同一份数据 Llama 2 从 1.9 起步，Gemma 7B 从 22 起步，先看什么？看样本的第一个 id：没有 <bos>，Gemma 的预测会差很多。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                settings=run.configured(model="google/gemma-7b"),
                tokenizer=Tokenizer(bos="<bos>", adds_bos=False, sources=("tokenizer_config.json",)),
                metrics=run.ran(loss=run.falling(40, 22.0, 8.0)),
            ),
            Evidence(
                settings=run.configured(model="google/gemma-2-2b"),
                tokenizer=Tokenizer(bos="<bos>", ids={"<bos>": 2}, sources=("tokenizer_config.json",)),
                data=_rows(106, 2364, 9001, 1, 77),
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(  # as high, and the start token is there: something else
                settings=run.configured(model="google/gemma-7b"),
                tokenizer=Tokenizer(bos="<bos>", ids={"<bos>": 2}, sources=("tokenizer_config.json",)),
                data=_rows(2, 2, 2, 2, 2),
                metrics=run.ran(loss=run.falling(40, 22.0, 8.0)),
            ),
            Evidence(  # switched off in the tokenizer, written by the template
                settings=run.configured(model="google/gemma-2-2b-it"),
                tokenizer=Tokenizer(bos="<bos>", adds_bos=False, template="{{ bos_token }}<start_of_turn>", sources=("t.json",)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if not _needs_it(seen):
            return self.not_checked("tokenizer", "data")
        rows = _first_ids(seen)
        if rows is not None:
            return self.confirmed(rows) if rows.weight > 0 else self.ruled_out(rows)
        tokenizer = seen.tokenizer
        template = tokenizer.template or "" if tokenizer is not None else ""
        if tokenizer is not None and template and ("bos_token" in template or (tokenizer.bos and tokenizer.bos in template)):
            return self.ruled_out(say("the chat template writes the start token", "对话模板会写 BOS", -6.0, section="tokenizer"))
        off = facts(seen, FACT, weight=4.0) or _switched_off(tokenizer)
        if not off:
            return self.not_checked("tokenizer", "data")
        high = _high(seen)
        return self.confirmed(*off, *high) if high else self.suspected(*off, missing=("metrics", "data"))


def _needs_it(seen: Evidence) -> bool:
    family = (seen.model.family or seen.model.name or "") if seen.model is not None else ""
    return any(name in f"{family} {text_of(seen, 'model')}".lower() for name in NEEDS_IT)


def _first_ids(seen: Evidence) -> Exhibit | None:
    """Whether tokenised rows begin with the start token: nearly all for the case, or against; None where it does not show."""
    start = seen.tokenizer.ids.get(seen.tokenizer.bos or "") if seen.tokenizer is not None else None
    rows = [sample for sample in (seen.data.samples if seen.data is not None else ()) if sample.input_ids]
    if start is None or len(rows) < 3:
        return None
    lacking = [sample for sample in rows if sample.input_ids and start not in sample.input_ids]
    text = f"{len(lacking)} of {len(rows)} tokenised rows hold no start token ({start})"
    held = f"{len(rows)} 条分词后的样本里有 {len(lacking)} 条没有 BOS（{start}）"
    where = (lacking or rows)[0].where
    weight = 8.0 if len(lacking) >= ALL_ROWS * len(rows) else -6.0
    return say(text, held, weight, section="data", where=where)


def _switched_off(tokenizer: Tokenizer | None) -> tuple[Exhibit, ...]:
    if tokenizer is None or tokenizer.adds_bos is not False:
        return ()
    source = next(iter(tokenizer.sources), "")
    return (say("add_bos_token: false", "add_bos_token: false", 4.0, section="tokenizer", where=source, source=source),)


def _high(seen: Evidence) -> tuple[Exhibit, ...]:
    form = shape_of(seen)
    if form.first is None or form.first < HIGH_FIRST or form.kind not in {"", "causal-lm"}:
        return ()
    told = f"the first loss is {form.first:.3g}, a pretrained model starts at 1 to 4"
    return (say(told, f"第一个 loss 是 {form.first:.3g}，预训练模型一般从 1～4 起步", 4.0),)
