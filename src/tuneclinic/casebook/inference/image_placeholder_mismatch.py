"""The number of image placeholders in the text is not the number of image features."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference._facts import Later, texts
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import quoted, say, setting
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Data, RowSet

COUNTS = (
    Later(r"tokens?\s*[:=]\s*(\d{1,9})\D{1,20}features?\s*[:=]?\s*(\d{1,9})", re.IGNORECASE),
    Later(r"number of image tokens is (\d{1,9}) while the number of images? given to the model is (\d{1,9})", re.IGNORECASE),
    Later(r"(\d{1,9}) image tokens? .{0,60}?(\d{1,9}) image (?:features|embeddings|patches)", re.IGNORECASE),
)
"""Placeholders in the text, features of the pictures: as transformers, LLaVA and others print them."""


class ImagePlaceholderMismatch(Case):
    id = "image-placeholder-mismatch"
    symptoms = {"blind-to-image": 0.25, "crashes": 0.09}
    stage = "data"
    needs = ("crash", "log", "data")
    probe = "image"
    signatures = (
        r"(?:image|video) features and (?:image|video) tokens do not match",
        r"mismatch in `?(?:image|video)`? token count between text and `?input_ids",
        r"the number of image tokens is \d+ while the number of images? given",
        r"number of images does not match number of special image tokens",
        r"the number of images in the text .{0,60} (?:should be|are) the same",
        r"number of (?:<image>|image) (?:placeholders|tokens).{0,60}(?:does not match|do not match|mismatch|inconsistent)",
        r"(?:image|<image>) (?:placeholder|token)s? .{0,80}(?:more|less|fewer) than .{0,30}images",
        r"failed to apply prompt replacement for mm_items",
        r"expected there to be \d+ prompt (?:updates|replacements|placeholders)",
    )
    search = (
        "Image features and image tokens do not match: tokens: 0, features 169",
        "Mismatch in `image` token count between text and `input_ids`",
        "number of image placeholders does not match images",
        "Failed to apply prompt replacement for mm_items image",
        "图像 token 数和特征数对不上",
        "image features and image tokens do not match 怎么办",
        "图片占位符数量不对",
    )

    en = Card(
        title="Image placeholders and features differ in number",
        sign="ValueError: Image features and image tokens do not match, tokens: T, features: F. Older code raises no error and continues with the picture in the wrong place.",
        cause="Each picture must occupy as many ids as it has features. T = 0: nothing expanded the placeholder (text collator, wrong template, wrong marker). T below F: truncation cut through the picture. T above F: an extra '<image>' or pad marker in the text. Off by one per picture: patch_size, num_additional_image_tokens or vision_feature_select_strategy of processor and model differ. Off by a factor of 2 or 4: resized twice, or another merge_size.",
        remedy="T = 0: use processor.apply_chat_template with {'type': 'image'} entries and the matching collator (Unsloth: UnslothVisionDataCollator; LLaMA-Factory: the model's own template, one <image> per picture). Cut: raise cutoff_len / max_length / sequence_len, set max_length=None in TRL, or lower max_pixels. Extra marker: remove it from the texts. Off by one: set processor.patch_size, processor.num_additional_image_tokens and processor.vision_feature_select_strategy to the model's values.",
        verify="At training length (input_ids == image_token_id).sum() equals the number of feature rows for each of a hundred rows.",
        prevention="Before training compare placeholders with pictures over the whole set, and stop at rows longer than the cut-off.",
        question="Which two numbers does the error print, and what is the maximum length of a row?",
        quiz="tokens: 14650, features: 17152. What happened? The cut-off went through a picture: raise it, or lower max_pixels.",
    )
    zh = Card(
        title="图像占位符与特征数不一致",
        sign="ValueError: Image features and image tokens do not match, tokens: T, features: F。老版本代码不报错，图插错位置继续跑。",
        cause="每张图占的 id 数必须等于特征数。T = 0：占位符根本没展开（用了纯文本 collator、模板不对、标记不对）。T 小于 F：截断切到了图中间。T 大于 F：文本里混进了多余的 <image> 或 pad 标记。每张图差 1：processor 和模型的 patch_size、num_additional_image_tokens 或 vision_feature_select_strategy 不同。差 2 倍、4 倍：resize 了两遍，或 merge_size 不同。",
        remedy="T = 0：用 processor.apply_chat_template 传 {'type': 'image'}，并用配套的 collator（Unsloth 用 UnslothVisionDataCollator；LLaMA-Factory 选对模型的 template，一张图一个 <image>）。被截断：调大 cutoff_len / max_length / sequence_len，TRL 设 max_length=None，或调小 max_pixels。多余标记：从文本里删掉。差 1：把 processor.patch_size、processor.num_additional_image_tokens、processor.vision_feature_select_strategy 设成和模型一致。",
        verify="抽 100 条，在训练长度下 (input_ids == image_token_id).sum() 都等于特征行数。",
        prevention="训练前对全量数据核对占位符数与图片数，超过截断长度的样本直接报错。",
        question="报错里的两个数是多少？一条样本最长允许多少 token？",
        quiz="tokens: 14650, features: 17152，发生了什么？截断切到了图上：调大截断长度，或调小 max_pixels。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                crash=make.crashed("ValueError", "Image features and image tokens do not match: tokens: 14650, features 17152"),
                settings=make.configured("trl", max_length=16384),
            ),
            Evidence(crash=make.crashed("ValueError", "Image features and image tokens do not match: tokens: 0, features 169")),
            Evidence(
                data=Data(
                    "messages",
                    200,
                    200,
                    checked=frozenset({"image-count"}),
                    defects=(RowSet("image-count", (17, 44), "train.jsonl"),),
                )
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(data=Data("messages", 200, 200, checked=frozenset({"image-count"}), sources=("train.jsonl",))),
            Evidence(
                data=Data("messages", 200, 200, checked=frozenset({"image-count"}), sources=("train.jsonl",)),
                outputs=make.answered_blindly(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = quoted(self, seen)
        defects = _rows(seen)
        if told or defects:
            return self.confirmed(*told, *_taken_apart(seen), *defects)
        if seen.data is not None and "image-count" in seen.data.checked:
            source = next(iter(seen.data.sources), "")
            text = (
                f"in {seen.data.rows} rows placeholders and pictures agree in number",
                f"{seen.data.rows} 条样本的占位符数与图片数一致",
            )
            return self.ruled_out(say(*text, -5.0, section="data", where=source, source=source))
        return self.not_checked("data")


def _rows(seen: Evidence) -> tuple[Exhibit, ...]:
    """Rows in which placeholders and pictures differ in number."""
    found = []
    for rows in seen.data.defect("image-count") if seen.data is not None else ():
        first = ", ".join(str(row) for row in rows.rows[:3])
        text = say(
            f"{len(rows.rows)} rows have different numbers of placeholders and pictures, for example row {first}",
            f"{len(rows.rows)} 条样本的占位符数与图片数不同，例如第 {first} 条",
        ).text
        found.append(
            Exhibit(text, f"{rows.source} row {rows.rows[0] if rows.rows else 1}", rows.source, rows.rows, 8.0, section="data")
        )
    return tuple(found)


def _taken_apart(seen: Evidence) -> tuple[Exhibit, ...]:
    """What the two counts say of the reason."""
    for text, where, source, section in texts(seen):
        match = next((match for pattern in COUNTS if (match := pattern.search(text))), None)
        if match:
            why = _why(int(match[1]), int(match[2]))
            cut = setting(seen, "max_length") if 0 < int(match[1]) < int(match[2]) else ()
            return (say(*why, section=section, where=where, source=source), *cut)
    return ()


def _why(tokens: int, features: int) -> tuple[str, str]:
    """The likeliest reason for `tokens` placeholders against `features` features, in both languages."""
    if tokens == 0:
        return (
            "no placeholder at all: the image marker was never expanded into ids",
            "一个占位符都没有：图像 id 没有展开到文本里",
        )
    if abs(tokens - features) == 1:
        return (
            "off by one: patch_size, num_additional_image_tokens or vision_feature_select_strategy of processor and model differ",
            "只差 1：processor 与模型的 patch_size、num_additional_image_tokens 或 vision_feature_select_strategy 不同",
        )
    larger, smaller = max(tokens, features), max(1, min(tokens, features))
    if larger % smaller == 0:
        times = larger // smaller
        return (
            f"off by a factor of {times}: pictures resized twice, or another merge_size",
            f"正好差 {times} 倍：resize 了两遍，或 merge_size 不同",
        )
    if tokens < features:
        return (
            f"{features - tokens} placeholders are missing: truncation cut through a picture",
            f"少了 {features - tokens} 个占位符：截断切到了图中间",
        )
    return (
        f"{tokens - features} placeholders too many: extra image markers in the text",
        f"多了 {tokens - features} 个占位符：文本里混进了多余的图像标记",
    )
