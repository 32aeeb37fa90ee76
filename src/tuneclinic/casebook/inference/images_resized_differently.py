"""Training and serving give the model pictures of different size."""

import math
import re
from typing import Any

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import as_number, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

PROOF = 4.0
"""Times the area: half or double the side, which moves small print below or above what is legible."""
READS_PROCESSOR = frozenset({"vllm", "sglang", "lmdeploy", "transformers", "tgi"})
"""Engines that size pictures by the processor's own file unless told otherwise."""
SLIGHT = 1.3
"""Times the area up to which two limits are the same: one patch row more or less at usual sizes."""
SIDE = 5000
"""A limit below this is a side in pixels and not an area: the smallest public limit on area is 28 × 28 × 4 = 3,136 and no one sets it
as a maximum, the largest side in use is 4,096."""


class ImagesResizedDifferently(Case):
    id = "images-resized-differently"
    symptoms = {"blind-to-image": 0.045}
    stage = "environment"
    needs = ("settings", "serving")
    probe = "image"
    search = (
        "max_pixels different between training and inference",
        "qwen2-vl vllm results worse than local, MAX_PIXELS",
        "bounding boxes shifted after deployment",
        "image resolution mismatch training serving",
        "训练和推理图片分辨率不一致",
        "MAX_PIXELS 设置不一致",
        "部署后坐标框偏移",
        "vllm 多模态效果变差 分辨率",
    )

    en = Card(
        title="Training and serving resize pictures differently",
        sign="At the server large objects are right, but small text and boxes are wrong; locally everything is right. Coordinates are off by a constant factor.",
        cause="Each tool has its own limit: MAX_PIXELS in ms-swift, image_max_pixels in LLaMA-Factory (589,824 by default, 262,144 in older versions), max_pixels in preprocessor_config.json (12.8 million for Qwen2-VL), mm_processor_kwargs in vLLM. The limit decides how many tokens a picture gets, and a model tuned on 300 tokens per picture meets unknown input at 4,000, or the reverse.",
        remedy='Set one limit everywhere. vLLM: --mm-processor-kwargs \'{"min_pixels": 3136, "max_pixels": 1003520}\'. ms-swift: MAX_PIXELS=1003520 for sft and deploy. LLaMA-Factory: image_max_pixels: 1003520 in training and api. transformers: AutoProcessor.from_pretrained(dir, max_pixels=1003520), then processor.save_pretrained into the folder you publish. Boxes in absolute coordinates must be scaled by the same factor as the picture.',
        verify="image_grid_thw (or prompt_tokens) of one picture is the same in training and at the server.",
        prevention="Publish preprocessor_config.json with the limits of training, and compare the picture's token count in the release check.",
        question="Which max_pixels (or picture size) did training use, and which does the server use?",
        quiz="576 visual tokens in training, 16,384 at the server: sharper, so better? No: the model was never trained on such sequences.",
    )
    zh = Card(
        title="训练和推理的图片缩放不一致",
        sign="大目标答得对，小字、坐标框在推理端就错，本地却没问题；坐标整体差一个固定倍数。",
        cause="每个工具都有自己的上限：ms-swift 的 MAX_PIXELS，LLaMA-Factory 的 image_max_pixels（默认 589824，旧版 262144），preprocessor_config.json 里的 max_pixels（Qwen2-VL 是 1280 多万），vLLM 的 mm_processor_kwargs。这个上限决定一张图有多少 token，每张图 300 个 token 训出来的模型，到了 4000 个就是没见过的输入，反过来也一样。",
        remedy='全链路用同一个上限。vLLM：--mm-processor-kwargs \'{"min_pixels": 3136, "max_pixels": 1003520}\'。ms-swift：sft 和 deploy 都设 MAX_PIXELS=1003520。LLaMA-Factory：训练和 api 都写 image_max_pixels: 1003520。transformers：AutoProcessor.from_pretrained(dir, max_pixels=1003520)，再用 processor.save_pretrained 存到发布目录。绝对坐标的框要和图片按同一比例缩放。',
        verify="同一张图在训练和推理端的 image_grid_thw（或 prompt_tokens）相同。",
        prevention="随权重发布 preprocessor_config.json，里面写训练时的上限；发布检查比对一张图的 token 数。",
        question="训练时的 max_pixels（或图片尺寸）是多少？推理端呢？",
        quiz="训练时 576 个视觉 token，推理端 16384 个，更清楚所以更好？不会，模型从没训过这么长的图像序列。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("ms-swift", image_max_pixels=12845056),
                serving=own.served("vllm", image={"max_pixels": 1003520.0}),
            ),
            Evidence(
                settings=make.configured("llama-factory", image_max_pixels=262144),
                serving=own.served("vllm", image={"max_pixels": 12845056.0}),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                settings=make.configured("ms-swift", image_max_pixels="1280*28*28"),
                serving=own.served("vllm", image={"max_pixels": 1003520.0}),
                outputs=make.answered_blindly(),
            ),
            Evidence(
                settings=make.configured("axolotl", image_max_pixels=512),
                serving=own.served("vllm", image={"max_pixels": 262144.0}),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        setting = seen.settings.values.get("image_max_pixels") if seen.settings is not None else None
        here = area(setting.value) if setting is not None else None
        image = seen.serving.image if seen.serving is not None else {}
        there = area(image.get("max_pixels", image.get("image_max_pixels"))) or _by_default(seen)
        if setting is None or here is None or there is None:
            return self.not_checked("serving" if here is not None else "settings")
        times = max(here, there) / min(here, there)
        text = (
            f"pictures of up to {here:,.0f} pixels in training ({setting.where}), {there:,.0f} at the server: {times:.3g} times",
            f"训练时图片最大 {here:,.0f} 像素（{setting.where}），推理端 {there:,.0f}：差 {times:.3g} 倍",
        )
        place = seen.serving.places.get("image", "") if seen.serving is not None else ""
        place = place or (seen.model.places.get("image_max_pixels", "") if seen.model is not None else "") or setting.where
        if times <= SLIGHT:
            return self.ruled_out(say(*text, -6.0, section="serving", where=place))
        change = {"image_max_pixels": int(there)}
        if times >= PROOF:
            return self.confirmed(say(*text, 6.0, section="serving", where=place), change=change)
        return self.suspected(say(*text, 2.0, section="serving", where=place), change=change, missing=("outputs",))


def _by_default(seen: Evidence) -> float | None:
    """The processor's own limit, where a server or a script of inference says nothing else; None where none is known to use it."""
    fact = seen.script.fact("processor-default-pixels") if seen.script is not None else None
    asks = seen.serving is not None and seen.serving.engine in READS_PROCESSOR
    return area(seen.model.image_max_pixels) if seen.model is not None and (fact is not None or asks) else None


def area(value: Any) -> float | None:
    """A limit in pixels of area: a number, a product as people write it (1280*28*28), or a side; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,9}(?:\s*\*\s*\d{1,9}){1,3}\s*", value):
        found: float | None = float(math.prod(int(part) for part in value.split("*")))
    else:
        found = as_number(value)
    if found is None or not 1 <= found < 1e12:
        return None
    return found * found if found < SIDE else found
