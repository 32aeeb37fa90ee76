"""Padding changes what is evaluated."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, lines, say, setting, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Tokenizer

FACT = "padding-side-right-generation"


class PaddingDisturbsEval(Case):
    id = "padding-disturbs-eval"
    symptoms = {"eval-erratic": 0.14}
    stage = "environment"
    needs = ("script", "log", "settings", "tokenizer")
    probe = "invariance"
    signatures = (
        r"right-padding was detected",
        r"batched generation with padding_side=.{0,2}right",
    )
    search = (
        "A decoder-only architecture is being used, but right-padding was detected",
        "batch generation differs from single generation",
        "padding_side left or right for generation",
        "batch 推理和单条推理结果不一致",
        "right-padding was detected 左填充",
        "评估时 padding 影响结果",
    )

    en = Card(
        title="Padding disturbs the evaluation",
        sign="Answers generated in a batch are worse than one at a time, most of all for short prompts. Scores change with the evaluation batch size. transformers warns about right-padding.",
        cause="A decoder continues from the last position. With right padding that position is a pad token between prompt and answer. If the attention mask is missing, or position ids count the pads, the prompt itself is read wrongly.",
        remedy='Set tokenizer.padding_side = "left" before you tokenise for generate(), and pass attention_mask (needed above all when pad = eos). Training may keep right padding. As a stopgap evaluate with batch size 1.',
        verify="Ten prompts of different lengths give the same greedy answers in one batch and one at a time.",
        prevention="Keep that comparison as a test of the evaluation code.",
        question="Does the score change when the evaluation batch size is set to 1?",
        quiz="Greedy answers are right at batch 1, and at batch 8 they are empty for the shorter prompts. Why only the shorter ones? Only they are padded: they continue after pad tokens.",
    )
    zh = Card(
        title="padding 干扰了评估",
        sign="成批生成的回答比逐条生成差，短 prompt 最明显；改评估的 batch size 分数就变。transformers 会警告 right-padding。",
        cause="decoder 从最后一个位置往下写。右侧 padding 时最后一个位置是 pad，夹在 prompt 和回答中间；attention mask 没传，或 position id 把 pad 也数进去，prompt 本身就读错了。",
        remedy='给 generate() 分词之前设 tokenizer.padding_side = "left"，attention_mask 一起传（pad = eos 时尤其要传）。训练侧可以继续右侧 padding。临时办法是评估 batch 设 1。',
        verify="十条长短不一的 prompt，成批和逐条贪心生成结果相同。",
        prevention="把这个对比做成评估代码的测试。",
        question="评估的 batch size 改成 1，分数变不变？",
        quiz="batch 1 时贪心回答都对，batch 8 时短 prompt 的回答是空的，为什么只有短的？只有它们有 padding，是接着 pad 往下写的。",
    )
    change = {"padding_side": "left"}
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(FACT, quote='tokenizer.padding_side = "right"')),
            Evidence(
                log=make.logged(
                    "A decoder-only architecture is being used, but right-padding was detected! For correct generation results, please set `padding_side='left'` when initializing the tokenizer."
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=(FACT,)), settings=make.configured(padding_side="right")),  # right for training
            Evidence(tokenizer=Tokenizer(padding_side="left"), log=make.logged("Generating 32 prompts in one batch")),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = (*facts(seen, FACT), *lines(seen, *self.signatures, weight=8.0))
        if proof:
            return self.confirmed(*proof)
        against = (*clean(seen, FACT), *_left(seen))
        return self.ruled_out(*against) if against else self.not_checked("script", "log")


def _left(seen: Evidence) -> tuple[Exhibit, ...]:
    if text_of(seen, "padding_side") == "left":
        return setting(seen, "padding_side", -4.0)
    if seen.tokenizer is not None and seen.tokenizer.padding_side == "left":
        where = seen.tokenizer.places.get("padding_side", "")
        return (say("padding_side: left", "padding_side: left", -3.0, section="tokenizer", where=where),)
    return ()
