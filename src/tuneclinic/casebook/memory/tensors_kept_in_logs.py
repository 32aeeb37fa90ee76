"""The loop keeps tensors with their graph."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, from_fact
from tuneclinic.examples import Lazy
from tuneclinic.sections import Script, ScriptFact

KEPT = ("loss-kept-with-graph", "outputs-kept")


class TensorsKeptInLogs(Case):
    id = "tensors-kept-in-logs"
    symptoms = {"oom-late": 0.16, "slow": 0.03}
    stage = "environment"
    needs = ("script",)
    probe = "memory"
    search = (
        "memory leak total_loss += loss",
        "GPU memory grows every step",
        "losses.append(loss) leak",
        "显存每一步都在涨",
        "losses.append(loss) 显存泄漏",
        "total_loss += loss 泄漏",
    )

    en = Card(
        title="Stored tensors keep their graph",
        sign="At equal lengths memory grows by the same amount every step, until it runs out after minutes or hours. The loop appends losses or outputs to a list, or sums them as tensors.",
        cause="A loss tensor holds its whole graph, and the graph holds the activations of that step. `total += loss` or `losses.append(loss)` keeps all of them in memory.",
        remedy="Keep numbers, not tensors: loss.item() (only at logging steps, because it waits for the GPU) or loss.detach(). For outputs use .detach().cpu(), and keep only what you need.",
        verify="torch.cuda.memory_allocated() after each optimizer step is flat over 50 steps of equal length.",
        prevention="Log allocated memory next to the loss; growth is visible within minutes.",
        question="Does the loop add up or collect losses or outputs without .item() or .detach()?",
        quiz="`running += loss` leaks memory and `running += loss.item()` does not. Why? item() gives a Python number; the tensor keeps the graph of its step.",
    )
    zh = Card(
        title="存下的张量带着计算图",
        sign="样本一样长，显存每步涨同样多，几分钟到几小时后爆掉；循环里把 loss 或输出攒进列表，或直接把张量相加。",
        cause="loss 张量挂着整个计算图，图里又挂着这一步的激活；`total += loss`、`losses.append(loss)` 会让它们全都释放不掉。",
        remedy="只留数字不留张量：loss.item()（只在打印那一步调用，它要等 GPU）或 loss.detach()；输出用 .detach().cpu()，而且只留要用的。",
        verify="连续 50 步同样长度的 batch，每次优化器更新后 torch.cuda.memory_allocated() 持平。",
        prevention="日志里把已分配显存打在 loss 旁边，上涨几分钟内就能看到。",
        question="循环里有没有不带 .item() 或 .detach() 就累加、收集 loss 或输出？",
        quiz="`running += loss` 泄漏，`running += loss.item()` 不会，为什么？item() 得到的是 Python 数，张量则拖着那一步的计算图。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                script=Script(
                    (ScriptFact("loss-kept-with-graph", "total_loss += loss", 61, "train.py"),),
                    frozenset({"loss-kept-with-graph"}),
                    ("train.py",),
                )
            ),
            Evidence(
                script=Script(
                    (ScriptFact("outputs-kept", "all_outputs.append(outputs)", 70, "train.py"),),
                    frozenset({"outputs-kept"}),
                    ("train.py",),
                )
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(script=Script((), frozenset({"loss-kept-with-graph", "outputs-kept"}), ("train.py",))),
            Evidence(
                script=Script(
                    (ScriptFact("eval-without-no-grad", "def evaluate():", 9, "train.py"),),
                    frozenset({"loss-kept-with-graph"}),
                    ("train.py",),
                )
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        if seen.script is None:
            return self.not_checked("script")
        found = [fact for name in KEPT if (fact := seen.script.fact(name)) is not None]
        branch = facts.card_error(seen)
        if branch is not None and branch.early:
            return self.ruled_out(
                facts.said("it failed before anything could pile up", "还没来得及累积就出错了", -5.0, where=branch.error.where)
            )
        if found:
            return self.confirmed(*(from_fact(fact, 7.0) for fact in found), *((facts.told(branch),) if branch else ()))
        if seen.script.checked & set(KEPT):
            return self.ruled_out(
                facts.said(
                    "the loop keeps no loss or output with its graph", "循环里没有保留带计算图的 loss 或输出", -6.0, "script"
                )
            )
        return self.not_checked("script")
