"""The picture was encoded, or not even that, and never reached the language model."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import Later, about, answers
from tuneclinic.casebook.inference._templates import families
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import lines
from tuneclinic.casebook.learning._sight import blind
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

PLACEHOLDERS = {
    "qwen": r"<\|(?:image_pad|vision_start)\|>",
    "llava": r"<image>",
    "gemma3": r"<start_of_image>|<image_soft_token>",
    "mllama": r"<\|image\|>",
    "internvl": r"<IMG_CONTEXT>|<img>",
    "phi3_v": r"<\|image_\d+\|>",
    "idefics": r"<image>",
}
"""The placeholder that each family's processor replaces; a prompt in full template text without it carries no picture."""
DENIES = Later(
    r"(?i)(?:can(?:no|')t|unable to|not able to) (?:\w+ ){0,3}(?:see|view|access|open) (?:\w+ ){0,3}(?:image|picture|photo)"
    r"|no (?:image|picture|photo)s? (?:\w+ ){0,3}(?:provided|attached|given|included|visible)|(?:provide|upload|share) (?:\w+ ){0,2}(?:image|picture)"
    r"|(?:无法|不能)[^。\n]{0,6}(?:看到|查看|访问)[^。\n]{0,6}图|没有[^。\n]{0,4}(?:看到|收到|提供)[^。\n]{0,6}图|请[^。\n]{0,4}(?:提供|上传)[^。\n]{0,6}图"
)
"""Ways of saying that no picture came."""
ZERO = r"features and (?:image|video) tokens do not match: tokens: 0\b"


class ImageFeaturesNotInserted(Case):
    id = "image-features-not-inserted"
    symptoms = {"blind-to-image": 0.16}
    stage = "data"
    needs = ("outputs", "crash", "log")
    probe = "image"
    search = (
        "vlm says no image was provided",
        "image tokens not in prompt, prompt_tokens too small",
        "vision model ignores image_url with system prompt",
        "image embeddings are not merged into inputs_embeds",
        "图像特征没插进去",
        "模型说没有收到图片",
        "多模态推理 prompt 里没有图像 token",
    )

    en = Card(
        title="The picture never reaches the language model",
        sign="The model asks for the picture or invents one, without any error. prompt_tokens is as small as without a picture: 37 instead of 296, for example.",
        cause="The final text contains no placeholder, so nothing is replaced by image features: the template adds it only to the first message and that is the system turn, the marker of another model family was typed by hand, the request went to a text endpoint, or the model's forward drops pixel_values.",
        remedy="Put the picture in the user turn and let the processor write the marker: processor.apply_chat_template([{'role': 'user', 'content': [{'type': 'image', …}, {'type': 'text', …}]}]). vLLM and SGLang: /v1/chat/completions with an image_url part; with LLM.generate the prompt must contain the family's own marker (Qwen-VL: <|vision_start|><|image_pad|><|vision_end|>). llama.cpp: --mmproj and --jinja. In your own model: inputs_embeds[input_ids == image_token_id] = features, and assert that the row counts are equal.",
        verify="usage.prompt_tokens grows by the number of image tokens, and the right, a blank and a wrong picture get different answers.",
        prevention="In the server's smoke test, ask for the colour of a plain red and of a plain blue picture.",
        question="How many prompt tokens does a request have with the picture, and how many without it?",
        quiz="The model works without a system text and is blind with one. Where is the bug? The template puts the picture into message 0 only.",
    )
    zh = Card(
        title="图像没有送进语言模型",
        sign="模型说没看到图，或者凭空编一张，全程不报错。prompt_tokens 和没有图时一样少：例如本该 296，只有 37。",
        cause="最终文本里没有占位符，自然没有位置换成图像特征：模板只在第一条消息上加图，而第一条是 system；手写了别的模型的标记；请求走了纯文本接口；或者 forward 把 pixel_values 丢掉了。",
        remedy="图放在 user 这一轮，占位符交给 processor 写：processor.apply_chat_template([{'role': 'user', 'content': [{'type': 'image', …}, {'type': 'text', …}]}])。vLLM、SGLang 走 /v1/chat/completions，content 里带 image_url；用 LLM.generate 时 prompt 里必须有该模型自己的标记（Qwen-VL 是 <|vision_start|><|image_pad|><|vision_end|>）。llama.cpp 加 --mmproj 和 --jinja。自己写的模型：inputs_embeds[input_ids == image_token_id] = features，并断言两边行数相等。",
        verify="usage.prompt_tokens 多出图像 token 的数量；真图、空白图、错图的回答不同。",
        prevention="上线自检：发一张纯红、一张纯蓝的图，问是什么颜色。",
        question="带图请求的 prompt token 数是多少？同一请求不带图呢？",
        quiz="不带 system 正常，带 system 就看不到图，问题在哪？模板只在第 0 条消息上插图。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                model=make.modelled(family="qwen2_5_vl", vision=True),
                outputs=own.answered(
                    "I cannot see the image you refer to.",
                    "No image was provided, please upload it.",
                    prompt="<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nWhat colour is the car?<|im_end|>\n<|im_start|>assistant\n",
                ),
            ),
            Evidence(  # the literal of another family
                model=make.modelled(family="qwen2_vl", vision=True),
                outputs=own.answered(
                    "抱歉，我没有看到图片。",
                    "请提供图片。",
                    prompt="<|im_start|>user\n<image>\n图里有什么<|im_end|>\n<|im_start|>assistant\n",
                ),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(  # the marker is there, and the model is blind all the same
                model=make.modelled(family="qwen2_vl", vision=True),
                outputs=own.answered(
                    "I cannot see the image.",
                    "I cannot see the image.",
                    prompt="<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>\n<|im_start|>assistant\n",
                ),
            ),
            Evidence(model=make.modelled(family="qwen2_vl", vision=True), outputs=make.answered_seeing()),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        sight = blind(seen)
        if sight is not None and sight.weight < 0:
            return self.ruled_out(sight)
        prompts = _prompts(seen)
        denied = _denied(seen)
        if prompts is not None and prompts.weight > 0 and denied:
            return self.confirmed(prompts, *denied)
        if prompts is not None and prompts.weight < 0:
            return self.ruled_out(prompts)
        zero = lines(seen, ZERO, weight=2.0)
        if zero:
            return self.suspected(*zero, missing=("data",))
        return self.not_checked("outputs", exhibits=denied)


def _prompts(seen: Evidence) -> Exhibit | None:
    """Whether prompts in full template text hold the family's placeholder; None where they are not such text."""
    family = (seen.model.family or "").lower() if seen.model is not None and seen.model.vision else ""
    pattern = next((pattern for name, pattern in PLACEHOLDERS.items() if family.startswith(name)), None)
    rendered = [output for output in answers(seen) if families(output.prompt) - {"plain roles", "Alpaca"}]
    if pattern is None or len(rendered) < 2:
        return None
    held = [output for output in rendered if re.search(pattern, output.prompt)]
    en = f"{len(held)} of {len(rendered)} prompts contain the image placeholder of {family}"
    zh = f"{len(rendered)} 条 prompt 里有 {len(held)} 条带 {family} 的图像占位符"
    if not held:
        return about(rendered[0], en, zh, 5.0)
    return about(held[0], en, zh, -5.0) if len(held) == len(rendered) else None


def _denied(seen: Evidence) -> tuple[Exhibit, ...]:
    """Answers that say that there is no picture."""
    held = answers(seen)
    blind_ = [
        output for output in held if DENIES.search(output.text[:1000]) and not DENIES.search((output.reference or "")[:1000])
    ]
    if len(blind_) < 2 or len(blind_) * 2 < len(held):
        return ()
    text = (
        f"{len(blind_)} of {len(held)} answers say that there is no picture",
        f"{len(held)} 个回答里有 {len(blind_)} 个说没看到图",
    )
    return (about(blind_[0], *text, 3.0),)
