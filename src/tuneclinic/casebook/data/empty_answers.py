"""Answers are empty."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.data._facts import clean, counted, outputs, rows, share
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import conclude, lines, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

CHECK = "empty-answer"
PROOF_SHARE = 0.05
"""Curated sets hold at most one empty answer in some hundred rows (0.2 % in the worst one measured)."""
FEW = 5
"""A judgement, not measured: rows that are enough beside a model that answers nothing."""
DROPPED = r"tokenization mismatch: 0 vs\.? ?\d+"
"""How LLaVA and FastChat say that a row had no turn to train."""
SILENT = 0.3
"""A judgement, not measured: share of empty outputs from which the model has learnt to say nothing."""


class EmptyAnswers(Case):
    id = "empty-answers"
    symptoms = {"parrots": 0.015, "nan-mid-run": 0.02}
    explains = ("batch-without-targets", "data-all-alike", "targets-trivial")
    needs = ("data",)
    probe = "show"
    search = (
        "empty answers in the dataset",
        "model outputs nothing after fine-tuning",
        "blank assistant content",
        "output field is empty string",
        "训练数据回答为空",
        "微调后输出空字符串",
        "output 字段是空的",
        "assistant content 为空",
    )

    en = Card(
        title="Answers are empty",
        sign="The tuned model often answers with nothing. With small batches, single steps can be NaN, because an empty answer leaves no trained token.",
        cause="The column mapping points to a field that some rows lack, an export lost the text, or failed API calls were kept. An empty answer teaches the model to end at once, which is very easy to learn.",
        remedy="Drop them: dataset.filter(lambda row: (row['output'] or '').strip() != ''). Then check the column mapping: response: output in LLaMA-Factory's dataset_info.json, field_output or field_messages in axolotl.",
        verify="No assistant turn is empty any more, except turns that are tool calls.",
        prevention="Count empty answers in preprocessing and stop if there are any.",
        question="How many rows have an empty assistant text?",
        quiz="5 % of the answers are empty, but half of the outputs are. Why more? Ending at once is the easiest thing to predict.",
    )
    zh = Card(
        title="回答是空的",
        sign="微调后的模型经常什么都不答。batch 小的时候个别步还会是 NaN，因为空回答没有可训练的 token。",
        cause="列映射指到了有些样本没有的字段、导出时丢了文本，或者把 API 调用失败的记录也留了下来。空回答教的是“马上结束”，这最容易学。",
        remedy="过滤掉：dataset.filter(lambda row: (row['output'] or '').strip() != '')。再检查列映射：LLaMA-Factory 的 dataset_info.json 里 response: output，axolotl 的 field_output 或 field_messages。",
        verify="除了工具调用，不再有空的 assistant 轮。",
        prevention="预处理时统计空回答数量，只要有就停下来。",
        question="有多少条样本的 assistant 文本是空的？",
        quiz="空回答只占 5%，输出却有一半是空的，为什么？直接结束最容易预测。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(400, empty_answer=range(1, 61), example="What is a keel? / ")),
            Evidence(data=make.rowset(900, empty_answer=range(1, 12)), outputs=make.said("", "", "", "A ship.", "")),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(data=make.rowset(400, checked=(CHECK,)), outputs=make.said("", "", "", "A ship.")),
            Evidence(data=make.rowset(400, checked=(CHECK,), placeholder=range(1, 80))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        found, silent = counted(seen, CHECK), _silent(seen)
        if found and (share(seen, CHECK) >= PROOF_SHARE or (silent and found >= FEW)):
            return self.confirmed(*rows(seen, CHECK), *silent)
        dropped = lines(seen, DROPPED, weight=6.0) if found else ()
        return conclude(self, (*rows(seen, CHECK, weight=0.5), *dropped) or clean(seen, CHECK), missing=("data",))


def _silent(seen: Evidence) -> tuple[Exhibit, ...]:
    held = outputs(seen)
    empty = [output for output in held if not output.text.strip()]
    if len(held) < 3 or len(empty) < SILENT * len(held):
        return ()
    count, total = len(empty), len(held)
    return (
        say(
            f"{count} of {total} answers are empty",
            f"{total} 条回答里有 {count} 条是空的",
            3.0,
            section="outputs",
            where=empty[0].where,
        ),
    )
