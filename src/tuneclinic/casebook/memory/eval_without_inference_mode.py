"""Evaluation keeps the graph."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, from_fact
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash, Script, ScriptFact

LOOP = ScriptFact("eval-without-no-grad", "def evaluate(model, loader):", 88, "train.py")


class EvalWithoutInferenceMode(Case):
    id = "eval-without-inference-mode"
    symptoms = {"oom-late": 0.28}
    stage = "environment"
    needs = ("script", "crash")
    probe = "evaluation"
    search = (
        "OOM during evaluation but training is fine",
        "forgot torch.no_grad in validation",
        "validation loop out of memory",
        "验证阶段爆显存",
        "评测没加 no_grad",
        "eval 时 OOM 训练正常",
    )

    en = Card(
        title="Evaluation runs without no_grad",
        sign="Training runs, and memory runs out at the first evaluation at the same batch size. The evaluation loop is your own and contains neither no_grad nor inference_mode.",
        cause="Without no_grad every forward pass of the evaluation stores its activations for a backward pass that never comes. If outputs are kept in a list, the graph of every batch stays in memory.",
        remedy="Put the whole evaluation under `with torch.inference_mode():` (or @torch.no_grad()). Call model.eval() before and model.train() after it. Keep only numbers: loss.item(), predictions.argmax(-1).cpu().",
        verify="Peak memory in evaluation is below that of training, and flat from batch to batch.",
        prevention="Use one decorated evaluation function in all scripts. Run it on two batches before the first training step, so that a memory problem shows at once.",
        question="Does the evaluation code run under torch.no_grad() or torch.inference_mode()?",
        quiz="model.eval() was called and the evaluation still uses as much memory. Why? eval() only switches dropout and batch norm; no_grad stops the graph.",
    )
    zh = Card(
        title="评估没有关掉梯度",
        sign="训练没问题，同样的 batch size 一到第一次评估就爆显存；评估循环是自己写的，里面没有 no_grad 或 inference_mode。",
        cause="没有 no_grad，评估的每次前向都会为永远不会来的反向保存激活；如果还把输出攒在列表里，每个 batch 的计算图都不会释放。",
        remedy="整个评估放进 `with torch.inference_mode():`（或加 @torch.no_grad()），前后分别 model.eval()、model.train()；只留数字：loss.item()、predictions.argmax(-1).cpu()。",
        verify="评估时的显存峰值低于训练，而且不随 batch 上涨。",
        prevention="所有脚本共用一个评估函数，装饰器只写一次；正式训练之前先评估两个 batch，显存问题立刻暴露。",
        question="评估代码有没有在 torch.no_grad() 或 torch.inference_mode() 里跑？",
        quiz="已经 model.eval() 了，评估还是吃显存，为什么？eval() 只管 dropout 和 batch norm，停掉计算图要靠 no_grad。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                script=Script((LOOP,), frozenset({"eval-without-no-grad"}), ("train.py",)),
                crash=Crash(
                    (facts.crash_example(phase="evaluation", asked=1.0, capacity=23.6, free=0.3, allocated=22.5, step=500),)
                ),
            ),
            Evidence(script=Script((LOOP,), frozenset({"eval-without-no-grad"}), ("train.py",))),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                script=Script((), frozenset({"eval-without-no-grad"}), ("train.py",)),
                crash=Crash(
                    (facts.crash_example(phase="evaluation", asked=1.0, capacity=23.6, free=0.3, allocated=22.5, step=500),)
                ),
            ),
            facts.at_optimizer(),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = facts.card_error(seen)
        fact = seen.script.fact("eval-without-no-grad") if seen.script else None
        if branch and branch.phase in {"load", "optimizer", "backward"}:
            return self.ruled_out(
                facts.said(
                    f"it failed during {branch.phase}, not in an evaluation",
                    f"在{facts.PHASES_ZH[branch.phase]}阶段出错，不在评测里",
                    -6.0,
                )
            )
        if fact is not None:
            return self.confirmed(from_fact(fact, 7.0), *((facts.told(branch),) if branch else ()))
        if seen.script is not None and "eval-without-no-grad" in seen.script.checked:
            return self.ruled_out(
                facts.said("the script's evaluation runs without a graph", "脚本的评测没有建计算图", -6.0, "script")
            )
        if branch and branch.phase == "evaluation" and not _trainer(branch):
            at_eval = facts.phase_is(branch, "evaluation", weight=2.0)
            return self.suspected(*((at_eval,) if at_eval else ()), facts.told(branch), missing=("script",))
        if branch and branch.phase == "forward" and branch.error.frames:
            trained = "it failed in a forward pass that no evaluation called", "出错的前向不是评测调用的"
            return self.not_checked("script", exhibits=(facts.said(*trained, -2.0, where=branch.error.where),))
        return self.not_checked("script")


def _trainer(branch: facts.Branch) -> bool:
    """Whether a Trainer's own loop ran the evaluation: it has inference mode built in."""
    return bool(facts.frames_with(branch, "evaluation_loop", "prediction_step", "trainer.py"))
