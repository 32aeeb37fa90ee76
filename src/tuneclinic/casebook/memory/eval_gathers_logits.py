"""Evaluation keeps the logits of the whole evaluation set."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.memory import _facts as facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, from_setting
from tuneclinic.examples import Lazy
from tuneclinic.sections import Crash

GATHERING = (
    "nested_concat",
    "evaluation_loop",
    "pad_across_processes",
    "gather_for_metrics",
    "gather_function",
    "torch_pad_and_concatenate",
    "eventcontainer",
    "EvalLoopContainer",
)


class EvalGathersLogits(Case):
    id = "eval-gathers-logits"
    symptoms = {"oom-late": 0.14}
    stage = "environment"
    needs = ("crash", "settings", "script")
    probe = "evaluation"
    change = {"metrics_only_loss": True}
    search = (
        "memory grows during evaluation with compute_metrics",
        "OOM in nested_concat",
        "preprocess_logits_for_metrics",
        "评测时显存一直涨",
        "compute_metrics 爆显存",
        "eval 集越大越 OOM",
    )

    en = Card(
        title="Evaluation keeps the logits of every row",
        sign="Memory is flat in training. In evaluation it climbs batch by batch until it runs out; a smaller evaluation set gets further or passes. A compute_metrics function is set.",
        cause="With compute_metrics the Trainer keeps the logits of all evaluation rows on the GPU before it calls the function: rows × length × vocabulary × 4 bytes in fp32. A thousand rows of 512 tokens with a vocabulary of 128k are 260 GB.",
        remedy="Pass preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) to the Trainer, so that it keeps token ids instead of logits. Or set eval_accumulation_steps=1 to move the logits to main memory after each batch. If only the loss matters, set prediction_loss_only=True.",
        verify="Memory stays flat during evaluation, whatever the size of the set.",
        prevention="Never set compute_metrics for a language model without preprocess_logits_for_metrics.",
        question="Is a compute_metrics function given, and does memory climb batch by batch in the evaluation?",
        quiz="Evaluation of 100 rows passes, evaluation of 2,000 rows runs out of memory, at the same batch size. What is kept? The logits of all rows.",
    )
    zh = Card(
        title="评估时攒下了所有 logits",
        sign="训练时显存平稳，评估时一个 batch 一个 batch 往上涨，直到爆掉；验证集小一点就能跑得更远或者跑完。设置了 compute_metrics。",
        cause="设了 compute_metrics，Trainer 会先把整个验证集的 logits 都留在显存里再交给它：样本数 × 长度 × 词表 × 4 字节（fp32）。1000 条 512 token、12.8 万词表就是 260 GB。",
        remedy="给 Trainer 传 preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)，只留 token id；或设 eval_accumulation_steps=1，每个 batch 之后搬到内存；只看 loss 就用 prediction_loss_only=True。",
        verify="评估期间显存不再逐 batch 上涨，与验证集大小无关。",
        prevention="语言模型只要写 compute_metrics，就必须同时写 preprocess_logits_for_metrics。",
        question="有没有传 compute_metrics？评估时显存是不是逐 batch 上涨？",
        quiz="同样的 batch size，100 条能评估，2000 条就爆，是什么留在了显存里？所有样本的 logits。",
    )
    sick = Lazy(
        lambda: [
            facts.failing(
                phase="evaluation",
                frames=("trainer.py:4300 in evaluation_loop", "trainer_pt_utils.py:110 in nested_concat"),
                asked=4.44,
                capacity=10.6,
                free=1.0,
                allocated=9.2,
                step=200,
            ),
            facts.failing(
                phase="evaluation",
                frames=("trainer_pt_utils.py:90 in torch_pad_and_concatenate",),
                asked=12.0,
                capacity=79.0,
                free=3.0,
                allocated=70.0,
                step=1000,
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                crash=Crash(
                    (
                        facts.crash_example(
                            phase="evaluation",
                            frames=("loss_utils.py:36 in ForCausalLMLoss",),
                            asked=4.4,
                            capacity=23.6,
                            free=1.0,
                            allocated=20.0,
                            step=200,
                        ),
                    )
                ),
                settings=facts.set_to(metrics_only_loss=True),
            ),
            facts.at_optimizer(),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        branch = facts.card_error(seen)
        if branch is None:
            return self.not_checked("crash")
        if branch.phase not in {"evaluation", ""}:
            return self.ruled_out(
                facts.said(
                    f"it failed during {branch.phase}, not in an evaluation",
                    f"在{facts.PHASES_ZH[branch.phase]}阶段出错，不在评测里",
                    -6.0,
                )
            )
        only_loss = seen.settings.values.get("metrics_only_loss") if seen.settings else None
        if only_loss is not None and seen.settings is not None and seen.settings.flag("metrics_only_loss"):
            return self.ruled_out(from_setting(only_loss, -6.0))
        frame = facts.frames_with(branch, *(name for name in GATHERING if name != "evaluation_loop"))
        if frame:
            return self.confirmed(
                facts.said(
                    f"the stack ends where outputs are gathered: {frame}",
                    f"堆栈停在收集输出的地方：{frame}",
                    6.0,
                    where=branch.error.where,
                ),
                facts.told(branch),
            )
        if branch.phase == "evaluation":
            at_eval = facts.phase_is(branch, "evaluation", weight=1.0)
            return self.suspected(*((at_eval,) if at_eval else ()), facts.told(branch), missing=("script",))
        return self.not_checked("crash")
