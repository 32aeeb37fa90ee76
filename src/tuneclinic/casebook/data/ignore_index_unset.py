"""The loss does not ignore what the labels mark as ignored."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data._facts import own_labels
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean, conclude, facts, lines
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

FACT = "ignore-index-unset"
NEGATIVE = r"indexerror: target -\d+ is out of bounds"
"""No class has a negative number, so it can only be a filler."""
ASSERTED = r"assertion `?t >= 0 && t < n_classes`? failed"
"""The same on a GPU, where a class beyond the last one (a wrong num_labels) gives this text too."""


class IgnoreIndexUnset(Case):
    id = "ignore-index-unset"
    symptoms = {"loss-at-uniform": 0.04}
    needs = ("script", "crash", "log", "settings")
    probe = "loss-check"
    signatures = (NEGATIVE, ASSERTED)
    search = (
        "IndexError: Target -1 is out of bounds",
        "ignore_index not set in CrossEntropyLoss",
        "Assertion `t >= 0 && t < n_classes` failed",
        "labels padded with 0 counted in the loss",
        "ignore_index 没设",
        "Target -1 is out of bounds",
        "labels 用 -1 填充",
        "交叉熵没有忽略 padding",
    )

    en = Card(
        title="ignore_index does not match the labels",
        sign="On the CPU: 'IndexError: Target -1 is out of bounds'. On a GPU: 'Assertion `t >= 0 && t < n_classes` failed'. Or no error, but a loss far too high or too low because filler positions count as targets.",
        cause="Labels mark the positions to skip with one value (-1, 0, the pad id), and the loss skips another: PyTorch's cross-entropy ignores only -100 by default.",
        remedy="Use -100 everywhere: labels[mask] = -100, pad_sequence(labels, batch_first=True, padding_value=-100), DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100). Or tell the loss: nn.CrossEntropyLoss(ignore_index=-1).",
        verify="The loss of a batch stays the same when you add more padding to it.",
        prevention="Define one constant IGNORE_INDEX = -100 and use it in the collator and in the loss.",
        question="Which value fills the masked labels, and which ignore_index does the loss use?",
        quiz="pad_sequence(labels, batch_first=True): what is wrong? It fills with 0, and 0 is a real token id.",
    )
    zh = Card(
        title="labels 填充值与 loss 不一致",
        sign="CPU 上报 IndexError: Target -1 is out of bounds，GPU 上报 Assertion `t >= 0 && t < n_classes` failed；也可能不报错，但填充位也算进了 loss，数值高得离谱或低得离谱。",
        cause="labels 用一个值（-1、0、pad id）标记要跳过的位置，loss 跳过的却是另一个：PyTorch 的交叉熵默认只忽略 -100。",
        remedy="统一用 -100：labels[mask] = -100、pad_sequence(labels, batch_first=True, padding_value=-100)、DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)。或者告诉 loss：nn.CrossEntropyLoss(ignore_index=-1)。",
        verify="给一个 batch 多补一些 padding，loss 不变。",
        prevention="全项目只用一个常量 IGNORE_INDEX = -100，collator 和 loss 都引用它。",
        question="labels 的填充值是多少？loss 的 ignore_index 是多少？",
        quiz="pad_sequence(labels, batch_first=True) 错在哪？默认补 0，而 0 是一个真实的 token id。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(FACT, quote="loss_fn = nn.CrossEntropyLoss()")),
            Evidence(crash=run.crashed("IndexError", "Target -1 is out of bounds.", "functional.py:3059 in cross_entropy")),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(checked=(FACT,)), metrics=run.ran(loss=run.level(100, 9.0))),
            Evidence(script=run.scripted("pad-in-labels", checked=(FACT,))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = (*facts(seen, FACT), *lines(seen, NEGATIVE, weight=9.0))
        asserted = lines(seen, ASSERTED, weight=3.0)[:1]
        if proof:
            return self.confirmed(*proof, *asserted)
        return conclude(self, (*clean(seen, FACT), *own_labels(seen), *asserted), missing=("script",))
