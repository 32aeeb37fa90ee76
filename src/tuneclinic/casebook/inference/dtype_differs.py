"""The server computes in another number format than training did."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import broken_answers, texts, worse_scores
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

NAMES = {
    "half": "float16",
    "fp16": "float16",
    "float16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "float32": "float32",
    "f32": "float32",
}
"""What servers and configurations call the three formats."""
NOT_A_NUMBER = (
    r"probability tensor contains either|logits.{0,40}(?:nan|inf)\b|nan.{0,30}logits|invalid (?:probabilit|multinomial)"
)
"""What a sampler says of logits that have overflowed."""


class DtypeDiffers(Case):
    id = "dtype-differs"
    symptoms = {"worse-in-inference": 0.09}
    stage = "environment"
    needs = ("serving", "log", "crash")
    probe = "parity"
    change = {"dtype": "bfloat16"}
    signatures = (r"casting torch\.bfloat16 to torch\.float16",)
    search = (
        "vllm dtype half output garbage",
        "Casting torch.bfloat16 to torch.float16",
        "bf16 model served in fp16 gives exclamation marks",
        "probability tensor contains either inf, nan or element < 0",
        "推理精度和训练不一致 fp16 bf16",
        "V100 推理 fp16 输出感叹号",
        "bf16 训练 fp16 推理乱码",
    )

    en = Card(
        title="Training and serving use different dtypes",
        sign="Rows of exclamation marks, empty answers, or 'probability tensor contains either inf, nan'. In mild cases answers differ a little from those on the training machine. The server log says Casting torch.bfloat16 to torch.float16.",
        cause="float16 ends at 65,504. Models trained in bfloat16 (Qwen, Gemma, most since 2023) can have larger activations, which become inf and then NaN. On cards without bfloat16 (V100, T4) servers fall back to float16. A wider format does no harm; a smaller range does.",
        remedy='vLLM and SGLang: --dtype bfloat16 (or auto, which follows the checkpoint). transformers: from_pretrained(..., dtype="auto") (torch_dtype in versions before 4.56). On a card without bfloat16 use --dtype float32, or a quantised model that computes in fp32. llama.cpp: convert with --outtype bf16 or f32 before quantising.',
        verify="Logits of one prompt at the server and in the training script agree to about the second decimal, and no answer is empty or one repeated character.",
        prevention="Write the dtype into the release sheet next to the weights, and compare one row of logits on the card that will serve.",
        question="Which dtype was the model trained in, and which does the server use (config.json, --dtype, its first log lines)?",
        quiz="A bf16 model on a T4 prints '!!!!!!'. Retrain? No: float16 overflows there, and token 0 is what is left when all logits are NaN.",
    )
    zh = Card(
        title="推理精度和训练精度不一致",
        sign="输出一整串感叹号、空回答，或报 probability tensor contains either inf, nan；轻的只是和训练机上的回答略有出入。推理日志里有 Casting torch.bfloat16 to torch.float16。",
        cause="float16 最大只到 65504。用 bfloat16 训练的模型（Qwen、Gemma 以及 2023 年后的大多数）激活值可能超过它，变成 inf 再变 NaN。V100、T4 不支持 bfloat16，推理框架就退到 float16。换成更宽的格式没事，范围变窄就会出事。",
        remedy='vLLM、SGLang 用 --dtype bfloat16（或 auto，跟 checkpoint 走）；transformers 用 from_pretrained(..., dtype="auto")（4.56 之前叫 torch_dtype）。显卡不支持 bfloat16 时用 --dtype float32，或换用 fp32 计算的量化模型。llama.cpp 先以 --outtype bf16 或 f32 转换，再量化。',
        verify="同一个 prompt，推理端和训练脚本的 logits 到小数点后两位基本一致；没有空回答，也没有同一个字符刷屏。",
        prevention="dtype 写进随权重发布的配置单，并在真正上线的那张卡上对一次 logits。",
        question="模型用什么精度训练，又用什么精度推理（config.json、--dtype、推理日志开头几行）？",
        quiz="bf16 的模型在 T4 上输出一串感叹号，要重训吗？不用，是 float16 溢出，logits 全成了 NaN，只剩下 0 号 token。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                model=make.modelled(family="qwen2", dtype="bfloat16"),
                serving=own.served(dtype="half"),
                outputs=own.answered("!!!!!!!!!!!!!!!!", "!!!!!!!!!!!!!!!!", "!!!!!!!!!!!!!!!!"),
            ),
            Evidence(
                log=make.logged("WARNING config.py:1354] Casting torch.bfloat16 to torch.float16."),
                crash=make.crashed("RuntimeError", "probability tensor contains either `inf`, `nan` or element < 0"),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                model=make.modelled(family="qwen2", dtype="bfloat16"),
                serving=own.served(dtype="bfloat16"),
                outputs=own.answered("", "", ""),
            ),
            Evidence(  # wider than trained
                settings=make.configured(bf16=True),
                serving=own.served(dtype="float32"),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        cast = quoted(self, seen, weight=4.0)
        here, there = _trained(seen), NAMES.get(str(seen.serving.dtype).lower()) if seen.serving is not None else None
        auto = seen.serving is not None and str(seen.serving.dtype).lower() == "auto"
        if not cast and (there is None or here is None):
            if auto and here is not None:
                return self.ruled_out(
                    say("dtype auto follows the checkpoint", "dtype auto 跟随 checkpoint", -5.0, section="serving")
                )
            return self.not_checked("serving", "model")
        if not cast and (there in {here, "float32"}):
            text = f"trained in {here}, served in {there}", f"训练 {here}，推理 {there}"
            return self.ruled_out(say(*text, -7.0, section="serving", where=_place(seen)))
        told = f"trained in {here}, served in {there}", f"训练用 {here}，推理用 {there}"
        narrow = cast or (say(*told, 3.0, section="serving", where=_place(seen)),)
        overflow = here != "float16" and (there == "float16" or bool(cast))
        harm = (*_nan(seen), *broken_answers(seen, 5.0)) if overflow else ()
        if harm:
            return self.confirmed(*narrow, *harm)
        return self.suspected(*narrow, *worse_scores(seen, 1.0), missing=("outputs",))


def _place(seen: Evidence) -> str:
    return seen.serving.places.get("dtype", "") if seen.serving is not None else ""


def _trained(seen: Evidence) -> str | None:
    """The format of training: the switches of mixed precision, whose range the activations had, else the checkpoint's own."""
    if seen.settings is not None and seen.settings.flag("bf16"):
        return "bfloat16"
    if seen.settings is not None and seen.settings.flag("fp16"):
        return "float16"
    return NAMES.get(str(seen.model.dtype).lower()) if seen.model is not None else None


def _nan(seen: Evidence) -> tuple[Exhibit, ...]:
    """The sampler's complaint of non-finite probabilities."""
    for text, where, source, section in texts(seen):
        if re.search(NOT_A_NUMBER, text.lower()):
            return (Exhibit(text[:200], where, source, weight=5.0, section=section),)
    return ()
