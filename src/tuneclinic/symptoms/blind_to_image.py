"""A vision-language model answers as if it had no picture."""

import re

from tuneclinic.diagnosis import Sighting
from tuneclinic.evidence import Evidence
from tuneclinic.examples import Lazy
from tuneclinic.sections import Output, Outputs
from tuneclinic.symptom import Symptom, SymptomCard
from tuneclinic.symptoms import _outputs as read

PICTURE = r"(?i)<image>|<\|?(?:image|vision|video)[a-z_]*\|?>|<img|\[img\]|<video>|\.(?:jpe?g|png|webp|bmp|gif)\b|image_url|<start_of_image>"
"""Placeholders and file names by which a prompt shows that a picture belongs to it."""

CANNOT_SEE = (
    r"(?i)(?:can(?:no|')t|unable to|not able to|don'?t have the ability to) (?:\w+ ){0,3}(?:see|view|access|display|process|open) (?:\w+ ){0,3}(?:image|picture|photo)"
    r"|no (?:image|picture|photo)s? (?:\w+ ){0,3}(?:provided|attached|given|uploaded|included|shared|visible)"
    r"|(?:provide|upload|share|attach)(?: me)?(?: with)? (?:the|an|a|your) (?:image|picture|photo)"
    r"|(?:image|picture|photo) (?:was|is|has) (?:not|n't) (?:been )?(?:provided|attached|included|uploaded)"
    r"|(?:无法|不能|没法|没有办法)(?:直接)?(?:查看|看到|看见|访问|识别|处理|打开)[^。\n]{0,8}(?:图|照片)"
    r"|(?:没有|未)(?:看到|收到|提供|上传|检测到|附上)[^。\n]{0,8}(?:图|照片)|请(?:您)?(?:先)?(?:提供|上传|发送)[^。\n]{0,6}(?:图|照片)"
)
"""Ways of saying that no picture was seen."""

ENOUGH_SHARE = 0.3
"""Share of picture questions answered with "I see no picture". A choice: a base model refuses some
pictures (faces, documents) of its own accord, and a blind one denies most."""

ENOUGH_PICTURES = 4
"""Different references needed before one and the same answer to all of them means anything."""

ANSWER_SHARE = 0.8
"""Share of picture questions with one and the same answer, where the expected answers differ."""


class BlindToImage(Symptom):
    id = "blind-to-image"
    letter = "B"
    needs = ("outputs",)
    search = (
        "VLM ignores the image",
        "model answers the same for every picture",
        "multimodal model says no image was provided",
        "vision model hallucinates, description unrelated to the image",
        "fine-tuned Qwen2-VL does not look at the picture",
        "模型看不到图片，像失明",
        "不管换什么图回答都一样",
        "多模态微调后回答和图片无关",
        "model seems to not see the picture",
        "llava ignores images after finetuning",
        "image has no influence on the answer",
        "视觉模型没看图",
        "模型说没有图片",
        "图片输入好像没起作用",
    )

    en = SymptomCard(
        title="The model does not see the image",
        seen="The answer does not depend on the image: the model says it received no image, or gives the same description for every image.",
        check="Ask the same question with the right image, a blank one and a wrong one. Count the image tokens in input_ids and compare with the number of vision feature rows. Compare the hidden states before and after the features are inserted. Did the loss of stage one (projector only) ever fall?",
        treatment="Fix the image placeholder or the insertion first. Then check that the projector weights were loaded and trained, and that training and serving resize images the same way.",
        prevention="Test a VLM at three points: before training, after the projector stage, after the second stage. Each time use a real, a blank and a wrong image.",
    )
    zh = SymptomCard(
        title="看不见图（失明）",
        seen="回答跟图片没关系：说没有收到图，或者换哪张图都说同样的话。",
        check="同一个问题分别配正确的图、空白图、错误的图。input_ids 里的图像占位 token 数和视觉特征行数对得上吗？特征插入前后的 hidden states 有没有变化？第一阶段（只训 projector）的 loss 降过没有？",
        treatment="先修占位符和特征插入，再确认 projector 权重加载了、也训到了，最后看训练和推理的 resize 是否一致。",
        prevention="VLM 分三个阶段验：训练前、第一阶段后、第二阶段后，每次都用真图、空白图、错图各测一遍。",
    )
    sick = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    (
                        Output(
                            "<image>\nWhat is on the table?", "I'm sorry, I cannot see the image you refer to.", "o.jsonl row 1"
                        ),
                        Output("<image>\n描述这张图片", "抱歉，我无法查看图片，请提供图片的文字描述。", "o.jsonl row 2"),
                    )
                )
            ),
            Evidence(
                outputs=Outputs(
                    tuple(
                        Output(f"<image>\nDescribe {n}.jpg", "A man standing in a room.", f"o.jsonl row {n}", reference=reference)
                        for n, reference in enumerate(("two dogs", "a red car", "a page of text", "a bar chart", "the sea"), 1)
                    )
                )
            ),
        ]
    )
    healthy = Lazy(
        lambda: [
            Evidence(
                outputs=Outputs(
                    (
                        Output("<image>\nWhat is on the table?", "A cup and two books.", "o.jsonl row 1"),
                        Output("<image>\nWhich animal?", "A dog on a sofa.", "o.jsonl row 2"),
                    )
                )
            )
        ]
    )

    def see(self, seen: Evidence) -> Sighting:
        outputs = [output for output in read.items(seen) if re.search(PICTURE, output.prompt[:4000])]
        if not outputs:
            return self.not_checked("outputs")
        blind = [
            output
            for output in outputs
            if re.search(CANNOT_SEE, output.text[:1000]) and not re.search(CANNOT_SEE, (output.reference or "")[:1000])
        ]
        if blind and len(blind) >= ENOUGH_SHARE * len(outputs):
            text = read.counted(len(blind), len(outputs), "say that there is no picture", "说没看到图")
            return self.shown(read.quoted(blind[0], text), *(read.quoted(output) for output in blind[:2]))
        expected = {output.reference for output in outputs if output.reference is not None}
        answers = [output.text.strip() for output in outputs]
        common = max(set(answers), key=answers.count)
        if len(expected) >= ENOUGH_PICTURES and answers.count(common) >= ANSWER_SHARE * len(answers):
            same = answers.count(common)
            text = read.counted(same, len(outputs), "are the same whatever the picture", "完全相同，跟图无关")
            return self.shown(read.quoted(outputs[0], text), read.quoted(outputs[0], show=common))
        text = read.counted(0, len(outputs), "deny the picture", "说没有图")
        return self.absent(read.quoted(outputs[0], text))
