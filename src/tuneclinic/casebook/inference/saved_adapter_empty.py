"""The saved adapter holds no weights."""

from tuneclinic.case import Card, Case
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.examples import Lazy
from tuneclinic.sections import WeightFile, Weights
from tuneclinic.words import Text

SMALLEST_ADAPTER = 4096
"""Bytes. Rank 1 on one projection of the smallest public model (hidden 576) is 4.6 kB in 16 bit; reports of empty saves show
400 to 900 bytes, and one of 4 kB (a header of names alone)."""


class SavedAdapterEmpty(Case):
    id = "saved-adapter-empty"
    symptoms = {"worse-in-inference": 0.06}
    stage = "environment"
    needs = ("weights",)
    probe = "weights"
    search = (
        "adapter file is only 443 bytes",
        "adapter_model.safetensors is tiny",
        "adapter 文件只有几百字节",
        "保存的 LoRA 权重是空的",
    )

    en = Card(
        title="The saved adapter is empty",
        sign="adapter_model.safetensors has only a few hundred bytes, or its tensors have size 0. Loading it raises no error, and the model answers exactly like the base.",
        cause="The save found no adapter weights: a script replaces model.state_dict (copied from old alpaca-lora code), or ZeRO-3/FSDP parameters were saved while partitioned, so that each tensor is a size-0 placeholder. PEFT leaves missing weights at their initial value, lora_B starts at zero, and a zero lora_B changes nothing.",
        remedy="Delete the line that replaces model.state_dict and save with trainer.save_model(). Under ZeRO-3 set stage3_gather_16bit_weights_on_model_save to true, or save accelerator.get_state_dict(model). If the checkpoint with the optimizer states is still there, zero_to_fp32.py recovers the weights; otherwise train again.",
        verify="The file has megabytes, its header lists one lora_A and one lora_B for every target module, and logits with the adapter differ from the base.",
        prevention="After the first save of every run, let the training script reload the adapter and compare one row of logits with the base.",
        question="How many bytes is adapter_model.safetensors (or adapter_model.bin), and is there a line in the script that assigns model.state_dict?",
        quiz="An adapter file has 443 bytes and loads without an error. How does the model answer? Like the base model: the file holds nothing, and a missing lora_B stays zero.",
    )
    zh = Card(
        title="保存的 adapter 是空的",
        sign="adapter_model.safetensors 只有几百字节，或里面的张量 size 为 0；加载不报错，但输出与 base 模型一模一样。",
        cause="保存时没有拿到 adapter 权重：脚本覆盖了 model.state_dict（早期 alpaca-lora 的写法），或在 ZeRO-3/FSDP 分片状态下直接保存，每个张量只剩 size 0 的占位。PEFT 加载时缺失的权重保持初始值，lora_B 的初始值是零，等于没有 adapter。",
        remedy="删掉覆盖 model.state_dict 的那一行，用 trainer.save_model() 保存。ZeRO-3 下把 stage3_gather_16bit_weights_on_model_save 设为 true，或保存 accelerator.get_state_dict(model)。带优化器状态的 checkpoint 还在的话，可用 zero_to_fp32.py 找回权重，否则只能重训。",
        verify="文件应有若干 MB，文件头里每个目标模块各有一个 lora_A 和 lora_B，并且挂上 adapter 后 logits 与 base 不同。",
        prevention="每次训练第一次保存之后，让训练脚本立刻重新加载，拿一条样本和 base 对比 logits。",
        question="adapter_model.safetensors（或 adapter_model.bin）有多少字节？脚本里有没有给 model.state_dict 赋值的语句？",
        quiz="adapter 文件只有 443 字节，加载也不报错，模型会怎么回答？和 base 一样：文件里没有权重，缺失的 lora_B 保持为零。",
    )
    sick = Lazy(
        lambda: [
            Evidence(weights=Weights((WeightFile("adapter_model.safetensors", 443),))),
            Evidence(
                weights=Weights((WeightFile("adapter_model.safetensors", 9000, tensors=2, empty=("q_proj.lora_B.weight",)),))
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                weights=Weights((WeightFile("adapter_model.safetensors", 9_000_000, tensors=2, lora_b=1, values_read=True),))
            )
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        adapters = [file for file in seen.weights.files if file.adapter] if seen.weights else []
        if not adapters:
            return self.not_checked("weights")
        for file in adapters:
            if file.size < SMALLEST_ADAPTER:
                text = Text(f"{file.source} is {file.size} bytes long", f"{file.source} 只有 {file.size} 字节")
                return self.confirmed(Exhibit(text, file.source, file.source, weight=9, section="weights"))
            if file.empty:
                text = Text(
                    f"{len(file.empty)} tensors have size 0, for example {file.empty[0]}",
                    f"{len(file.empty)} 个张量 size 为 0，例如 {file.empty[0]}",
                )
                return self.confirmed(Exhibit(text, file.source, file.source, weight=9, section="weights"))
        largest = max(adapters, key=lambda file: file.size)
        text = Text(f"{largest.source} has {largest.size:,} bytes", f"{largest.source} 有 {largest.size:,} 字节")
        return self.ruled_out(Exhibit(text, largest.source, largest.source, weight=-9, section="weights"))
