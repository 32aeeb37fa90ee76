"""The trained projector is not in the model that runs."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import PROJECTOR, Later, adapters, texts, whole_models
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import quoted, say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit

LISTED = Later(r"(?i)newly initialized|were not used when initializing|missing key\(s\)|unexpected key\(s\)")
"""What a loader says before it lists tensors that found no place."""
FAMILIES = ("llava", "qwen2_vl", "qwen2_5_vl", "internvl", "idefics")
"""Families whose projector has one of the names that are searched for."""


class ProjectorNotLoaded(Case):
    id = "projector-not-loaded"
    symptoms = {"blind-to-image": 0.13}
    stage = "environment"
    needs = ("log", "crash", "weights")
    probe = "weights"
    signatures = (r"image input is not supported.{0,60}mmproj",)
    search = (
        "mm_projector newly initialized",
        "image input is not supported, you may need to provide the mmproj",
        "non_lora_trainables.bin missing llava",
        "projector weights not loaded vlm",
        "投影层权重没加载",
        "llava 微调后 mm_projector 没加载",
        "llama.cpp 多模态缺 mmproj",
    )

    en = Card(
        title="The projector's weights are not loaded",
        sign="The language is fluent, but it describes pictures that are not there. The loader says 'newly initialized' or 'not used' for mm_projector, multi_modal_projector or visual.merger; llama.cpp asks for the mmproj file.",
        cause="Many recipes save the projector separately: non_lora_trainables.bin (LLaVA), mm_projector.bin (stage one), an mmproj GGUF, or modules_to_save. If only the language model is loaded, or LLaVA's loader does not recognise a LoRA folder by its name, the projector is random or an old one.",
        remedy="LLaVA: --model-path llava-…-lora --model-base BASE (the folder name must contain both 'llava' and 'lora'), with non_lora_trainables.bin in the folder; stage two: --pretrain_mm_mlp_adapter mm_projector.bin. llama.cpp: llama-server -m model.gguf --mmproj mmproj.gguf. Ollama: a second line FROM ./mmproj.gguf. PEFT: modules_to_save=[\"multi_modal_projector\"] (or \"visual.merger\"), and serve the merged model. If only the key names differ, rename the keys.",
        verify="The loader no longer lists the projector, its weights in the running model equal those in the file, and right and blank pictures get different answers.",
        prevention="After saving, load in a new process and compare the sum of the projector's weights with the one in training.",
        question="What does the loader print about mm_projector or visual.merger, and which file holds its trained weights?",
        quiz="A LLaVA LoRA folder has no non_lora_trainables.bin. What is missing? The projector: the LoRA file does not contain it.",
    )
    zh = Card(
        title="投影层权重没有加载",
        sign="语言流畅，描述的却是不存在的图。加载时提示 mm_projector、multi_modal_projector、visual.merger 被 newly initialized 或没用上；llama.cpp 则提示缺 mmproj。",
        cause="很多方案把投影层单独存：LLaVA 的 non_lora_trainables.bin、一阶段的 mm_projector.bin、GGUF 的 mmproj，或 modules_to_save。只加载了语言模型，或者 LLaVA 的加载器从目录名认不出这是 LoRA，用上的就是随机的或旧的投影层。",
        remedy='LLaVA：--model-path llava-…-lora --model-base BASE（目录名里要同时有 llava 和 lora），目录里要有 non_lora_trainables.bin；二阶段传 --pretrain_mm_mlp_adapter mm_projector.bin。llama.cpp：llama-server -m model.gguf --mmproj mmproj.gguf。Ollama：再写一行 FROM ./mmproj.gguf。PEFT：modules_to_save=["multi_modal_projector"]（或 "visual.merger"），部署合并后的模型。只是键名对不上的，改键名。',
        verify="加载日志里不再列出投影层；运行中模型的投影层权重与文件一致；真图和空白图回答不同。",
        prevention="保存后在新进程里加载，比对投影层权重之和与训练时是否相同。",
        question="加载时对 mm_projector 或 visual.merger 打印了什么？训练好的权重在哪个文件里？",
        quiz="LLaVA 的 LoRA 目录没有 non_lora_trainables.bin，少了什么？投影层，LoRA 文件里不含它。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                log=make.logged(
                    "Some weights of LlavaLlamaForCausalLM were not initialized from the model checkpoint at base and are newly initialized: ['model.mm_projector.0.weight', 'model.mm_projector.2.weight']"
                )
            ),
            Evidence(
                crash=make.crashed(
                    "HTTPError",
                    "500: image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
                )
            ),
            Evidence(
                weights=own.model_file("model.embed_tokens.weight", "lm_head.weight"),
                model=make.modelled(architecture="LlavaForConditionalGeneration", family="llava", vision=True),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                weights=own.model_file("multi_modal_projector.linear_1.weight", "lm_head.weight"),
                model=make.modelled(architecture="LlavaForConditionalGeneration", family="llava", vision=True),
            ),
            Evidence(
                weights=own.model_file("visual.merger.mlp.0.weight", "lm_head.weight"),
                model=make.modelled(architecture="Qwen2VLForConditionalGeneration", family="qwen2_vl", vision=True),
                outputs=make.answered_blindly(),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        told = (*quoted(self, seen), *_listed(seen))
        if told:
            return self.confirmed(*told)
        model = seen.model
        family = (model.family or "").lower() if model is not None and model.vision else ""
        if not family.startswith(FAMILIES):
            return self.not_checked("log", "weights")
        for source, names in whole_models(seen):
            if any(re.search(PROJECTOR, name) for name in names):
                text = "the file contains a projector", "文件里有投影层"
                return self.ruled_out(say(*text, -6.0, section="weights", where=source, source=source))
            text = f"none of the {len(names)} tensors belongs to a projector", f"{len(names)} 个张量里没有投影层"
            return self.confirmed(say(*text, 8.0, section="weights", where=source, source=source))
        lacking = _lacking(seen, family)
        return self.suspected(lacking, missing=("log",)) if lacking else self.not_checked("log", "weights")


def _listed(seen: Evidence) -> tuple[Exhibit, ...]:
    """A loader's list of tensors without a place that names the projector."""
    for text, where, source, section in texts(seen):
        if (match := LISTED.search(text)) and re.search(PROJECTOR, text[match.start() :]):
            return (Exhibit(text.strip()[:300], where, source, weight=8.0, section=section),)
    return ()


def _lacking(seen: Evidence, family: str) -> Exhibit | None:
    """An adapter of LLaVA's own recipe without the file that holds its projector."""
    files = adapters(seen)
    if not family.startswith("llava") or family == "llava" or not files or seen.weights is None:
        return None
    beside = any(re.search(r"non_lora_trainables|mm_projector", file.source) for file in seen.weights.files)
    inside = any(re.search(PROJECTOR, name) for name in files[0].names)
    if beside or inside:
        return None
    text = (
        "the adapter folder has no non_lora_trainables.bin and no projector",
        "adapter 目录里没有 non_lora_trainables.bin，也没有投影层",
    )
    return say(*text, 3.0, section="weights", where=files[0].source, source=files[0].source)
