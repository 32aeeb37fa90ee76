"""The label mask lies on the wrong part of the sample."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import IGNORED, clean, counted, from_rows, rows, samples, share, tokenised
from tuneclinic.casebook.data.turn_end_differs_from_eos import TURN_ENDS
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

TRAINED_SHARE = 0.05
"""Rows that train their prompt in a set that masks it elsewhere; single ones have an empty prompt."""
INVERTED_SHARE = 0.5
"""A judgement, not measured: an inverted mask inverts every row, a stray one few."""
MULTI_TURN_SHARE = 0.2
"""A judgement, not measured: conversations of several turns before "one turn trained" is a habit of the mask."""
FEWEST_ROWS = 5
"""Conversations that must all train one stretch: in a few, the others may be cut or empty."""
ASKING = ("user", "human", "system")


class LabelMaskMisplaced(Case):
    id = "label-mask-misplaced"
    symptoms = {"loss-at-uniform": 0.06, "loss-not-falling": 0.05, "template-residue": 0.05}
    needs = ("data", "settings")
    probe = "show"
    change = {"train_on_prompt": False, "mask_history": False, "assistant_only_loss": True}
    search = (
        "loss computed on the prompt",
        "train_on_inputs true",
        "only the last turn is trained in multi-turn data",
        "labels mask the answer instead of the prompt",
        "prompt 也参与了 loss",
        "多轮只训练最后一轮",
        "掩码位置错了",
        "标签掩码 训练了提问部分",
    )

    en = Card(
        title="The label mask covers the wrong tokens",
        sign="The model writes questions, repeats the prompt or leaves template headers in its answers; or the loss stalls a little below ln(V). The number of trained tokens does not match the length of the answers.",
        cause="One mask decides which tokens are trained, and it is easy to get wrong: prompt and answer swapped, an offset counted without the start token, only the first or last turn kept, the header of the next turn included.",
        remedy="Print one row with its mask and compare it with the answer. LLaMA-Factory: train_on_prompt: false and mask_history: false. axolotl: train_on_inputs: false, and roles_to_train: [assistant] in the dataset entry. TRL: assistant_only_loss=True with a template that has {% generation %} marks, or prompt/completion data.",
        verify="The trained tokens of three rows decode to exactly the answers and their end tokens, in every turn.",
        prevention="Keep a unit test of the mask on a two-turn sample, and look at three samples after every change to the data pipeline.",
        question="When you decode only the labels that are not -100 of one row, what do you read?",
        quiz="The loss stalls at 5.5 with ln(V) = 6.2. Is that a uniform guess? No, it is the token marginal: labels do not belong to their inputs.",
    )
    zh = Card(
        title="标签掩码位置不对",
        sign="模型学会了写问题、复读 prompt，或者回答里带着模板头；也可能 loss 停在比 ln(V) 略低处。参与训练的 token 数和回答长度对不上。",
        cause="哪些 token 参与训练全由一个掩码决定，很容易弄错：prompt 和回答弄反、算偏移时漏了 BOS、多轮只留了第一轮或最后一轮、把下一轮的头也算了进来。",
        remedy="把一条样本连掩码一起打印出来，和回答对照。LLaMA-Factory：train_on_prompt: false、mask_history: false。axolotl：train_on_inputs: false，数据集条目里写 roles_to_train: [assistant]。TRL：assistant_only_loss=True 配带 {% generation %} 的模板，或用 prompt/completion 数据。",
        verify="三条样本里参与训练的 token 解码出来，正好是每一轮的回答加结束符，不多不少。",
        prevention="用两轮对话的样本给掩码写单元测试；数据流水线每改一次，就看三条样本。",
        question="把一条样本里不是 -100 的 labels 单独解码，读到的是什么？",
        quiz="ln(V) = 6.2，loss 停在 5.5，是均匀瞎猜吗？不是，是 token 的边际分布：labels 和输入对不上。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(300, prompt_trained=range(1, 60), layout="tokenised")),
            Evidence(settings=run.configured("axolotl", roles_to_train=["user", "assistant"]), data=make.rowset(300)),
            Evidence(
                data=make.rowset(
                    40,
                    layout="tokenised",
                    samples=tuple(make.ids(n, [5, 6 + n, 7, 8, 9, 2], [5, 6 + n, 7, -100, -100, -100]) for n in range(1, 41)),
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(300, checked=("prompt-trained", "all-masked"), layout="tokenised")),
            Evidence(
                data=make.rowset(
                    40,
                    layout="tokenised",
                    samples=tuple(make.ids(n, [5, 6, 7, 8, 9, 2], [-100, -100, -100, 8, 9, 2]) for n in range(1, 41)),
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        inverted = _inverted(seen)
        if inverted and inverted[0].weight > 0:
            return self.confirmed(*inverted)
        if counted(seen, "prompt-trained") and share(seen, "prompt-trained") >= TRAINED_SHARE:
            return self.confirmed(*rows(seen, "prompt-trained"))
        roles = text_of(seen, "roles_to_train")
        if any(role in roles for role in ASKING):
            return self.confirmed(*setting(seen, "roles_to_train", 10.0), change={"roles_to_train": ["assistant"]})
        once = _one_span(seen)
        if once:
            return self.suspected(*once, change={"mask_history": False})
        held = (
            *rows(seen, "prompt-trained", weight=1.0),
            *clean(seen, "prompt-trained"),
            *inverted,
            *_chosen(seen),
        )
        if not held:
            return self.not_checked("data")
        return conclude(self, held, missing=("data",))


def _chosen(seen: Evidence) -> tuple[Exhibit, ...]:
    """Settings that move the mask: a choice that is sometimes meant."""
    settings = seen.settings
    if settings is None:
        return ()
    found: tuple[Exhibit, ...] = ()
    if settings.flag("train_on_prompt"):
        found = setting(seen, "train_on_prompt", 3.0)
    several = [sample for sample in samples(seen) if len(sample.answers) > 1]
    if settings.flag("mask_history") and len(several) >= MULTI_TURN_SHARE * max(1, len(samples(seen))) and several:
        found = (*found, *setting(seen, "mask_history", 3.0))
    return found


def _inverted(seen: Evidence) -> tuple[Exhibit, ...]:
    """Rows that train their beginning and mask their end, padding aside."""
    held = tokenised(seen)
    pad = seen.tokenizer.ids.get(seen.tokenizer.pad or "") if seen.tokenizer is not None else None
    masked = [(sample, ids, labels) for sample, ids, labels in held if IGNORED in labels and any(label >= 0 for label in labels)]
    if not masked:
        return ()
    wrong = []
    for sample, ids, labels in masked:
        last = max((index for index, token in enumerate(ids) if token != pad), default=0)
        trained = [index for index, label in enumerate(labels) if label >= 0]
        if trained[0] <= 1 and trained[-1] < last - 1 and ids[trained[-1] + 1] != ids[last]:
            wrong.append(sample)
    if len(wrong) >= INVERTED_SHARE * len(held):
        return (
            from_rows(
                f"{len(wrong)} of {len(held)} rows train the beginning and mask the end",
                f"{len(held)} 条里有 {len(wrong)} 条训练了开头、掩掉了结尾",
                wrong,
                10.0,
            ),
        )
    if wrong:
        return ()
    total = len(masked)
    return (
        from_rows(
            f"{total} tokenised rows mask the beginning and train the end",
            f"{total} 条分词样本都是掩开头、训结尾",
            (one[0] for one in masked),
            -5.0,
        ),
    )


def _one_span(seen: Evidence) -> tuple[Exhibit, ...]:
    """Conversations of several answers of which all rows train one stretch only; a choice where `mask_history` makes it."""
    if seen.settings is not None and seen.settings.flag("mask_history"):
        return ()
    tokenizer = seen.tokenizer
    ends = {tokenizer.ids.get(text) for text in (tokenizer.eos, *TURN_ENDS) if text} if tokenizer is not None else set()
    several, once = [], []
    for sample, ids, labels in tokenised(seen):
        # a turn each of user and assistant closes with the end token in templates that close every turn
        answers = len(sample.answers) or sum(token in ends for token in ids) // 2
        if answers < 2 or IGNORED not in labels:
            continue
        several.append(sample)
        starts = sum(label >= 0 and (at == 0 or labels[at - 1] == IGNORED) for at, label in enumerate(labels))
        if starts == 1:
            once.append(sample)
    if len(once) < FEWEST_ROWS or len(once) < len(several):
        return ()
    return (
        from_rows(
            f"{len(once)} rows hold several answers and train one stretch only",
            f"{len(once)} 条多轮样本都只训练了一段",
            once,
            6.0,
        ),
    )
