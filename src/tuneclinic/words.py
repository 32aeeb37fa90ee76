"""Words on screen, in English and in Chinese.

Text that a person reads is a `Text` with both languages, or a plain `str`, which is a quotation and
is the same in both. Nothing else in the package holds sentences for the screen, apart from the
cards of cases and symptoms and the exhibits that they write.
"""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

from tuneclinic.values import dataclass

Language: TypeAlias = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@dataclass(frozen=True, slots=True)
class Text:
    """One thing said in both languages."""

    en: str
    zh: str

    def format(self, **values: object) -> Text:
        """Both languages with `{name}` fields filled in."""
        return Text(self.en.format(**values), self.zh.format(**values))


Words: TypeAlias = "str | Text"


def say(words: Words, language: Language) -> str:
    """`words` in `language`; a plain string is a quotation and stays as it is."""
    if isinstance(words, str):
        return words
    return words.zh if language == "zh" else words.en


def language_of(environment: dict[str, str] | None = None) -> Language:
    """The language of the user's locale: Chinese for a `zh` locale, English for any other."""
    variables = os.environ if environment is None else environment
    for name in ("TUNECLINIC_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = variables.get(name, "")
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


SECTION_NAMES: dict[str, Text] = {
    "settings": Text("configuration", "训练配置"),
    "metrics": Text("training log", "训练日志"),
    "data": Text("data set", "数据集"),
    "tokenizer": Text("tokenizer files", "tokenizer 文件"),
    "model": Text("model configuration (config.json, adapter_config.json)", "模型配置（config.json、adapter_config.json）"),
    "script": Text("training script", "训练脚本"),
    "crash": Text("traceback or crash output", "报错堆栈"),
    "log": Text("log text", "日志文本"),
    "environment": Text("versions and hardware", "版本与硬件信息"),
    "batches": Text("the batches the loop really fed", "真正喂进模型的 batch"),
    "experiments": Text("experiments", "实验结果"),
    "outputs": Text("generated outputs", "模型生成结果"),
    "weights": Text("checkpoint files", "权重文件"),
    "serving": Text("serving configuration", "推理服务配置"),
    "scores": Text("evaluation scores", "评测分数"),
    "attempts": Text("earlier attempts of the same run", "同一任务的历次尝试"),
}
"""What each section of the evidence is called on screen, and what a user is asked to give."""
