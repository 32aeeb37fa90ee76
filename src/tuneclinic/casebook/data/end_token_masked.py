"""The end token is in the text and masked out of the loss."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, ends, own_labels, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, facts, say, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Tokenizer

COLLATOR = "pad-is-eos-with-lm-collator"
MASKED_SHARE = 0.5
"""A judgement, not measured: cut rows lack their end by nature, a collator takes it from nearly all."""
MASKS_BY_ID = ("datacollatorforlanguagemodeling", "datacollatorforcompletiononlylm")
"""Collators that set every label equal to the pad id to -100 (transformers, and TRL up to 0.16)."""


class EndTokenMasked(Case):
    id = "end-token-masked"
    symptoms = {"never-stops": 0.32, "parrots": 0.07}
    needs = ("script", "data", "tokenizer", "settings")
    probe = "show"
    change = {"train_on_eos": "turn"}
    search = (
        "pad_token = eos_token model never stops",
        "eos masked in labels",
        "DataCollatorForLanguageModeling masks eos",
        "fine-tuned model never emits eos",
        "pad 等于 eos 模型停不下来",
        "结束符被掩码成 -100",
        "labels 里最后的 eos 是 -100",
        "微调后不会输出结束符",
    )

    en = Card(
        title="The end token is masked in the loss",
        sign="The loss curve looks fine. The model answers, then keeps writing up to the token limit, often in a loop.",
        cause="With pad_token = eos_token, a collator that masks labels by id (DataCollatorForLanguageModeling(mlm=False), TRL's old completion-only collator) sets every eos to -100, including the one that ends the answer. The model never learns when to stop.",
        remedy='Give padding its own token: tokenizer.pad_token = "<|endoftext|>" for Qwen chat models (their eos is <|im_end|>), "<|finetune_right_pad_id|>" for Llama 3.1, otherwise tokenizer.unk_token. Or build labels yourself and pad them with DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100). axolotl: special_tokens: {pad_token: …} and train_on_eos: turn.',
        verify="In one collated batch the last label that is not -100 is the eos id in every row, and greedy answers end before the limit.",
        prevention="Check before each training that the last label that is not -100 is the end-of-turn token.",
        question="Is pad_token the same as eos_token, and which collator makes the labels?",
        quiz="pad = eos with DataCollatorForSeq2Seq and ready-made labels: a fault? No. It pads labels with -100 by position and leaves the real eos alone.",
    )
    zh = Card(
        title="结束符被掩掉，没参与训练",
        sign="loss 曲线一切正常，生成时答完了还往下写，一直写到长度上限，常常开始循环。",
        cause="pad_token = eos_token 时，按 id 掩码的 collator（DataCollatorForLanguageModeling(mlm=False)、TRL 旧版的 completion-only collator）会把所有 eos 都掩成 -100，包括回答末尾那个。模型从来没学过什么时候该停。",
        remedy='给 padding 换一个专用 token：Qwen 对话模型用 tokenizer.pad_token = "<|endoftext|>"（它的 eos 是 <|im_end|>），Llama 3.1 用 "<|finetune_right_pad_id|>"，没有现成的就用 unk_token。或者自己写好 labels，用 DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100) 补齐。axolotl：special_tokens: {pad_token: …} 加 train_on_eos: turn。',
        verify="取一个 collate 好的 batch，每条样本最后一个不是 -100 的 label 都是 eos；greedy 生成能自己停。",
        prevention="每次训练前检查：最后一个不是 -100 的 label 是不是轮次结束符。",
        question="pad_token 和 eos_token 是不是同一个？labels 是哪个 collator 生成的？",
        quiz="pad = eos，但用的是 DataCollatorForSeq2Seq 加现成的 labels，有问题吗？没有，它按位置补 -100，不会动真正的 eos。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(
                script=run.scripted(COLLATOR, "pad-is-eos", quote="DataCollatorForLanguageModeling(tokenizer, mlm=False)"),
                outputs=make.endless(),
            ),
            Evidence(
                data=make.rowset(
                    300,
                    end_token_masked=range(1, 60),
                    layout="tokenised",
                    samples=tuple(make.ids(n, [1, 20 + n, 3], [-100, 20 + n, -100]) for n in range(1, 65)),
                )
            ),
            Evidence(script=run.scripted(COLLATOR, quote="DataCollatorForCompletionOnlyLM(template, tokenizer=tokenizer)")),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(  # pad = eos, and a collator that pads labels by place
                script=run.scripted("pad-is-eos", checked=(COLLATOR,), quote="tokenizer.pad_token = tokenizer.eos_token"),
                settings=run.configured("llama-factory", template="qwen"),
                outputs=make.ending(),
            ),
            Evidence(tokenizer=make.chatml(), outputs=make.endless()),  # never stops with a pad token of its own
            Evidence(  # the masked eos ends no turn of this template
                script=run.scripted(COLLATOR, "pad-is-eos"),
                tokenizer=make.llama3(eos="<|end_of_text|>", pad="<|end_of_text|>"),
                outputs=make.ending(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        stopping = ends(seen)
        if counted(seen, "end-token-masked") and share(seen, "end-token-masked") >= MASKED_SHARE:
            return self.confirmed(*rows(seen, "end-token-masked"), *facts(seen, "pad-is-eos", weight=0.0), *stopping)
        untrained = text_of(seen, "train_on_eos") == "none"
        if untrained:
            return self.confirmed(*setting(seen, "train_on_eos", 10.0), *stopping)
        other = _other_end(seen.tokenizer)
        masking = facts(seen, COLLATOR)
        if masking and not other and not (stopping and stopping[0].weight < 0):
            return self.confirmed(*masking, *facts(seen, "pad-is-eos", weight=0.0)[:1], *_pads(seen.tokenizer, 1.0), *stopping)
        held = (*rows(seen, "end-token-masked", weight=2.0), *clean(seen, "end-token-masked"), *other)
        if not masking:
            held = (*held, *_by_files(seen))
        return conclude(self, (*held, *(stopping if held else ())), missing=("script", "data"))


def _by_files(seen: Evidence) -> tuple[Exhibit, ...]:
    """What pad, collator and framework say together; a pad token of its own speaks against."""
    tokenizer = seen.tokenizer
    equal = facts(seen, "pad-is-eos", weight=0.5)[:1] or _pads(tokenizer, 0.5)
    owned = own_labels(seen)
    if owned:
        return (*equal, *owned)
    if not equal:
        if tokenizer is None or not tokenizer.pad or not tokenizer.eos:
            return ()
        return _distinct(tokenizer)
    collator = text_of(seen, "collator")
    if collator:
        masks = any(name in collator for name in MASKS_BY_ID)
        return (*equal, *setting(seen, "collator", 3.0 if masks else -6.0))
    return equal


def _pads(tokenizer: Tokenizer | None, weight: float) -> tuple[Exhibit, ...]:
    if tokenizer is None or not tokenizer.pad or tokenizer.pad != tokenizer.eos:
        return ()
    return (_tokens(tokenizer, f"pad and eos are both {tokenizer.pad}", f"pad 和 eos 都是 {tokenizer.pad}", weight),)


def _distinct(tokenizer: Tokenizer) -> tuple[Exhibit, ...]:
    text = f"{tokenizer.pad}, eos {tokenizer.eos}"
    return (_tokens(tokenizer, f"padding has a token of its own: {text}", f"padding 有专用 token：{text}", -8.0),)


def _other_end(tokenizer: Tokenizer | None) -> tuple[Exhibit, ...]:
    """Where the template never writes the eos token, masking it hides no end of turn."""
    if tokenizer is None or not tokenizer.template or not tokenizer.eos or tokenizer.pad not in (None, tokenizer.eos):
        return ()
    if tokenizer.eos in tokenizer.template or "eos_token" in tokenizer.template:
        return ()
    text = f"the template never writes {tokenizer.eos}; its turns end with another token"
    return (_tokens(tokenizer, text, f"模板里根本不写 {tokenizer.eos}，轮次用别的 token 收尾", -6.0),)


def _tokens(tokenizer: Tokenizer, en: str, zh: str, weight: float) -> Exhibit:
    source = next(iter(tokenizer.sources), "")
    return say(en, zh, weight, section="tokenizer", where=tokenizer.places.get("pad", source), source=source)
