"""The adapter runs on a base of another quantisation than it was trained on."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import broken_answers, same_as_base, worse_scores
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import number, say, text_of
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Adapter

BITSANDBYTES = ("bitsandbytes", "bnb", "nf4", "fp4")
"""Names of the quantisation that QLoRA trains on."""


class QuantisedBaseDiffers(Case):
    id = "quantised-base-differs"
    symptoms = {"worse-in-inference": 0.08}
    stage = "environment"
    needs = ("serving", "settings", "model")
    probe = "parity"
    change = {"load_in_4bit": True}
    search = (
        "qlora adapter on fp16 base gives different results",
        "trained in 4bit, inference in 16bit worse",
        "adapter trained on nf4 served on awq",
        "vllm lora with bitsandbytes base",
        "QLoRA 训练 4bit 推理 16bit 效果变差",
        "adapter 换了量化方式的 base",
        "量化底座和训练时不一样",
    )

    en = Card(
        title="The adapter runs on another base model",
        sign="After QLoRA the answers are good in the training session, and somewhat worse when the same adapter is loaded on a 16-bit, AWQ or GGUF base.",
        cause="QLoRA trains the adapter on top of the rounding errors of the 4-bit base, and the adapter partly corrects them. On another base those corrections are errors themselves. The loss is small on large models and clearly visible on small ones; with a base of another quantisation, two roundings add up.",
        remedy="Serve the base you trained on: vLLM --quantization bitsandbytes --enable-lora --lora-modules mine=PATH; transformers: the same BitsAndBytesConfig, then PeftModel.from_pretrained. If it has to be another format: dequantise the 4-bit base to 16 bit, merge into that, and quantise the result again with a calibration set of your domain.",
        verify="On ten prompts the argmax of the logits agrees between training base and serving base at nearly all positions, and the task score is within noise.",
        prevention="Write quantisation type and compute dtype of the training base into the release sheet, and decide how to serve before you train with QLoRA.",
        question="Was the adapter trained on a 4-bit or 8-bit base, and on which base does it run now?",
        quiz="An adapter trained by QLoRA on NF4 is loaded on the 16-bit base: more precise, so better? Not necessarily: it learnt to work with NF4's rounding.",
    )
    zh = Card(
        title="推理用的 base 和训练时不同",
        sign="QLoRA 训完，在训练环境里回答不错；同一个 adapter 挂到 16 bit、AWQ 或 GGUF 的 base 上，效果差一些。",
        cause="QLoRA 的 adapter 是在 4 bit base 的舍入误差之上训出来的，本身就在补偿这些误差。换一个 base，这些补偿就成了误差。大模型上掉得少，小模型很明显；换成另一种量化方式，则是两次舍入叠加。",
        remedy="用训练时的 base 推理：vLLM 加 --quantization bitsandbytes --enable-lora --lora-modules mine=PATH；transformers 用同样的 BitsAndBytesConfig 加载，再 PeftModel.from_pretrained。必须换格式的话，先把 4 bit base 反量化成 16 bit，合并到这份权重上，再用本领域的校准集重新量化。",
        verify="取 10 条 prompt，对比训练 base 和推理 base 的 logits：argmax 基本一致，任务分数落在噪声范围内。",
        prevention="训练 base 的量化类型、计算精度写进发布配置单；决定用 QLoRA 之前先想好怎么部署。",
        question="训练时 base 是不是 4 bit / 8 bit 量化的？现在 adapter 挂在什么 base 上？",
        quiz="NF4 上用 QLoRA 训的 adapter，挂到 16 bit 的 base 上更精确，所以更好？不一定，它学的是怎么配合 NF4 的舍入。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("llama-factory", quantization_bits=4, method="lora"),
                serving=own.served("vllm", adapter="out/adapter", quantization="awq"),
                scores=own.lost(),
            ),
            Evidence(
                settings=make.configured("axolotl", load_in_4bit=True, method="qlora"),
                model=make.modelled(adapter=Adapter(rank=16, base="Qwen/Qwen2.5-7B")),
                serving=own.served("vllm", model="Qwen/Qwen2.5-7B", adapter="out/adapter", dtype="float16"),
                scores=own.lost(),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("llama-factory", quantization_bits=4, method="lora"),
                serving=own.served("vllm", adapter="out/adapter", quantization="bitsandbytes"),
                scores=own.lost(),
            ),
            Evidence(  # never quantised, on either side
                settings=make.configured("axolotl", load_in_4bit=False, method="lora"),
                serving=own.served("vllm", adapter="out/adapter", dtype="bfloat16"),
                scores=own.lost(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        bits, serving = _bits(seen), seen.serving
        if bits is None or serving is None or serving.adapter is None:
            return self.not_checked("serving" if bits is not None else "settings")
        there = (serving.quantization or "").lower()
        place = serving.places.get("quantization", serving.places.get("adapter", ""))
        same = any(name in there for name in BITSANDBYTES) if bits else not there
        spoken = f"{bits}-bit" if bits else "16-bit"
        shown = f"a {there} base" if there else "an unquantised base"
        text = (
            f"trained on a {spoken} base, the adapter is served on {shown}",
            f"训练用的是 {spoken} 的 base，推理时 adapter 挂在{there or '未量化的'} base 上",
        )
        if same:
            return self.ruled_out(say(*text, -7.0, section="serving", where=place))
        differs = say(*text, 3.0, section="serving", where=place)
        harm: tuple[Exhibit, ...] = (*worse_scores(seen, 4.0), *broken_answers(seen, 1.0))
        if any(exhibit.section == "scores" for exhibit in harm) and not any(e.weight > 0 for e in same_as_base(seen)):
            return self.confirmed(differs, *harm)
        return self.suspected(differs, *harm, missing=("scores",))


def _bits(seen: Evidence) -> int | None:
    """Bits of the base in training; 0 where it was expressly not quantised, None where nothing says."""
    given = number(seen, "quantization_bits")
    if given in {4.0, 8.0}:
        return int(given or 0)
    flags = {4: _flag(seen, "load_in_4bit"), 8: _flag(seen, "load_in_8bit")}
    for bits, flag in flags.items():
        if flag:
            return bits
    if text_of(seen, "method") == "qlora":
        return 4
    return 0 if False in flags.values() or text_of(seen, "method") == "full" else None


def _flag(seen: Evidence, name: str) -> bool | None:
    return seen.settings.flag(name) if seen.settings is not None else None
