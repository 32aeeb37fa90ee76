"""Padding is trained."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import IGNORED, from_rows, own_labels, tokenised
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean, conclude, facts, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

FACT = "pad-in-labels"
TAIL = 3
"""Equal trained ids at a row's end from which it is padding: one end token and one newline are text."""
SHARE = 0.3
"""A judgement, not measured: padding that is trained is trained in every row but the longest."""


class PaddingInLoss(Case):
    id = "padding-in-loss"
    symptoms = {"loss-at-uniform": 0.04, "loss-near-zero": 0.06}
    needs = ("script", "data", "settings")
    probe = "show"
    change = {"ignore_pad_in_loss": True}
    search = (
        "pad tokens included in the loss",
        "labels = input_ids without masking padding",
        "loss too low because of padding",
        "model generates pad tokens",
        "padding 也算进 loss",
        "labels 没有把 pad 掩掉",
        "补齐部分参与训练 loss 偏低",
        "padding max_length labels",
    )

    en = Card(
        title="Padding is part of the loss",
        sign="The loss is far too low (or far too high at first) and depends on the longest row of the batch. The model writes pad tokens or stops at once.",
        cause="Labels were copied from padded input_ids, so every pad position is a target. Hundreds of trivial targets per row outweigh the real ones.",
        remedy="Mask them: labels[attention_mask == 0] = -100. Mask by attention_mask, not by id: if pad = eos, masking by id removes the real end token too. Or tokenise without padding and let DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100) pad. LLaMA-Factory: ignore_pad_token_for_loss: true (the default).",
        verify="The loss of a row is the same alone and next to a row three times as long.",
        prevention="Assert labels[attention_mask == 0] == -100 on the first batch.",
        question="What are the labels where attention_mask is 0?",
        quiz="A row padded to 2,048 tokens, an answer of 50, loss 0.05. Is that good? No: at least nine targets out of ten are padding.",
    )
    zh = Card(
        title="padding 算进了 loss",
        sign="loss 低得反常（也可能开头高得反常），还随 batch 里最长的样本变；模型会吐 pad，或者一上来就停。",
        cause="labels 是从补齐之后的 input_ids 直接拷的，每个 pad 位置都成了训练目标。一条样本有几百个这样的目标，真正的回答就被淹没了。",
        remedy="掩掉：labels[attention_mask == 0] = -100。要按 attention_mask，不要按 id，否则 pad = eos 时真正的结束符也没了。或者分词时不补齐，交给 DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)。LLaMA-Factory：ignore_pad_token_for_loss: true（默认值）。",
        verify="同一条样本，单独算和跟三倍长的样本拼在一起算，loss 一样。",
        prevention="第一个 batch 断言 labels[attention_mask == 0] == -100。",
        question="attention_mask 为 0 的位置，labels 是什么？",
        quiz="补齐到 2048，回答只有 50 个 token，loss 0.05，算好吗？不算，九成以上的目标是 padding。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(FACT, quote="batch['labels'] = batch['input_ids'].clone()")),
            Evidence(
                data=make.rowset(
                    64,
                    layout="tokenised",
                    samples=tuple(make.ids(n, [5, n, 7, 2, 0, 0, 0, 0], [-100, n, 7, 2, 0, 0, 0, 0]) for n in range(1, 65)),
                )
            ),
            Evidence(settings=run.configured("llama-factory", ignore_pad_in_loss=False)),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(
                script=run.scripted("pad-is-eos", checked=(FACT,)), metrics=run.ran(loss=run.falling(100, 0.9, 0.1, noise=0.01))
            ),
            Evidence(
                data=make.rowset(
                    64,
                    layout="tokenised",
                    samples=tuple(
                        make.ids(n, [5, n, 7, 2, 0, 0, 0, 0], [-100, n, 7, 2, -100, -100, -100, -100]) for n in range(1, 65)
                    ),
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        padded = _padded(seen)
        proof = facts(seen, FACT)
        counts = seen.settings is not None and seen.settings.flag("ignore_pad_in_loss") is False
        chosen = setting(seen, "ignore_pad_in_loss", 10.0) if counts else ()
        if proof or chosen or (padded and padded[0].weight > 0):
            return self.confirmed(*proof, *chosen, *padded)
        return conclude(self, (*clean(seen, FACT), *padded, *(() if padded else own_labels(seen))), missing=("script", "data"))


def _padded(seen: Evidence) -> tuple[Exhibit, ...]:
    """Rows whose tail is one id over and over: trained for the case, masked against it."""
    held = [(sample, ids, labels) for sample, ids, labels in tokenised(seen) if len(ids) > TAIL and len(set(ids[-TAIL:])) == 1]
    trained = [sample for sample, ids, labels in held if labels[-TAIL:] == ids[-TAIL:]]
    masked = [sample for sample, _, labels in held if set(labels[-TAIL:]) == {IGNORED}]
    if len(trained) >= max(TAIL, SHARE * len(tokenised(seen))):
        text = f"{len(trained)} of {len(tokenised(seen))} rows end in one repeated id that is trained"
        return (from_rows(text, f"{len(tokenised(seen))} 条里有 {len(trained)} 条把末尾一串相同 id 也训了", trained, 8.0),)
    if masked and not trained:
        return (
            from_rows(
                f"{len(masked)} padded rows have their padding masked",
                f"{len(masked)} 条补齐过的样本，补齐部分都已掩掉",
                masked,
                -5.0,
            ),
        )
    return ()
