"""Picture features enter the language model at the wrong scale or in the wrong dtype."""

import re

import numpy as np

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference._facts import PROJECTOR, Later, texts
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

FAR = 1000.0
"""Times a text embedding's norm: working models with a plain projector lie within two orders of magnitude."""
NEAR = 100.0
"""Times up to which nothing is wrong; between the two it stays open."""
NUMBER = r"[^\d\n-]{0,15}(\d{1,12}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?)"
IMAGE = Later(rf"(?:image|vision|visual|picture|projector)(?:(?!grad)[^\d\n]){{0,30}}norm{NUMBER}", re.IGNORECASE)
TEXT = Later(rf"(?:text|word)(?:(?!grad)[^\d\n]){{0,30}}norm{NUMBER}", re.IGNORECASE)
"""Norms as people print them before and after the insertion."""
TYPES = Later(r"expected scalar type \w+|must have the same dtype|input type .{0,40} and (?:weight|bias) type", re.IGNORECASE)


class ProjectorScaleWrong(Case):
    id = "projector-scale-wrong"
    symptoms = {"blind-to-image": 0.08}
    stage = "environment"
    needs = ("metrics", "log", "crash", "weights")
    probe = "image"
    search = (
        "image embedding norm much larger than text embeddings",
        "projector output scale vlm",
        "mm_projector dtype mismatch expected scalar type Half",
        "visual features norm too large",
        "投影层输出尺度不对",
        "图像特征范数比文本大很多",
        "mm_projector 精度不一致",
    )

    en = Card(
        title="Picture features have the wrong scale or dtype",
        sign="As soon as a picture is given, the answer turns into garbage or ignores the picture; text alone works. The norms of picture features are thousands of times those of text embeddings, or nearly zero, or NaN.",
        cause="The projector must produce vectors in the range of the language model's embeddings. A missing or doubled normalisation, a scale factor applied twice (Gemma multiplies embeddings by the square root of the hidden size), features of another vision layer, pixels without rescaling, or an overflow in float16 puts them outside it.",
        remedy="Print inputs_embeds.norm(dim=-1).median() at picture positions and at text positions. Then set mm_vision_select_layer, image_mean, image_std and do_rescale as in training, keep the projector's own norm layer, and cast once, after the projector: features.to(inputs_embeds.dtype). Load projector and vision tower in the dtype of the model (bf16 throughout).",
        verify="The median norm at picture positions is finite, within a factor of 100 of that at text positions, and the same as in training.",
        prevention="Log both norms in the first steps of each stage.",
        question="What is the median norm of the embeddings at picture positions, and what at text positions?",
        quiz="Text norm 1.1, picture norm 40. Is that a fault? Usually not; 40,000 would be one.",
    )
    zh = Card(
        title="图像特征的尺度或精度不对",
        sign="一给图就乱码或者无视图片，纯文本没问题。图像特征的范数是文本 embedding 的几千倍，或接近零，或是 NaN。",
        cause="投影层输出的向量要落在语言模型 embedding 的范围里。少做或多做一次归一化、缩放因子乘了两遍（Gemma 会把 embedding 乘以 √hidden_size）、取错了视觉塔的层、像素没做 rescale、float16 溢出，都会让它跑出范围。",
        remedy="分别打印图像位置和文本位置的 inputs_embeds.norm(dim=-1).median()。然后把 mm_vision_select_layer、image_mean、image_std、do_rescale 设得与训练一致，保留投影层自己的 norm，精度只在投影层之后转一次：features.to(inputs_embeds.dtype)。投影层、视觉塔和模型用同一精度加载（全程 bf16）。",
        verify="图像位置的范数中位数是有限值，与文本位置相差不超过 100 倍，且与训练时一致。",
        prevention="每个阶段的头几步都记录这两个范数。",
        question="图像位置和文本位置 embedding 范数的中位数各是多少？",
        quiz="文本范数 1.1，图像范数 40，有问题吗？一般没有；40000 才有问题。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(log=make.logged("debug: image features norm = 41235.0", "debug: text embeds norm = 1.13")),
            Evidence(metrics=make.ran(image_norm=[0.0004] * 5, text_norm=[1.1] * 5)),
            Evidence(
                crash=make.crashed(
                    "RuntimeError",
                    "mat1 and mat2 must have the same dtype, but got Float and Half",
                    "llava_arch.py:141 in encode_images",
                    "multimodal_projector/builder.py:33 in mm_projector.forward",
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(log=make.logged("debug: image features norm = 41.2", "debug: text embeds norm = 1.13")),
            Evidence(metrics=make.ran(image_norm=[2.0] * 5, text_norm=[1.1] * 5), outputs=make.answered_blindly()),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        typed = _typed(seen)
        if typed:
            return self.confirmed(*typed)
        norms = _logged(seen) or _measured(seen)
        if norms is None:
            return self._by_weights(seen)
        picture, text, where, source, section = norms
        if text <= 0 or not np.isfinite(text):
            return self.not_checked("log")
        times = picture / text
        told = (
            f"norm at picture positions {picture:.3g}, at text positions {text:.3g}",
            f"图像位置范数 {picture:.3g}，文本位置 {text:.3g}",
        )
        if not np.isfinite(times) or times >= FAR or times <= 1 / FAR:
            return self.confirmed(say(*told, 7.0, section=section, where=where, source=source))
        if 1 / NEAR <= times <= NEAR:
            return self.ruled_out(say(*told, -6.0, section=section, where=where, source=source))
        return self.not_checked("log", exhibits=(say(*told, 0.0, section=section, where=where, source=source),))

    def _by_weights(self, seen: Evidence) -> Finding:
        for file in seen.weights.files if seen.weights is not None else ():
            bad = [name for name in file.nonfinite if re.search(PROJECTOR, name)]
            if bad:
                text = f"{bad[0]} contains NaN or infinity", f"{bad[0]} 里有 NaN 或 inf"
                return self.suspected(say(*text, 4.0, section="weights", where=file.source, source=file.source))
        return self.not_checked("log")


def _typed(seen: Evidence) -> tuple[Exhibit, ...]:
    """A dtype error whose innermost frames lie in the projector."""
    for error in seen.crash.errors if seen.crash is not None else ():
        inner = " ".join(error.frames[-4:])
        if TYPES.search(error.message) and re.search(rf"{PROJECTOR}|multimodal_projector", inner):
            return (Exhibit(error.quote[:200], error.where, error.source, weight=8.0, section="crash"),)
    return ()


def _logged(seen: Evidence) -> tuple[float, float, str, str, str] | None:
    """Both norms as lines of the log print them, with the place of the picture's."""
    picture: tuple[float, str, str] | None = None
    text: float | None = None
    for line, where, source, section in texts(seen):
        if section != "log":
            continue
        if picture is None and (match := IMAGE.search(line)):
            picture = (float(match[1]), where, source)
        if text is None and (match := TEXT.search(line)):
            text = float(match[1])
    if picture is None or text is None:
        return None
    return picture[0], text, picture[1], picture[2], "log"


def _measured(seen: Evidence) -> tuple[float, float, str, str, str] | None:
    """Medians of both norms where the run logged them as series."""
    if seen.metrics is None:
        return None
    found: dict[str, float] = {}
    for name, series in seen.metrics.series.items():
        if "norm" not in name or "grad" in name or not len(series):
            continue
        side = "text" if re.search(r"text|word", name) else "image" if re.search(r"image|vision|visual|projector", name) else ""
        if side:
            found.setdefault(side, float(np.median(series.values[-50:])))
    if len(found) < 2:
        return None
    return found["image"], found["text"], seen.metrics.source, seen.metrics.source, "metrics"
