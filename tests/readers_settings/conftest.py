"""Reads a text under a file name, by whichever reader claims it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tuneclinic.probes.readers.adapter_config import AdapterConfig
from tuneclinic.probes.readers.chat_template import ChatTemplate
from tuneclinic.probes.readers.generation_config import GenerationConfig
from tuneclinic.probes.readers.json_settings import JsonSettings
from tuneclinic.probes.readers.model_config import ModelConfig
from tuneclinic.probes.readers.nvidia_smi import NvidiaSmi
from tuneclinic.probes.readers.python_settings import PythonSettings
from tuneclinic.probes.readers.requirements import Requirements
from tuneclinic.probes.readers.shell_settings import ShellSettings
from tuneclinic.probes.readers.tokenizer_config import TokenizerConfig
from tuneclinic.probes.readers.tokenizer_json import TokenizerJson
from tuneclinic.probes.readers.yaml_settings import YamlSettings
from tuneclinic.probes.reading import Reader, Reading, SourceFile

READERS: tuple[Reader, ...] = (
    AdapterConfig(),
    ChatTemplate(),
    GenerationConfig(),
    JsonSettings(),
    ModelConfig(),
    NvidiaSmi(),
    PythonSettings(),
    Requirements(),
    ShellSettings(),
    TokenizerConfig(),
    TokenizerJson(),
    YamlSettings(),
)


def claimed(file: SourceFile) -> Reader | None:
    """The reader that claims the file most, None where none does."""
    score, best = max(((reader.claims(file), index) for index, reader in enumerate(READERS)), key=lambda pair: pair[0])
    return READERS[best] if score > 0 else None


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Reading]:
    """`read(text, "config.yaml")` writes the file and reads it."""

    def reading(content: str | bytes, name: str) -> Reading:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        file = SourceFile(path, name)
        reader = claimed(file)
        assert reader is not None, f"no reader claims {name}"
        (only,) = reader.read(file)
        return only

    return reading


@pytest.fixture
def values(read: Callable[..., Reading]) -> Callable[..., dict]:
    """The values of the settings of a text, by name."""

    def found(content: str, name: str) -> dict:
        settings = read(content, name).evidence.settings
        assert settings is not None
        return {key: setting.value for key, setting in settings.values.items()} | {"framework": settings.framework}

    return found


@pytest.fixture
def readers() -> tuple[Reader, ...]:
    return READERS


@pytest.fixture
def claim() -> Callable[[SourceFile], Reader | None]:
    return claimed
