"""The pretrained weights were not loaded."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import conclude, facts, lines, say, shape_of, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.patterns import pattern

NEAR_UNIFORM = 0.6
"""Nats around ln(vocabulary) within which a model is untrained: observed first losses of fresh models lie 0.24 to 0.47 above it."""
NEW = r"newly initialized"
HEAD_ONLY = pattern(
    r"\b(score|classifier|pooler|qa_outputs|pre_classifier|value_head|v_head|regression|reward_head)\b", re.IGNORECASE
)
BODY = pattern(r"\b(layers?|h|blocks?|encoder|decoder|embed_tokens|wte|self_attn|attention|mlp)\.", re.IGNORECASE)


class WeightsNotLoaded(Case):
    id = "weights-not-loaded"
    symptoms = {"loss-at-uniform": 0.04}
    stage = "environment"
    needs = ("metrics", "log", "script")
    probe = "loss-check"
    signatures = (r"some weights of .{0,200}newly initialized", r"were not initialized from the model checkpoint")
    search = (
        "Some weights were not initialized from the model checkpoint and are newly initialized",
        "first loss is 11 on a pretrained model",
        "loss starts at ln vocab on pretrained model",
        "预训练权重没加载",
        "loss 从 10 以上开始 预训练模型",
        "权重随机初始化",
    )

    en = Card(
        title="The pretrained weights were not loaded",
        sign="The first loss of a 'pretrained' model is about ln(vocabulary): 10.4 for 32,000 tokens, 11.9 for 152,000. The log says that layers were newly initialized.",
        cause="The model was built from its configuration only (from_config), the names in the checkpoint do not match (another prefix, a wrapped or compiled model), or an empty or partitioned file was loaded with strict=False. The loader prints a warning and continues with random weights.",
        remedy="Load with AutoModelForCausalLM.from_pretrained(path) and read the warning. Remove the extra prefix (module., _orig_mod., model.) from the keys, or use the folder that holds the complete weights.",
        verify="No layer of the model body is listed as 'newly initialized', and before training the loss on plain text is 2 to 3, far below ln(vocabulary).",
        prevention="Before training, assert that the loss of the first batch is at least 2 nats below ln(vocabulary).",
        question="What is the very first loss, and does the log list weights as newly initialized?",
        quiz="A reward model logs 'Some weights … newly initialized: score.weight'. Is that a fault? No, this head is new by design. If it listed 'layers.0.self_attn…', it would be one.",
    )
    zh = Card(
        title="预训练权重没有加载进来",
        sign="说是预训练模型，第一个 loss 却约等于 ln(词表)：词表 3.2 万是 10.4，15.2 万是 11.9。日志里提示有层被重新初始化（newly initialized）。",
        cause="模型只按配置建的（from_config），或者 checkpoint 的键名对不上（多了前缀、被包装或 compile 过），或者用 strict=False 加载了空的、分片的文件。加载时只给警告，然后拿随机权重继续跑。",
        remedy="用 AutoModelForCausalLM.from_pretrained(path) 加载，并认真看警告：去掉键名里多余的前缀（module.、_orig_mod.、model.），或指向真正存有完整权重的目录。",
        verify="主干各层不再出现 newly initialized；未训练的模型在普通文本上 loss 应为 2～3，远低于 ln(V)。",
        prevention="训练前断言第一个 batch 的 loss 比 ln(词表) 至少低 2。",
        question="第一步的 loss 是多少？日志里有没有列出 newly initialized 的权重？",
        quiz="奖励模型提示 score.weight newly initialized，要紧吗？不要紧，这个头本来就是新加的；如果列的是 layers.0.self_attn，才是问题。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "Some weights of LlamaForCausalLM were not initialized from the model checkpoint at ./ckpt and are newly initialized: ['model.layers.0.self_attn.q_proj.weight', 'model.layers.1.mlp.up_proj.weight']"
                ),
                model=make.modelled(vocabulary=32000),
                metrics=make.ran(loss=make.falling(200, 10.5, 7.0)),
            ),
            Evidence(
                script=make.scripted("from-config-not-pretrained", quote="model = AutoModelForCausalLM.from_config(config)"),
                settings=make.configured(model="Qwen/Qwen2.5-0.5B"),
                model=make.modelled(vocabulary=151936),
                metrics=make.ran(loss=make.falling(200, 12.0, 8.0)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same warning for a new classification head
                log=make.logged(
                    "Some weights of LlamaForSequenceClassification were not initialized from the model checkpoint at llama and are newly initialized: ['score.weight']"
                ),
                metrics=make.ran(loss=make.falling(100, 0.7, 0.3, noise=0.02), kind="reward"),
            ),
            Evidence(  # a first loss far under ln(V)
                model=make.modelled(vocabulary=32000),
                metrics=make.ran(loss=make.falling(200, 2.1, 1.2)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        named = [_judged(exhibit) for exhibit in lines(seen, *self.signatures)]
        form = shape_of(seen)
        start = _start(form.first, form.uniform, held=form.no_learning)
        trained_before = bool(start) and start[0].weight < 0
        built = () if trained_before else facts(seen, "from-config-not-pretrained", weight=5.0)
        proofs = [exhibit for exhibit in named if exhibit.weight > 5]
        if proofs and not trained_before:
            return self.confirmed(*proofs, *built, *start)
        if built and start and start[0].weight > 0 and text_of(seen, "model"):
            return self.confirmed(*built, *start)
        if trained_before:
            return self.ruled_out(*start, *(exhibit for exhibit in named if exhibit.weight < 0))
        if named and not proofs:
            return self.ruled_out(*named)
        pretrained = bool(text_of(seen, "model"))
        if start and (pretrained or built):
            return conclude(self, (*built, *start), missing=("log",))
        return self.not_checked("log", "model", exhibits=built)


def _start(first: float | None, uniform: float | None, *, held: bool) -> tuple[Exhibit, ...]:
    """The first loss beside ln(V): at it for the case, less so where the loss is held there by something else; 2 nats under it against."""
    if first is None or uniform is None:
        return ()
    if abs(first - uniform) <= NEAR_UNIFORM:
        return (
            say(
                f"the first loss {first:.2f} is about ln(vocabulary) = {uniform:.2f}",
                f"第一个 loss {first:.2f} 约等于 ln(词表) = {uniform:.2f}",
                0.5 if held else 4.0,
            ),
        )
    if first < uniform - 2:
        return (
            say(
                f"the first loss {first:.2f} is far below ln(vocabulary) = {uniform:.2f}",
                f"第一个 loss {first:.2f} 远低于 ln(词表) = {uniform:.2f}",
                -9.0,
            ),
        )
    return ()


def _judged(exhibit: Exhibit) -> Exhibit:
    """The warning's line, weighed by what it lists: layers of the body prove the case, a new head speaks against it."""
    text = exhibit.text if isinstance(exhibit.text, str) else exhibit.text.en
    listed = text.lower().rsplit("newly initialized", 1)[-1]
    weight = 0.0
    if BODY.search(listed):
        weight = 9.0
    elif HEAD_ONLY.search(listed):
        weight = -4.0
    return Exhibit(exhibit.text, exhibit.where, exhibit.source, weight=weight, section=exhibit.section)
