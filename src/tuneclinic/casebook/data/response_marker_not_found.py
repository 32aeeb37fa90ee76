"""The response marker is not found in the tokenised samples."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import line_count, samples
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, lines, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit, from_fact

WARNINGS = (r"could not find (?:the )?(?:response|instruction) key", r"this instance will be ignored in loss calculation")
MANY = 5
"""A row cut before its answer gives this warning too; from five on it is the marker."""
FACT = "response-template-collator"


class ResponseMarkerNotFound(Case):
    id = "response-marker-not-found"
    symptoms = {"crashes": 0.06}
    explains = ("all-labels-masked", "batch-without-targets")
    needs = ("log", "crash", "script")
    probe = "show"
    signatures = WARNINGS
    search = (
        "Could not find response key",
        "This instance will be ignored in loss calculation",
        "DataCollatorForCompletionOnlyLM response_template not found",
        "train_on_responses_only wrong response_part",
        "response_template 找不到",
        "找不到 response key 警告",
        "DataCollatorForCompletionOnlyLM 全部被忽略",
        "回答标记对不上模板",
    )

    en = Card(
        title="The response marker is not in the samples",
        sign="'Could not find response key [22559, 25, 220] in the following instance … will be ignored in loss calculation', for one sample after another; then the loss is 0.0 or NaN.",
        cause="The collator searches for the marker's token ids. The same string gives other ids alone than in context (a leading newline, a trailing space that merges with the next word), or the template writes another header than the script names.",
        remedy="In current TRL drop DataCollatorForCompletionOnlyLM (it was removed) and use prompt/completion data with completion_only_loss=True. In older TRL pass ids taken from context, without the trailing space: tokenizer.encode('\\n### Answer:', add_special_tokens=False)[2:]; [2:] fits Llama-2 tokenizers, check it for yours. With a chat template use its own header: response_part='<|im_start|>assistant\\n'.",
        verify="No warning in the first 100 steps, and the unmasked labels of a batch decode to the answers.",
        prevention="Run the collator over 50 rows before training and assert that each row keeps a label that is not -100.",
        question="Which marker string does the script use, and does the rendered text contain it exactly, including spaces and newlines?",
        quiz="The text contains '### Answer: ', yet the marker is not found. Why? Its last space is tokenised together with the next word.",
    )
    zh = Card(
        title="找不到 response marker",
        sign="一条接一条地警告 Could not find response key [22559, 25, 220] in the following instance … will be ignored in loss calculation，随后 loss 变成 0.0 或 NaN。",
        cause="collator 找的是 marker 的 token id。同一个字符串单独分词和放在上下文里分词，结果不一样（开头的换行、末尾的空格会和后面的词并成一个 token）；或者模板写出来的开头根本不是脚本里填的那个。",
        remedy="新版 TRL 已经删掉 DataCollatorForCompletionOnlyLM，直接用 prompt/completion 数据加 completion_only_loss=True。旧版要从上下文里取 id，末尾不带空格：tokenizer.encode('\\n### Answer:', add_special_tokens=False)[2:]，其中 [2:] 适用于 Llama-2 的 tokenizer，别的要自己核对。用对话模板时填模板自己的开头：response_part='<|im_start|>assistant\\n'。",
        verify="前 100 步不再有警告；一个 batch 里没被掩的 labels 解码出来就是回答。",
        prevention="训练前用 collator 过 50 条样本，断言每条都还有不是 -100 的 label。",
        question="脚本里填的 marker 是什么？它在渲染文本里是不是一字不差地出现，包括空格和换行？",
        quiz="文本里明明有“### Answer: ”，为什么找不到？末尾那个空格和后面的词并成了一个 token。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                log=run.logged(
                    *(
                        f"UserWarning: Could not find response key [22559, 25, 220] in the following instance: {n}"
                        for n in range(6)
                    ),
                ),
                script=run.scripted(FACT, quote="DataCollatorForCompletionOnlyLM('\\n### Answer: ', tokenizer=tokenizer)"),
            ),
            Evidence(crash=run.crashed("RuntimeError", "Could not find response key [21017, 18261] in token IDs tensor([1, 2])")),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(crash=run.crashed("RuntimeError", "CUDA error: device-side assert triggered")),
            Evidence(
                log=run.logged("***** Running training *****", "{'loss': 1.2}"),
                metrics=run.ran(loss=run.falling(100)),
                script=run.scripted(FACT),
                data=make.rowset(50),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        crashed = lines(Evidence(crash=seen.crash), *WARNINGS, weight=10.0)
        warned = lines(Evidence(log=seen.log), *WARNINGS, weight=4.0)
        many = line_count(seen, *WARNINGS) >= MANY
        form = shape_of(seen)
        nothing_left = form.zero_from is not None or form.masked_from is not None
        absent = _absent(seen)
        if crashed or (warned and (many or nothing_left)):
            return self.confirmed(*crashed, *warned[:2], *absent)
        if absent and absent[0].weight > 0:
            return self.confirmed(*absent, *warned)
        if warned:
            return conclude(self, warned[:2], missing=("script", "data"))
        if seen.crash is not None and seen.crash.cause is not None:
            return self.ruled_out(say("the error names something else", "报错说的是别的问题", -6.0, section="crash"))
        used = seen.script.fact(FACT) if seen.script is not None else None
        if (seen.log is not None and form.points > 5 and not nothing_left) or (absent and absent[0].weight < 0):
            told = say("no such warning in the log", "日志里没有这类警告", -4.0, section="log") if seen.log is not None else None
            return conclude(self, (*absent, *((told,) if told else ())), missing=("log",))
        return self.not_checked("log", exhibits=(from_fact(used),) if used else ())


def _absent(seen: Evidence) -> tuple[Exhibit, ...]:
    """Whether the marker that the script names stands in the rendered rows."""
    fact = seen.script.fact(FACT) if seen.script is not None else None
    texts = [sample.rendered for sample in samples(seen) if sample.rendered]
    if fact is None or len(fact.detail.strip()) < 3 or not texts:
        return ()
    missing = sum(fact.detail not in text for text in texts)
    if missing == len(texts):
        told = say(
            f"{fact.detail!r} occurs in none of {len(texts)} rendered rows",
            f"{len(texts)} 条渲染文本里都没有 {fact.detail!r}",
            8.0,
            section="script",
            where=fact.where,
            source=fact.source,
        )
        return (told,)
    if missing or fact.detail != fact.detail.strip():
        return ()
    return (say(f"{fact.detail!r} occurs in every rendered row", f"每条渲染文本里都有 {fact.detail!r}", -3.0, section="script"),)
