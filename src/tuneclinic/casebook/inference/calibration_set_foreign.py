"""The quantised model was calibrated on text of another kind."""

import re

from tuneclinic.case import Card, Case
from tuneclinic.casebook.inference import _examples as own
from tuneclinic.casebook.inference._facts import Later, merged_scores, texts
from tuneclinic.casebook.learning import _examples as make
from tuneclinic.casebook.learning._facts import say
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence, Exhibit
from tuneclinic.sections import Setting, Settings

KEYS = Later(r"(?:export_)?quanti[sz]ation_dataset|calib\w*_(?:data|dataset|set|file)|quant_dataset")
"""Keys under which LLaMA-Factory, AutoAWQ, GPTQModel, llm-compressor and ModelOpt name the calibration text."""
GENERIC = Later(r"\bc4\b|c4[_-]|wikitext|\bptb\b|pile[-_]?val|ultrachat|\bpajama|calibration_datav3|groups_merged|cnn_dailymail")
"""Stock calibration sets: English web text and chat."""
UNCALIBRATED = Later(r"bitsandbytes|\bbnb|nf4|fp8|^q\d_[k01]|^f16$|^bf16$|^f32$", re.IGNORECASE)
"""Methods that round without looking at sample text; AWQ, GPTQ, SmoothQuant and quants with an importance matrix do look."""
UNSET = ("none", "null", "true", "false", "default", "auto")
LINE = Later(rf"(?i)({KEYS.pattern})['\"]?\s*[:=]\s*['\"]?([\w./-]{{2,200}})")


class CalibrationSetForeign(Case):
    id = "calibration-set-foreign"
    symptoms = {"worse-after-merge": 0.15}
    stage = "environment"
    needs = ("settings", "serving", "model", "log")
    probe = "parity"
    search = (
        "gptq calibration dataset for fine-tuned model",
        "awq quantization quality drop after fine-tuning",
        "export_quantization_dataset c4",
        "imatrix calibration domain data",
        "量化校准集选什么",
        "AWQ 量化之后掉点",
        "GPTQ 量化后效果变差",
        "校准数据和业务数据不一致",
    )

    en = Card(
        title="Quantisation was calibrated on other text",
        sign="In 16 bit the tuned model is good. After AWQ, GPTQ or an importance matrix it loses the domain's terms, its output format or its second language, while general English is fine.",
        cause="These methods use sample text to decide which weights may be rounded strongly. C4 or WikiText does not activate the channels that your domain, language and template use, so those channels are rounded most.",
        remedy="Calibrate on 128 to 512 rows of your own training set, rendered with the chat template, at serving length. LLaMA-Factory: export_quantization_dataset: data/my_rows.jsonl. AutoAWQ: quantize(tokenizer, quant_config=…, calib_data=rows). GPTQ: GPTQConfig(dataset=rows, …). llm-compressor: oneshot(dataset=…). llama.cpp: llama-imatrix -m model.gguf -f my_rows.txt, then llama-quantize --imatrix imatrix.gguf. If that is not enough use 8 bit, or keep the most sensitive layers in 16 bit.",
        verify="The domain score of the quantised model is within noise of the 16-bit score, and so is the general score.",
        prevention="Keep one calibration file with each data set, made of its own rows, and use it for every quantisation.",
        question="Which text was the quantisation calibrated on? Is it the same language and kind of text that the model serves?",
        quiz="A Chinese medical model is quantised by AWQ with the default set, and only medical answers suffer. Why? It was calibrated on English web text.",
    )
    zh = Card(
        title="量化校准集和业务数据不是一类",
        sign="16 bit 下微调模型很好，AWQ、GPTQ 或带 imatrix 量化之后，领域术语、输出格式或中文变差，通用英文却没事。",
        cause="这类方法靠样本文本决定哪些权重可以粗一点舍入。用 C4、WikiText 校准，你的领域、语言、模板用到的通道没被激活，舍入误差就集中在它们上面。",
        remedy="从自己的训练集取 128～512 条，用对话模板渲染，长度接近线上，拿来校准。LLaMA-Factory：export_quantization_dataset: data/my_rows.jsonl。AutoAWQ：quantize(tokenizer, quant_config=…, calib_data=rows)。GPTQ：GPTQConfig(dataset=rows, …)。llm-compressor：oneshot(dataset=…)。llama.cpp：先 llama-imatrix -m model.gguf -f my_rows.txt，再 llama-quantize --imatrix imatrix.gguf。还是差就用 8 bit，或把最敏感的层留在 16 bit。",
        verify="量化后的领域分数和通用分数，与 16 bit 相比都在噪声范围内。",
        prevention="每个数据集配一份由它自己样本组成的校准文件，所有量化都用它。",
        question="量化用什么文本校准的？和线上是同一种语言、同一类内容吗？",
        quiz="中文医疗模型用默认校准集做 AWQ，只有医疗回答变差，为什么？校准用的是英文网页。",
    )
    sick = make.Lazy(
        lambda: [
            Evidence(
                settings=_unknown("export_quantization_dataset", "data/c4_demo.jsonl"),
                scores=own.scored(("contracts", 0.81), ("contracts (gptq)", 0.62)),
            ),
            Evidence(
                log=make.logged("INFO calibrating: calib_data=pileval, n_samples=128"),
                model=make.modelled(quantization="awq-4bit"),
                scores=own.scored(("contracts", 0.81), ("contracts int4", 0.7)),
            ),
        ]
    )
    healthy = make.Lazy(
        lambda: [
            Evidence(
                settings=_unknown("export_quantization_dataset", "data/contracts_train.jsonl"),
                scores=own.scored(("contracts", 0.81), ("contracts (gptq)", 0.62)),
            ),
            Evidence(  # no calibration takes place at all
                serving=own.served("gguf", "m.gguf", quantization="Q4_0"),
                scores=own.scored(("contracts", 0.81), ("contracts (gguf)", 0.62)),
            ),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        method = _method(seen)
        used = _used(seen)
        if used is None:
            if method and UNCALIBRATED.search(method):
                text = f"{method} needs no calibration", f"{method} 不需要校准"
                return self.ruled_out(say(*text, -6.0, section="serving"))
            return self.not_checked("settings", "log")
        name, exhibit = used
        if not GENERIC.search(name.lower()):
            text = f"calibrated on {name}, not on a stock set", f"校准集是 {name}，不是通用集"
            return self.ruled_out(exhibit, say(*text, -5.0, section=exhibit.section))
        scores = merged_scores(seen, 4.0)
        generic = say(f"{name} is a stock set of general text", f"{name} 是通用文本校准集", 2.0, section=exhibit.section)
        if scores and scores[0].weight < 0:
            return self.ruled_out(exhibit, *scores)
        if scores:
            return self.confirmed(exhibit, generic, *scores)
        return self.suspected(exhibit, generic, missing=("scores",))


def _unknown(key: str, value: str) -> Settings:
    """Settings with a key that the vocabulary does not have."""
    return Settings({}, "llama-factory", {key: Setting(value, "export.yaml:5", "export.yaml", key)})


def _method(seen: Evidence) -> str:
    served = seen.serving.quantization if seen.serving is not None else None
    return (served or (seen.model.quantization if seen.model is not None else None) or "")[:80]


def _used(seen: Evidence) -> tuple[str, Exhibit] | None:
    """The calibration set as a setting or a log line names it."""
    for key, setting in seen.settings.unknown.items() if seen.settings is not None else ():
        if KEYS.fullmatch(key.rsplit(".", 1)[-1].lower()) and isinstance(setting.value, str):
            return setting.value[:80], Exhibit(setting.quote, setting.where, setting.source, section="settings")
    for text, where, source, section in texts(seen):
        match = LINE.search(text[:2000])
        if match and match[2].lower() not in UNSET:
            return match[2][:80], Exhibit(text.strip()[:200], where, source, section=section)
    return None
