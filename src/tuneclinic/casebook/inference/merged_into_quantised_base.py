"""The adapter was merged into a quantised base."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import clean, facts, quoted
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence


class MergedIntoQuantisedBase(Case):
    id = "merged-into-quantised-base"
    symptoms = {"worse-after-merge": 0.22}
    stage = "environment"
    needs = ("script", "log", "crash")
    probe = "parity"
    signatures = (
        r"merge (?:lora|.{1,20}) module to [48]-bit linear may get different generations",
        r"cannot merge (?:lora|adapter)s? (?:layers|to|into|when).{0,80}(?:8-bit|4-bit|quantiz)",
        r"cannot merge adapters to a quantized model",
    )
    search = (
        "Merge lora module to 4-bit linear may get different generations due to rounding errors",
        "merge_and_unload on 4bit model",
        "Cannot merge LORA layers when the model is loaded in 8-bit mode",
        "Cannot merge adapters to a quantized model",
        "QLoRA 怎么合并",
        "4bit 底座合并 LoRA 掉点",
        "合并到量化模型",
    )

    en = Card(
        title="Merged into a quantised base model",
        sign="PEFT warns that merging into a 4-bit or 8-bit linear 'may get different generations due to rounding errors', or refuses on a GPTQ base. The merged model is clearly worse than base plus adapter.",
        cause="The merge adds the change to 4-bit weights and rounds the sum to 4 bits again. Sixteen levels per block lose most of what LoRA learnt, and the base is rounded a second time.",
        remedy="Merge into a 16-bit or 32-bit base: from_pretrained(base, dtype=torch.float32) without quantization_config, then PeftModel.from_pretrained(...).merge_and_unload(). After QLoRA it is more exact to dequantise the NF4 base (model.dequantize()) and merge into that. Quantise last, with calibration. LLaMA-Factory: no quantization_bit in the export file. axolotl: axolotl merge-lora config.yml loads the base unquantised by itself.",
        verify="The merge prints no warning, and the argmax of the logits before and after agrees at nearly every position.",
        prevention="Keep a separate merge script that never loads a quantised base and compares logits at its end.",
        question="Was the base model loaded in 4 or 8 bit when merge_and_unload was called?",
        quiz="QLoRA training, merging, quantising to AWQ: in which order? Train the adapter, dequantise the base, merge in fp32, then AWQ.",
    )
    zh = Card(
        title="合并到了量化过的 base 上",
        sign="PEFT 警告 Merge lora module to 4-bit（或 8-bit）linear may get different generations due to rounding errors，GPTQ 的 base 则直接报错。合并后的模型明显不如 base 挂 adapter。",
        cause="合并时把改动加到 4 bit 权重上，再舍入回 4 bit：一个 block 只有 16 个档位，LoRA 学到的大部分都丢了，base 也又舍入了一次。",
        remedy="合并到 16 或 32 bit 的 base 上：from_pretrained(base, dtype=torch.float32)，不带 quantization_config，再 PeftModel.from_pretrained(...).merge_and_unload()。QLoRA 训的，更准确的做法是先把 NF4 的 base 反量化（model.dequantize()）再合并。量化放在最后，并做校准。LLaMA-Factory：导出配置里不要写 quantization_bit。axolotl：axolotl merge-lora config.yml 会自动以非量化方式加载 base。",
        verify="合并过程没有警告，合并前后 logits 的 argmax 基本一致。",
        prevention="合并单独写一个脚本，不加载量化的 base，结尾自动比对 logits。",
        question="调用 merge_and_unload 时，base 是不是以 4 bit 或 8 bit 加载的？",
        quiz="QLoRA 训练、合并、量化成 AWQ，顺序是什么？先训 adapter，再反量化 base，用 fp32 合并，最后 AWQ。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(script=make.scripted("merge-into-quantised", quote="model = model.merge_and_unload()")),
            Evidence(
                log=make.logged(
                    "UserWarning: Merge lora module to 4-bit linear may get different generations due to rounding errors."
                )
            ),
            Evidence(crash=make.crashed("ValueError", "Cannot merge LORA layers when the model is loaded in 8-bit mode")),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(script=make.scripted(checked=("merge-in-half", "merge-into-quantised"))),
            Evidence(script=make.scripted("merge-in-half", checked=("merge-into-quantised",))),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = (*quoted(self, seen), *facts(seen, "merge-into-quantised", weight=9.0))
        if proof:
            return self.confirmed(*proof)
        spoken = clean(seen, "merge-into-quantised")
        return self.ruled_out(*spoken) if spoken else self.not_checked("script", "log")
