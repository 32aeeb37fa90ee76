"""The model returns no loss."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import facts, quoted, say, shape_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class NoLossReturned(Case):
    id = "no-loss-returned"
    symptoms = {"crashes": 0.05}
    stage = "data"
    needs = ("crash", "log", "script")
    probe = "show"
    signatures = (
        r"the model did not return a loss from the inputs",
        r"keyerror: '?loss'?\s*$",
        r"'nonetype' object has no attribute 'backward'",
        r"unsupported operand type\(s\) for /: 'nonetype' and 'int'",
    )
    search = (
        "The model did not return a loss from the inputs, only the following keys: logits",
        "NoneType object has no attribute backward",
        "模型没有返回 loss",
        "did not return a loss 报错",
    )

    en = Card(
        title="The model returns no loss",
        sign="The first step stops with 'The model did not return a loss from the inputs, only the following keys: logits'.",
        cause="The batch has no labels, or labels is None. The collator pads but creates no labels, or the label column has another name and was dropped as unused, or the model class has no head with a loss.",
        remedy="Create labels in the collator (for a language model DataCollatorForLanguageModeling(tokenizer, mlm=False), or a completion-only mask), or rename the column to labels. If you use your own column names, set label_names and remove_unused_columns=False. Load with AutoModelForCausalLM, not AutoModel.",
        verify="next(iter(trainer.get_train_dataloader())) has a 'labels' key, and model(**batch).loss is a number.",
        prevention="Before you submit the job, take one batch from the real train dataloader and run one forward pass.",
        question="Which keys does one batch from the train dataloader have, and is labels among them?",
        quiz="The error lists 'input_ids, attention_mask, labels' as received, and still there is no loss. How? labels can be None: the collator created the key from a column that does not exist.",
    )
    zh = Card(
        title="模型没有返回 loss",
        sign="第一步就停在 The model did not return a loss from the inputs, only the following keys: logits。",
        cause="batch 里没有 labels，或者 labels 是 None：collator 只补 pad 不造标签；标签列名不对，被当成无用列删了；或者模型类本身没有带 loss 的头。",
        remedy="让 collator 生成 labels（语言模型用 DataCollatorForLanguageModeling(tokenizer, mlm=False)，或只训回答的掩码），或把列名改成 labels。用自定义列名时设置 label_names 和 remove_unused_columns=False；模型用 AutoModelForCausalLM 加载，不要用 AutoModel。",
        verify="next(iter(trainer.get_train_dataloader())) 里有 labels，model(**batch).loss 是个数。",
        prevention="提交任务之前，先从真实的训练 dataloader 取一个 batch 跑一次前向。",
        question="从训练 dataloader 取一个 batch，有哪些键？有没有 labels？",
        quiz="报错里说收到了 input_ids、attention_mask、labels，为什么还是没有 loss？labels 可能是 None：collator 从一个不存在的列造出了这个键。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed(
                    "ValueError",
                    "The model did not return a loss from the inputs, only the following keys: logits. For reference, the inputs it received are input_ids,attention_mask.",
                )
            ),
            Evidence(
                script=make.scripted("no-loss-returned", quote="outputs = model(input_ids=ids, attention_mask=mask)"),
                crash=make.crashed("AttributeError", "'NoneType' object has no attribute 'backward'"),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(crash=make.crashed("KeyError", "'loss_mask'")),  # another key is missing
            Evidence(script=make.scripted("no-loss-returned"), metrics=make.ran(loss=make.falling())),  # there is a loss
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if shape_of(seen).points:
            return self.ruled_out(say("a training loss was logged", "日志里有训练 loss", -9.0))
        proofs, shown = quoted(self, seen), facts(seen, "no-loss-returned")
        if proofs or shown:
            return self.confirmed(*proofs, *shown)
        if seen.crash is not None and seen.crash.cause is not None:
            return self.ruled_out(
                say("the error names another cause", "报错说的是别的原因", -6.0, section="crash", where=seen.crash.cause.where)
            )
        return self.not_checked("crash")
