"""Quality lost in merging or quantising."""

import re

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Output, Score, Scores
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms import _outputs as read
from tuneclinic.symptoms._scores import MERGED, NOISE, change, told, variants

DESCRIBED = (("before", "merged or quantised"), ("之前", "合并或量化后"))

LOOP_EXCESS = 0.3
"""By how much the share of broken answers must grow from the unmerged to the merged model."""


class WorseAfterMerge(Symptom):
    id = "worse-after-merge"
    letter = "E"
    needs = ("scores", "outputs")
    search = (
        "merged model is worse than the adapter",
        "merge_and_unload gives bad results",
        "quality drops after quantization to int4",
        "GPTQ AWQ accuracy loss after fine-tuning",
        "QLoRA merge output is garbage",
        "合并 LoRA 之后效果变差",
        "量化后掉点严重",
        "merge 之后和 adapter 推理结果不一致",
        "performance drop after merging lora into base",
        "merged weights give different outputs",
        "accuracy drops after 4-bit quantization",
        "导出合并模型后回答变差",
    )

    en = SymptomCard(
        title="Worse after merging or quantising",
        seen="With the adapter loaded on top, the model is good. Merged into the base, or quantised, it scores lower or writes nonsense.",
        check="Compare the logits of one row before and after. In which dtype was the merge done? Was the adapter trained on a 4-bit base and merged into the 16-bit one? Which text was used to calibrate the quantiser? Does the merged folder hold the same tokenizer?",
        treatment="Merge in fp32 into the base that the adapter was trained on (for QLoRA the dequantised one). Save the tokenizer with it. Calibrate the quantiser on domain data.",
        prevention="Save the logits of a few rows before the merge, and let the release script compare them.",
    )
    zh = SymptomCard(
        title="合并/量化后掉点",
        seen="挂着 adapter 推理是好的，合并进 base 或者量化之后分数掉了，或者开始胡说。",
        check="同一条样本合并前后比 logits。合并时用的什么 dtype？adapter 是在 4-bit base 上训的、却合并进了 16-bit base？量化校准集用的什么文本？合并目录里的 tokenizer 还是不是原来那份？",
        treatment="用 fp32 合并，合并到训练时用的那个 base（QLoRA 用反量化后的），tokenizer 一起保存；量化用领域数据校准。",
        prevention="合并前留几条样本的 logits，发布脚本里自动比对。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                scores=Scores(
                    (
                        Score("contracts", "f1", 0.81, where="scores.csv:2"),
                        Score("contracts (merged)", "f1", 0.55, where="scores.csv:3"),
                    )
                )
            )
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                scores=Scores(
                    (
                        Score("contracts", "f1", 0.81, where="scores.csv:2"),
                        Score("contracts (int4)", "f1", 0.802, where="scores.csv:3"),
                    )
                )
            )
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        pairs = [
            (moved, plain, merged)
            for plain, merged in variants(seen)
            if (moved := change(plain.tuned, merged.tuned, lower=plain.lower)) is not None
        ]
        exhibits = {
            verdict: [
                told(merged, plain.tuned or 0.0, merged.tuned or 0.0, *DESCRIBED)
                for moved, plain, merged in pairs
                if (moved < -NOISE) == verdict
            ]
            for verdict in (True, False)
        }
        if exhibits[True]:
            return self.shown(*exhibits[True][:3])
        before, after = (_broken(side) for side in _sides(read.items(seen)))
        if before is not None and after is not None:
            text = read.counted(after[0], after[1], "of the merged or quantised model are broken", "（合并或量化后）是坏的")
            first = read.quoted(after[2], text)
            return self.shown(first) if after[0] / after[1] > before[0] / before[1] + LOOP_EXCESS else self.absent(first)
        if pairs:
            return self.absent(*exhibits[False][:3])
        return self.not_checked("scores", "outputs")


def _sides(outputs: tuple[Output, ...]) -> tuple[list[Output], list[Output]]:
    """Outputs of the unmerged and of the merged model, told apart by the names of their files."""
    merged = [output for output in outputs if re.search(MERGED, output.source)]
    return [output for output in outputs if output not in merged], merged


def _broken(outputs: list[Output]) -> tuple[int, int, Output] | None:
    """How many answers are empty or repeat themselves, of how many, and the first of them."""
    if not outputs:
        return None
    bad = [output for output in outputs if not output.text.strip() or read.repeats(output.text)]
    return len(bad), len(outputs), (bad or outputs)[0]
