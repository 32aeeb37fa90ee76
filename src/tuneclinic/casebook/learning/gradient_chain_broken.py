"""The gradient does not reach the parameters."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import PROOF, clean, conclude, facts, falls, finite, flat, lines, say, shape_of
from tuneclinic.casebook.learning._gradients import INPUTS_WITHOUT_GRAD, NO_GRAD_FN, gradients, trainable_exhibit
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

FACTS = ("detach-in-loss", "no-grad-in-forward")
CHECKED = (*FACTS, "everything-frozen")


class GradientChainBroken(Case):
    id = "gradient-chain-broken"
    symptoms = {"loss-at-uniform": 0.09, "cannot-overfit": 0.1}
    stage = "overfit"
    needs = ("metrics", "script", "crash", "log")
    probe = "gradient-chain"
    search = (
        "element 0 of tensors does not require grad and does not have a grad_fn",
        "grad_norm is 0 but loss is not",
        "loss.detach() before backward",
        "grad_norm 一直是 0",
        "梯度为 None",
        "梯度传不回去",
    )

    en = Card(
        title="The gradient chain is broken",
        sign="Parameters are trainable, but their gradients are None or exactly 0 while the loss is not 0; or backward stops with 'element 0 of tensors does not require grad'.",
        cause="The graph between parameters and loss is cut somewhere: detach(), .item(), .numpy() or argmax in the loss, torch.no_grad or inference_mode around the forward pass, or a kernel that reads the original weight and skips the adapter.",
        remedy="Follow loss.grad_fn backwards to the first tensor without a grad_fn, and remove the detach or no_grad there. For logging use loss.detach(), and call backward on loss itself.",
        verify="After one backward pass every trainable parameter has a gradient that is not None and not all zero.",
        prevention="A ten-line test: one batch, one backward, count the trainable parameters with a missing or zero gradient. Run it after every change of model or loss code.",
        question="After loss.backward(), how many trainable parameters have a gradient that is None or all zero?",
        quiz="One run shows loss 2.3 and grad_norm 0.0 at every step, another loss 0.0 and grad_norm 0.0. Same fault? No: in the first the gradient chain is cut, in the second no label is left to learn from.",
    )
    zh = Card(
        title="梯度链断了",
        sign="参数可训练，梯度却是 None 或恰好为 0，loss 又不是 0；或者 backward 直接报 element 0 of tensors does not require grad。",
        cause="从参数到 loss 的计算图在某处被切断：loss 里用了 detach()、.item()、.numpy()、argmax，前向套了 torch.no_grad / inference_mode，或融合算子直接读原始权重绕过了 adapter。",
        remedy="从 loss.grad_fn 往回走，找到第一个没有 grad_fn 的张量，去掉那里的 detach 或 no_grad。要打日志就用 loss.detach() 的副本，backward 用原来的 loss。",
        verify="一次 backward 之后，每个可训练参数的梯度都不是 None、也不全为 0。",
        prevention="写个十行的测试：一个 batch、一次 backward，统计梯度缺失或全零的可训练参数；改过模型或 loss 就跑一遍。",
        question="loss.backward() 之后，有多少可训练参数的梯度是 None 或全零？",
        quiz="一个任务每步 loss 2.3、grad_norm 0.0；另一个 loss 0.0、grad_norm 0.0。是同一个问题吗？不是：前者梯度链断了，后者标签全被掩掉，没东西可学。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("detach-in-loss", quote="loss = criterion(logits.detach(), labels)"),
                crash=make.crashed(
                    "RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn", phase="backward"
                ),
            ),
            Evidence(
                model=make.modelled(trainable=9_232_384.0),
                metrics=make.ran(loss=make.level(100, 2.3), grad_norm=[0.0] * 100, learning_rate=make.peaked(100)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the same error, with the checkpoint warning before it
                log=make.logged("UserWarning: None of the inputs have requires_grad=True. Gradients will be None"),
                crash=make.crashed(
                    "RuntimeError", "element 0 of tensors does not require grad and does not have a grad_fn", phase="backward"
                ),
            ),
            Evidence(  # gradient 0 because the loss is 0: every label is masked
                model=make.modelled(trainable=9_232_384.0),
                metrics=make.ran(loss=[0.0] * 100, grad_norm=[0.0] * 100, learning_rate=make.peaked(100)),
            ),
            Evidence(
                metrics=make.ran(loss=make.level(100, 2.3), grad_norm=make.level(100, 1.1, 0.2), learning_rate=make.peaked(100))
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proofs, error = facts(seen, *FACTS), lines(seen, NO_GRAD_FN, weight=3.0)
        warned = lines(seen, INPUTS_WITHOUT_GRAD, weight=-6.0)
        moving = falls(seen)
        if moving is not None and not error:
            return self.suspected(*proofs, moving) if proofs else self.ruled_out(moving)
        if proofs:
            return self.confirmed(*proofs, *error)
        if warned and error:
            return self.ruled_out(*warned, *error)
        losses = finite(seen, "loss")
        if losses.size and not losses.any():
            return self.ruled_out(
                say("the loss itself is 0: there is nothing to differentiate", "loss 本身就是 0：没有可求导的东西", -6.0)
            )
        counted = trainable_exhibit(seen, -9.0, 1.0)
        if gradients(seen) == "zero" and shape_of(seen).nan_from is None:
            zero = say("every gradient norm is exactly 0 while the loss is not", "loss 不为 0，梯度范数却每步都是 0", 6.0)
            proof = bool(counted) and counted[0].weight > 0
            return conclude(self, (zero, *counted), proof=proof, missing=("model", "script"))
        if gradients(seen) == "alive":
            return self.ruled_out(say("gradient norms are above 0", "梯度范数大于 0", -PROOF))
        if error:
            return conclude(self, (*error, *clean(seen, *FACTS, weight=-2.0), *counted), missing=("script",))
        blameless = clean(seen, *CHECKED, weight=-1.0)
        return self.not_checked("script", "metrics", exhibits=(*blameless, *flat(seen)))
