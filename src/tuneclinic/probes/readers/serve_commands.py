"""What serves the model: server command lines in shell scripts, compose files and Kubernetes manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._shell_words import SCRIPT_BYTES, Command, Word, commands
from tuneclinic.probes.readers._tree import Node
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Serving
from tuneclinic.values import dataclass
from tuneclinic.words import Text

ENGINES: tuple[tuple[str, str], ...] = (
    ("vllm", r"(?:^|[\s/])vllm serve\b|vllm\.entrypoints\.(?:openai\.)?api_server"),
    ("sglang", r"sglang\.launch_server|(?:^|[\s/])sglang serve\b"),
    ("llama.cpp", r"(?:^|[\s/])llama-(?:server|cli|run)\b|llama_cpp\.server"),
    ("lmdeploy", r"(?:^|[\s/])lmdeploy (?:serve|chat)\b"),
    ("tgi", r"(?:^|[\s/])text-generation-launcher\b"),
    ("transformers", r"(?:^|[\s/])transformers(?:-cli)? (?:serve|chat)\b"),
    ("ms-swift", r"(?:^|[\s/])swift (?:deploy|infer|app)\b"),
    ("tensorrt-llm", r"(?:^|[\s/])trtllm-serve\b"),
    ("llama-factory", r"(?:^|[\s/])llamafactory-cli (?:api|chat|webchat)\b"),
)
IMAGES: tuple[tuple[str, str], ...] = (
    ("vllm/", "vllm"),
    ("vllm-openai", "vllm"),
    ("sglang", "sglang"),
    ("llama.cpp", "llama.cpp"),
    ("lmdeploy", "lmdeploy"),
    ("text-generation-inference", "tgi"),
)
"""Container images whose entry point is the server, so that the command holds its flags only."""
TEXTS: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model-path", "model-id", "model-name-or-path", "m"),
    "adapter": ("lora-modules", "lora-paths", "lora", "adapters", "lora-adapters", "adapter-name-or-path"),
    "template": ("chat-template", "chat-template-file", "template"),
    "dtype": ("dtype", "torch-dtype"),
    "quantization": ("quantization", "q", "quantize", "model-format", "quant-method"),
}
CONTEXT = ("max-model-len", "context-length", "ctx-size", "c", "session-len", "max-total-tokens", "max-length")
SAMPLING: Mapping[str, tuple[str, ...]] = {
    "temperature": ("temperature", "temp"),
    "top_p": ("top-p",),
    "top_k": ("top-k",),
    "repetition_penalty": ("repetition-penalty", "repeat-penalty"),
    "max_tokens": ("max-new-tokens", "n-predict", "max-tokens"),
}
IMAGE_KEYS = frozenset({"max_pixels", "min_pixels", "video_max_pixels", "image_max_pixels", "image_min_pixels"})
HINT = pattern(
    r"vllm|sglang|llama-server|llama-cli|llama_cpp|lmdeploy|text-generation|transformers(?:-cli)? |swift |trtllm|llamafactory-cli"
)
LISTED = pattern(r"[\"',\[\]\s]+|\s-\s")
"""What stands between the words of a command in YAML."""
SHELL = (".sh", ".bash", ".service", ".bat", ".txt", ".cmd")
YAML = (".yml", ".yaml")


@dataclass(slots=True)
class _Flags:
    """Flags of one server command: the first value of each, and where it stands."""

    engine: str
    values: dict[str, tuple[list[str], int]] = field(default_factory=dict)
    free: list[tuple[str, int]] = field(default_factory=list)


class ServeCommandsReader(Reader):
    """Reads beside the readers of the same shell or YAML file: it takes server commands only."""

    kind = "server command"
    also: ClassVar[bool] = True

    def claims(self, file: SourceFile) -> float:
        """A shell script or YAML file whose head names a server."""
        named = file.base.endswith(SHELL + YAML) or file.base in {"dockerfile", "makefile", "procfile"}
        if not named or HINT.search(file.head_text) is None:
            return 0.0
        joined = LISTED.sub(" ", file.head_text.replace("\\\n", " "))
        found = any(re.search(pattern, joined) for _, pattern in ENGINES)
        return 0.8 if found or any(image in file.head_text for image, _ in IMAGES) else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """One serving configuration a file; of several commands the first."""
        try:
            text = file.text(SCRIPT_BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=str(error)[:200])]
        found = list(_from_yaml(text) if file.base.endswith(YAML) else _from_shell(text))
        if not found:
            return [Reading(note=Text("no server command was found", "没有找到启动推理服务的命令"))]
        serving = _serving(*found[0], file.name)
        note = (
            ""
            if len(found) == 1
            else Text(f"the first of {len(found)} server commands", f"文件里有 {len(found)} 条服务启动命令，取第一条")
        )
        return [Reading(Evidence(serving=serving), {"server commands": len(found)}, note=note)]


def engine_of(line: str) -> str:
    """The engine that a command line starts, "" for none."""
    return next((engine for engine, pattern in ENGINES if re.search(pattern, line)), "")


def _from_shell(text: str) -> Iterator[tuple[_Flags, dict[str, Word]]]:
    for command, variables in commands(text):
        flags = _flags(command)
        if flags is not None:
            yield flags, {**variables, **command.environment}


def _flags(command: Command, engine: str = "") -> _Flags | None:
    """The command's flags; `engine` is given where the image is the server and the command has only flags."""
    start = 0
    for at, word in enumerate(command.words[:12]):
        line = f" {word.text} {command.words[at + 1].text}" if at + 1 < len(command.words) else f" {word.text}"
        named = engine_of(line)
        if named:
            engine, start = named, at + (2 if not engine_of(f" {word.text}") else 1)
            break
    if not engine:
        return None
    flags = _Flags(engine)
    held: list[str] | None = None
    for word in command.words[start:]:
        if re.match(r"--?[A-Za-z]", word.text):
            name, equals, value = word.text.lstrip("-").partition("=")
            held = [value] if equals else []
            held = flags.values.setdefault(name.replace("_", "-"), (held, word.line))[0]
        elif held is None:
            flags.free.append((word.text, word.line))
        else:
            held.append(word.text)
    return flags


def _from_yaml(text: str) -> Iterator[tuple[_Flags, dict[str, Word]]]:
    from tuneclinic.probes.readers._yaml_tree import yaml_tree  # noqa: PLC0415 - loads yaml, which files without a server do not need

    root, _ = yaml_tree(text)
    stack, visits = [root] if root else [], 0
    while stack and visits < 20_000:
        visits += 1
        node = stack.pop()
        if isinstance(node.value, dict):
            yield from _service(node)
            stack.extend(reversed(list(node.value.values())))
        elif isinstance(node.value, list):
            stack.extend(reversed(node.value))


def _service(node: Node) -> Iterator[tuple[_Flags, dict[str, Word]]]:
    """A mapping with a command: a service of a compose file, or a container of a manifest."""
    image = node.value.get("image")
    name = str(image.value) if image is not None else ""
    engine = next((engine for part, engine in IMAGES if part in name), "")
    words: list[Word] = []
    for key in ("entrypoint", "command", "args"):
        words.extend(_words(node.value.get(key)))
    if not words or not (image is not None or engine_of(" ".join(word.text for word in words[:8]))):
        return
    flags = _flags(Command(words), engine)
    if flags is not None:
        yield flags, _environment(node.value.get("environment") or node.value.get("env"))


def _words(node: Node | None) -> list[Word]:
    if node is None:
        return []
    parts = node.value if isinstance(node.value, list) else [node]
    words: list[Word] = []
    for part in parts[:500]:
        text = part.text or ("" if part.value is None or isinstance(part.value, (dict, list)) else str(part.value))
        if len(parts) > 1 and " " not in text.strip():
            words.append(Word(text, text, part.line))
            continue
        for command, _ in commands(text):
            words.extend(Word(word.text, word.raw, part.line + word.line - 1) for word in command.words)
    return words


def _environment(node: Node | None) -> dict[str, Word]:
    if node is None:
        return {}
    if isinstance(node.value, dict):
        return {key: Word(child.text or str(child.value), "", child.line) for key, child in list(node.value.items())[:500]}
    found: dict[str, Word] = {}
    for child in (node.value if isinstance(node.value, list) else [])[:500]:
        if isinstance(child.value, dict) and "name" in child.value and "value" in child.value:
            value = child.value["value"]
            found[str(child.value["name"].value)] = Word(value.text or str(value.value), "", value.line)
        elif isinstance(child.value, str) and "=" in child.value:
            key, _, text = child.value.partition("=")
            found[key] = Word(text, "", child.line)
    return found


def _serving(flags: _Flags, environment: Mapping[str, Word], source: str) -> Serving:
    places: dict[str, str] = {}

    def first(target: str, names: tuple[str, ...]) -> str | None:
        for name in names:
            values, line = flags.values.get(name, ([], 0))
            if values and values[0]:
                places[target] = f"{source}:{line}"
                return values[0]
        return None

    texts = {target: first(target, names) for target, names in TEXTS.items()}
    if texts["model"] is None and flags.free and flags.engine not in {"ms-swift", "llama-factory"}:
        texts["model"], places["model"] = flags.free[-1][0], f"{source}:{flags.free[-1][1]}"
    if texts["adapter"] and "=" in texts["adapter"]:
        texts["adapter"] = texts["adapter"].split("=", 1)[1]
    sampling = {target: value for target, names in SAMPLING.items() if (value := _number(first(target, names))) is not None}
    sampling |= _numbers(_json(first("sampling", ("override-generation-config",))))
    return Serving(
        engine=flags.engine,
        model=texts["model"],
        adapter=texts["adapter"],
        template=texts["template"],
        dtype=texts["dtype"],
        quantization=texts["quantization"],
        context=_number(first("context", CONTEXT)),
        sampling=sampling,
        image=_pixels(environment, first),
        places=places,
        sources=(source,),
    )


def _pixels(environment: Mapping[str, Word], first: Any) -> dict[str, float]:
    found = {key: value for key, value in _numbers(_json(first("image", ("mm-processor-kwargs",)))).items() if key in IMAGE_KEYS}
    for key in IMAGE_KEYS:
        flag = first("image", (key.replace("_", "-"),))
        word = environment.get(key.upper())
        value = _number(flag if flag is not None else word.text if word is not None else None)
        if value is not None:
            found.setdefault(key, value)
    return found


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text and len(text) < 10_000 else None
    except (ValueError, RecursionError):
        return None


def _numbers(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {
        str(key): float(item)
        for key, item in value.items()
        if isinstance(item, (int, float)) and not isinstance(item, bool) and abs(item) < 1e15
    }


def _number(text: str | None) -> float | None:
    match = re.fullmatch(r"\s*([\d.]{1,18}(?:e-?\d{1,2})?)([kKmM]?)\s*", text or "")
    try:
        return float(match[1]) * {"": 1, "k": 1024, "K": 1024, "m": 1 << 20, "M": 1 << 20}[match[2]] if match else None
    except ValueError:
        return None
