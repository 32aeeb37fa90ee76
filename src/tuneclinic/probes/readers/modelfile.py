"""Ollama Modelfiles: the template, stop strings and sampling that Ollama will use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Serving
from tuneclinic.words import Text

LINE = pattern(r"^\s{0,20}(FROM|ADAPTER|TEMPLATE|PARAMETER|SYSTEM|MESSAGE|LICENSE|REQUIRES)\s+(.*)$", re.IGNORECASE)
PARAMETER = pattern(r"(\w{1,60})\s+(.+)", re.DOTALL)
SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "num_predict": "max_tokens",
    "seed": "seed",
}
MODELFILE_BYTES = 1 << 20


class ModelfileReader(Reader):
    """Reads `Modelfile`, `Modelfile.*` and `*.modelfile`."""

    kind = "ollama modelfile"

    def claims(self, file: SourceFile) -> float:
        """By name; a Modelfile needs a FROM line."""
        named = file.base == "modelfile" or file.base.startswith("modelfile.") or file.base.endswith(".modelfile")
        if not named:
            return 0.0
        return 1.0 if re.search(r"(?im)^\s*FROM\s", file.head_text) else 0.5

    def read(self, file: SourceFile) -> list[Reading]:
        """One serving configuration."""
        try:
            text = file.text(MODELFILE_BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=str(error)[:200])]
        found: dict[str, tuple[str, int]] = {}
        stops: list[str] = []
        sampling: dict[str, float] = {}
        count = 0
        for number, word, value in instructions(text):
            count += 1
            if word != "PARAMETER":
                found.setdefault(word, (value, number))
            elif match := PARAMETER.match(value):
                name, setting = match[1].lower(), unquoted(match[2])
                if name == "stop":
                    stops.append(setting)
                elif (parsed := _number(setting)) is not None:
                    found.setdefault(name, (setting, number))
                    if name in SAMPLING:
                        sampling[SAMPLING[name]] = parsed
        if not count:
            return [Reading(note=Text("no instruction of a Modelfile was found", "没有找到 Modelfile 指令"))]
        serving = Serving(
            engine="ollama",
            model=found["FROM"][0] if "FROM" in found else None,
            adapter=found["ADAPTER"][0] if "ADAPTER" in found else None,
            template=found["TEMPLATE"][0] if "TEMPLATE" in found else None,
            system=found["SYSTEM"][0] if "SYSTEM" in found else None,
            stops=tuple(stops),
            context=_number(found["num_ctx"][0]) if "num_ctx" in found else None,
            sampling=sampling,
            places={PLACES[word]: f"{file.name}:{number}" for word, (_, number) in found.items() if word in PLACES},
            sources=(file.name,),
        )
        return [Reading(Evidence(serving=serving), {"instructions": count})]


PLACES = {"FROM": "model", "ADAPTER": "adapter", "TEMPLATE": "template", "SYSTEM": "system", "num_ctx": "context", **SAMPLING}


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, instruction and value; values in triple quotes run over lines."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        number = at + 1
        match = LINE.match(lines[at])
        at += 1
        if not match:
            continue
        value = match[2].strip()
        if value.startswith('"""'):
            parts = [value[3:]]
            while '"""' not in parts[-1] and at < len(lines):
                parts.append(lines[at])
                at += 1
            parts[-1] = parts[-1].partition('"""')[0]
            value = "\n".join(parts)
        else:
            value = unquoted(value) if match[1].upper() != "PARAMETER" else value
        yield number, match[1].upper(), value


def unquoted(value: str) -> str:
    """A value without its quotation marks."""
    value = value.strip()
    if len(value) >= 6 and value.startswith('"""') and value.endswith('"""'):
        return value[3:-3]
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'" else value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None
