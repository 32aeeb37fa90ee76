"""The adapter was merged in 16 bit and its small changes were rounded away."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import merged_scores
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class MergedInLowPrecision(Case):
    id = "merged-in-low-precision"
    symptoms = {"worse-after-merge": 0.25}
    stage = "environment"
    needs = ("script", "scores")
    probe = "parity"
    search = (
        "merge_and_unload bf16 quality loss",
        "adapter good, merged model worse",
        "merge lora in float32",
        "merged model different logits",
        "合并 LoRA 之后效果变差",
        "merge_and_unload 精度损失",
        "合并后和挂 adapter 输出不一致",
    )

    en = Card(
        title="The adapter was merged in 16 bit",
        sign="With the adapter loaded separately the score is right. After merge_and_unload it is a few points lower, and long generations differ.",
        cause="W + B·A is rounded to the dtype of W. bfloat16 has 8 significant bits, so a change smaller than about 1/400 of the weight is lost, and at a low learning rate or rank many changes are that small. Computing B·A in fp16 on a CPU adds more error.",
        remedy='Merge in fp32 and round once at the end: base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32); merged = PeftModel.from_pretrained(base, "out/adapter").merge_and_unload(); merged.to(torch.bfloat16).save_pretrained("merged"). LLaMA-Factory: llamafactory-cli export with export_device: cpu and infer_dtype: float32. Or do not merge: vLLM --enable-lora and SGLang --lora-paths serve the adapter as it is.',
        verify="On ten prompts the logits before and after the merge differ only by the rounding of the dtype (about 0.05 in bf16), and the argmax agrees.",
        prevention="Save logits from before and after every merge, and reject a merge whose argmax differs at more than 1 % of the positions.",
        question="In which dtype was the base model loaded when you merged?",
        quiz="The change is 0.001, the weight is 0.9, merged in bf16. What is left of the change? Nothing: bf16 values near 0.9 are 0.004 apart.",
    )
    zh = Card(
        title="用半精度合并了 adapter",
        sign="挂着 adapter 评测分数正常，merge_and_unload 之后低几个点，长文本生成走着走着就不一样了。",
        cause="W + B·A 会按 W 的精度舍入。bfloat16 只有 8 位有效位，改动小于权重的 1/400 左右就没了，而学习率低、rank 小时很多改动正好这么小。在 CPU 上用 fp16 算 B·A 误差更大。",
        remedy='用 fp32 合并，最后只舍入一次：base = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)；merged = PeftModel.from_pretrained(base, "out/adapter").merge_and_unload()；merged.to(torch.bfloat16).save_pretrained("merged")。LLaMA-Factory：llamafactory-cli export 的配置写 export_device: cpu、infer_dtype: float32。或者干脆不合并：vLLM --enable-lora、SGLang --lora-paths 直接挂 adapter。',
        verify="取 10 条 prompt 对比合并前后的 logits：差异只是该精度的舍入（bf16 约 0.05），argmax 一致。",
        prevention="每次合并都存一份前后 logits，argmax 不一致的位置超过 1% 就不放行。",
        question="合并时 base 是用什么精度加载的？",
        quiz="改动是 0.001，权重是 0.9，用 bf16 合并，改动还剩多少？一点不剩：bf16 在 0.9 附近的间隔是 0.004。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                script=make.scripted("merge-in-half", quote="model = model.merge_and_unload()"),
                scores=own.scored(("contracts", 0.81), ("contracts (merged)", value)),
            )
            for value in (0.74, 0.62)
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # merged in half, and nothing was lost
                script=make.scripted("merge-in-half", quote="model = model.merge_and_unload()"),
                scores=own.scored(("contracts", 0.81), ("contracts (merged)", 0.808)),
            ),
            Evidence(  # lost, and merged in fp32: another cause
                script=make.scripted(checked=("merge-in-half", "merge-into-quantised")),
                scores=own.scored(("contracts", 0.81), ("contracts (merged)", 0.55)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        halved, scores = facts(seen, "merge-in-half", weight=3.0), merged_scores(seen, 5.0)
        if not halved:
            spoken = clean(seen, "merge-in-half")
            return self.ruled_out(*spoken) if spoken else self.not_checked("script")
        if not scores:
            return self.suspected(*halved, missing=("scores",))
        return self.confirmed(*halved, *scores) if scores[0].weight > 0 else self.ruled_out(*halved, *scores)
