"""Tokens were added and their embeddings are not trained."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import facts, lines, quoted, say, setting, text_of
from tuneclinic.casebook.learning._training import has_adapter
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Adapter

ADDED = (
    r"the new embeddings will be initialized from a multivariate normal",
    r"resized token embeddings from \d+ to \d+",
    r"add(ed)? \d+ (new |special )?tokens? to (the )?(tokenizer|vocab)",
    r"add tokens? .{1,80} to tokenizer's vocabulary",
    r"new tokens have been added, changed `resize_vocab` to true",
)
"""What transformers, LLaMA-Factory and others print when the embedding table grows. The general reminder that special tokens 'have
been added in the vocabulary' is printed for most stock tokenizers and proves nothing."""
EMBEDDINGS = ("embed_tokens", "lm_head", "embed", "wte", "word_embeddings")


class NewEmbeddingsUntrained(Case):
    id = "new-embeddings-untrained"
    symptoms = {"never-stops": 0.03, "template-residue": 0.03, "loss-not-falling": 0.03}
    stage = "environment"
    needs = ("log", "settings", "model", "script", "crash")
    probe = "gradient-chain"
    change = {"modules_to_save": ["embed_tokens", "lm_head"]}
    signatures = (r"please set lora_modules_to_save to .{0,80}embed_tokens",)
    search = (
        "added special tokens lora modules_to_save embed_tokens lm_head",
        "new tokens embeddings not trained with LoRA",
        "新增 token embedding 没训练",
        "加了特殊 token LoRA 学不会",
        "modules_to_save embed_tokens lm_head",
    )

    en = Card(
        title="New token embeddings are not trained",
        sign="Tokens were added (an end of turn, tool markers) and LoRA was trained, but the model never produces them: it does not stop at the end of the turn, or writes other markers. The loss on those tokens stays high.",
        cause="resize_token_embeddings fills the new rows with random or average values. LoRA leaves embed_tokens and lm_head frozen, so these rows never change, and to the model all new tokens look alike.",
        remedy='Train them: modules_to_save=["embed_tokens", "lm_head"] in LoraConfig (LLaMA-Factory: additional_target: embed_tokens,lm_head; axolotl: lora_modules_to_save), or in recent PEFT trainable_token_indices with only the new ids, which needs far less memory. Better still: use a reserved token of the base model and add none.',
        verify="After training the new rows differ from each other and from their first values, and after an answer the end-of-turn token has a probability above one half.",
        prevention="Before you add a token, decide how its row is trained. Check that the saved adapter contains those rows.",
        question="Were tokens added to the tokenizer, and are embed_tokens and lm_head in modules_to_save?",
        quiz="<|tool|> was added, LoRA on q and v. Can the model learn to write it? Hardly: its row in lm_head is frozen at the random first value.",
    )
    zh = Card(
        title="新增 token 的 embedding 没训练",
        sign="加了新 token（轮次结束符、工具标记），用 LoRA 训完模型就是不输出它们：该停不停，或写出别的标记；这些 token 上的 loss 一直很高。",
        cause="resize_token_embeddings 给新行填的是随机值或均值，而 LoRA 默认冻结 embed_tokens 和 lm_head，这些行一直停在初值，在模型眼里几个新 token 没有区别。",
        remedy='让它们参与训练：LoraConfig 里 modules_to_save=["embed_tokens", "lm_head"]（LLaMA-Factory 是 additional_target: embed_tokens,lm_head，axolotl 是 lora_modules_to_save），新版 PEFT 可以用 trainable_token_indices 只训新 id，更省显存。更好的做法是用 base 自带的保留 token，不新增。',
        verify="训练后新行彼此不同，也不同于初值；答案后面结束符的概率大于一半。",
        prevention="新增 token 之前先想清楚谁来训它那一行；检查保存的 adapter 里有没有这些行。",
        question="有没有往 tokenizer 里加 token？embed_tokens 和 lm_head 在不在 modules_to_save 里？",
        quiz="加了 <|tool|>，LoRA 只训 q、v，模型能学会写它吗？基本不能：lm_head 里它那一行冻结在随机初值。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "The new embeddings will be initialized from a multivariate normal distribution that has old embeddings' mean and covariance."
                ),
                settings=make.configured(method="lora", lora_rank=16, target_modules="q_proj,v_proj"),
            ),
            Evidence(
                crash=make.crashed(
                    "ValueError",
                    "Please set lora_modules_to_save to [`embed_tokens`, `lm_head`] when using an adapter and changing the special tokens.",
                ),
            ),
            Evidence(
                script=make.scripted("embeddings-not-saved", quote='tokenizer.add_special_tokens({"eos_token": "<|end|>"})'),
                settings=make.configured(method="lora", lora_rank=8),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # tokens were added, and their rows are trained
                log=make.logged("Resized token embeddings from 32000 to 32064."),
                settings=make.configured(method="lora", lora_rank=16, modules_to_save="embed_tokens,lm_head"),
            ),
            Evidence(  # the reminder that stock tokenizers print
                log=make.logged(
                    "Special tokens have been added in the vocabulary, make sure the associated word embeddings are fine-tuned or trained."
                ),
                settings=make.configured(method="lora", lora_rank=16),
                model=make.modelled(adapter=Adapter(rank=16)),
            ),
            Evidence(  # tokens were added in full tuning
                log=make.logged("Resized token embeddings from 32000 to 32064."),
                settings=make.configured(method="full", learning_rate=1e-5),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        refused = quoted(self, seen)
        if refused:
            return self.confirmed(*refused)
        added, unsaved = lines(seen, *ADDED, weight=4.0), facts(seen, "embeddings-not-saved", weight=6.0)
        saved = _saved(seen)
        if saved:
            return self.ruled_out(*saved)
        adapter = has_adapter(seen)
        if adapter is False:
            return self.ruled_out(
                say("all weights are trained, embeddings too", "全参训练，embedding 也在训", -9.0, section="settings")
            )
        if not added and not unsaved:
            if seen.log is not None and adapter:
                return self.ruled_out(
                    say("the log does not mention added tokens", "日志里没有新增 token 的记录", -2.0, section="log")
                )
            return self.not_checked("log", "script")
        if adapter is None:
            return self.not_checked("settings", exhibits=(*added, *unsaved))
        frozen = say(
            "an adapter is trained and modules_to_save contains no embedding",
            "训的是 adapter，modules_to_save 里没有 embedding",
            4.0,
            section="settings",
        )
        return self.confirmed(*added, *unsaved, frozen, *setting(seen, "target_modules"))


def _saved(seen: Evidence) -> tuple[Exhibit, ...]:
    """Where the configuration trains the embeddings beside the adapter."""
    adapter = seen.model.adapter if seen.model is not None else None
    listed = ",".join(adapter.modules_to_save) if adapter is not None else ""
    given = text_of(seen, "modules_to_save")
    if any(name in given for name in EMBEDDINGS):
        return setting(seen, "modules_to_save", -9.0)
    targets = text_of(seen, "target_modules")
    if any(name in listed for name in EMBEDDINGS) or any(name in targets for name in EMBEDDINGS):
        return (
            say(
                f"the adapter covers the embeddings ({listed or targets})",
                f"adapter 包含 embedding（{listed or targets}）",
                -9.0,
                section="model",
            ),
        )
    return ()
