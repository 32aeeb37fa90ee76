"""Facts of training scripts and notebooks, from their syntax trees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.words import Text, Words

SCRIPT_BYTES = 1 << 19
"""The most of a script that is parsed: the longest public training scripts have 100 kB."""
NOTEBOOK_BYTES = 32 << 20
"""Notebooks hold their pictures."""
IMPORTS = pattern(
    r"^\s{0,40}(?:from|import)\s+(?:torch|transformers|trl|peft|accelerate|unsloth|lightning|pytorch_lightning|deepspeed|vllm|openai)\b",
    re.MULTILINE,
)
NOTEBOOK_IMPORTS = pattern(r"(?:from|import)\s+(?:torch|transformers|trl|peft|accelerate|unsloth|lightning|vllm)\b")
CALLS = pattern(r"\.(?:generate|apply_chat_template|from_pretrained|merge_and_unload|save_pretrained)\(")
"""Calls that a snippet without its imports is known by, as people paste them."""
MAGIC = pattern(r"^\s*[%!?]")


class ScriptFactsReader(Reader):
    """Reads beside the reader that takes a script's settings."""

    kind = "script"
    also: ClassVar[bool] = True

    def claims(self, file: SourceFile) -> float:
        """Python and notebooks that import a training library."""
        if file.base.endswith(".py"):
            return 0.9 if IMPORTS.search(file.head_text) or CALLS.search(file.head_text) else 0.0
        if file.base.endswith(".ipynb"):
            return 0.9 if NOTEBOOK_IMPORTS.search(file.head_text) or file.size > len(file.head) else 0.0
        return 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """One script; a notebook's code cells in order are one script."""
        from tuneclinic.probes.scripts import parse, script_of  # noqa: PLC0415 - ast and the checks cost 20 ms that runs without a script do not pay

        try:
            text = notebook(file.text(NOTEBOOK_BYTES)) if file.base.endswith(".ipynb") else file.text(SCRIPT_BYTES)
        except (OSError, EOFError, ValueError, RecursionError) as error:
            return [Reading(note=Text(f"not read: {str(error)[:120]}", f"读不出来：{str(error)[:120]}"))]
        tree = parse(text)
        script = script_of(text, file.name, tree) if tree is not None else None
        if script is None:
            return [
                Reading(
                    note=Text(
                        "the script has a syntax error or is far too long, so no fact was taken from it",
                        "脚本有语法错误或过长，没有从中提取任何事实",
                    )
                )
            ]
        note: Words = ""
        if not script.checked:
            note = Text("no check applies to this script", "没有一项检查适用于这个脚本")
            return [Reading(note=note)]
        if file.base.endswith(".ipynb"):
            note = Text("lines are counted through all code cells", "行号按全部代码单元格连续计数")
        return [Reading(Evidence(script=script), {"checks": len(script.checked), "facts": len(script.facts)}, note=note)]


def notebook(text: str) -> str:
    """The code cells of a notebook as one script; lines of magic and shell commands become empty."""
    content: Any = json.loads(text)
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list):
        raise ValueError("no cells")  # noqa: TRY004 - the content is wrong, not the caller's type
    return "\n".join(line for cell in cells for line in _code(cell))


def _code(cell: Any) -> Iterator[str]:
    if not isinstance(cell, dict) or cell.get("cell_type") != "code":
        return
    source = cell.get("source")
    joined = (
        "".join(part for part in source if isinstance(part, str))
        if isinstance(source, list)
        else source
        if isinstance(source, str)
        else ""
    )
    if joined.startswith("%%"):
        return
    for line in joined.split("\n"):
        yield "" if MAGIC.match(line) else line
