"""A logarithm of zero in the loss."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, conclude, facts, quoted
from tuneclinic.casebook.numerics._nan import all_finite, broken, infinite_loss
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

NAN, INF = float("nan"), float("inf")


class LogOfZero(Case):
    id = "log-of-zero"
    symptoms = {"nan-at-start": 0.08, "nan-mid-run": 0.05}
    stage = "overfit"
    explains = ("nan-hidden-by-logging",)
    needs = ("script", "metrics", "crash", "log")
    probe = "loss-check"
    signatures = (r"function '(log|logbackward0|divbackward0|sqrtbackward0|powbackward0)' returned nan values",)
    search = (
        "torch.log(softmax) nan loss",
        "LogBackward0 returned nan values",
        "custom loss log(0) inf",
        "log(0) 导致 NaN",
        "自定义 loss 出现 inf",
        "softmax 之后取 log NaN",
    )

    en = Card(
        title="The loss takes the log of zero",
        sign="A loss you wrote yourself becomes infinite, then NaN, as soon as the model is confident: it takes the log of a probability that was rounded to 0. torch.autograd.set_detect_anomaly(True) points to LogBackward0.",
        cause="In fp16 a softmax value below 6e-8 becomes exactly 0, and in any precision a value becomes 0 when one logit lies about 100 above it. log(0) is minus infinity; multiplied by a zero target it is NaN. Dividing by a count that can be 0, or the gradient of a square root at 0, does the same.",
        remedy="Use log_softmax or F.cross_entropy on the logits, and logsigmoid instead of log(sigmoid). Limit counts with .clamp(min=1). Compute the loss in fp32 (logits.float()).",
        verify="Feed logits of ±100: value and gradient of the new loss are finite and agree with F.cross_entropy.",
        prevention="Test every new loss numerically at extreme logits before you train with it. Never take log of a softmax; use log_softmax.",
        question="Does your loss contain torch.log, a division or a square root of something that can be 0?",
        quiz="Why does log(softmax(x)) fail where log_softmax(x) does not? The first rounds the probability to 0 before taking the log; the second never forms it.",
    )
    zh = Card(
        title="loss 里对 0 取了对数",
        sign="自己写的 loss，模型一有把握就变成 inf，接着 NaN：对一个已经舍入成 0 的概率取了 log。开 torch.autograd.set_detect_anomaly(True) 会指到 LogBackward0。",
        cause="fp16 下 softmax 小于 6e-8 就变成 0；不管什么精度，比最大 logit 低 100 左右的也会变成 0。log(0) 是负无穷，再乘上目标 0 就是 NaN。除以可能为 0 的计数、在 0 处开平方求梯度，也一样。",
        remedy="对 logits 直接用 log_softmax 或 F.cross_entropy，log(sigmoid) 换成 logsigmoid，计数用 .clamp(min=1)，loss 在 fp32 里算（logits.float()）。",
        verify="喂 ±100 的 logits：新 loss 的数值和梯度都有限，且与 F.cross_entropy 一致。",
        prevention="新 loss 先用极端 logits 做数值对拍再上训练；不要写 log(softmax)，用 log_softmax。",
        question="你的 loss 里有没有 torch.log、除法或开方，作用的量可能是 0？",
        quiz="log(softmax(x)) 会坏而 log_softmax(x) 不会，为什么？前者先把概率舍入成 0 再取对数，后者不经过那个概率。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("log-of-softmax", quote="loss = -(targets * torch.log(probs)).sum(-1).mean()"),
                metrics=make.ran(loss=make.then(make.then(make.falling(80, 2.0, 0.5), INF, 50), NAN, 52)),
            ),
            Evidence(
                crash=make.crashed(
                    "RuntimeError", "Function 'LogBackward0' returned nan values in its 0th output.", phase="backward"
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same NaN, in a script that uses cross_entropy
                script=make.scripted(checked=("log-of-softmax",)),
                metrics=make.ran(loss=make.then(make.falling(80, 2.0, 0.5), NAN, 50)),
            ),
            Evidence(script=make.scripted("log-of-softmax"), metrics=make.ran(loss=make.falling())),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        fine = all_finite(seen)
        if fine is not None:
            return self.ruled_out(fine)
        named, shown, bad = quoted(self, seen), facts(seen, "log-of-softmax", weight=6.0), broken(seen)
        if named or (shown and bad):
            return self.confirmed(*named, *shown, *bad)
        cleared = clean(seen, "log-of-softmax")
        if cleared:
            return self.ruled_out(*cleared)
        infinite = infinite_loss(seen)
        if infinite is not None:
            return conclude(self, (*shown, *bad, infinite), missing=("script",))
        return self.not_checked("script", exhibits=(*shown, *bad))
