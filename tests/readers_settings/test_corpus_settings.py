"""Every real configuration, tokenizer file and template is claimed by the right reader and understood."""

import json
from pathlib import Path

import pytest

from tuneclinic.probes.reading import SourceFile

pytestmark = pytest.mark.corpus

EMPTY = {
    "2b800e__LLaVA-NeXT__video_description_from_t2v.sh": "a script that only generates captions",
    "723710__torchtitan__tokenizer.json": "a symbolic link as text",
    "ffbd1f__torchtitan__tokenizer_config.json": "a symbolic link as text",
    "7827fe__DiffSynth-Studio__tokenizer_config.json": "an image processor's settings, no token among them",
    "96c0bf__nanochat__generation_config.json": "two lines that set nothing",
}
"""Files with truly nothing in them."""
READER = (
    ("adapter_config.json", "AdapterConfig"),
    ("generation_config.json", "GenerationConfig"),
    ("tokenizer_config.json", "TokenizerConfig"),
    ("special_tokens_map.json", "TokenizerConfig"),
    ("tokenizer.json", "TokenizerJson"),
    ("tokenizer.model", "TokenizerJson"),
    (".jinja", "ChatTemplate"),
    (".json", "JsonSettings"),
    (".yaml", "YamlSettings"),
    (".yml", "YamlSettings"),
    (".sh", "ShellSettings"),
    (".py", "PythonSettings"),
)


def files(corpus: Path, *folders: str):
    for folder in folders:
        for path in sorted((corpus / folder).iterdir()):
            yield path, SourceFile(path, path.name.split("__")[-1])


def test_each_file_is_claimed_and_understood(corpus, claim):
    count = 0
    for path, file in files(corpus, "configs", "tokenizers", "templates"):
        reader = claim(file)
        expected = next(name for end, name in READER if file.base.endswith(end))
        assert type(reader).__name__ == expected, path.name
        readings = reader.read(file)
        understood = all(reading.understood for reading in readings)
        assert understood == (path.name not in EMPTY), path.name
        assert understood or readings[0].note
        count += 1
    assert count >= 160


def test_no_log_and_no_data_set_is_claimed(corpus, claim):
    for folder in ("runs", "datasets"):
        for path in sorted((corpus / folder).rglob("*")):
            if path.is_file():
                assert claim(SourceFile(path, path.name)) is None, path


def test_frameworks_are_told_by_their_keys(corpus, claim):
    owners = {
        "LLaMA-Factory": {"llama-factory", "deepspeed"},
        "axolotl": {"axolotl"},
        "accelerate": {"accelerate", "deepspeed"},
        "xtuner": {"xtuner"},
    }
    for path, file in files(corpus, "configs"):
        owner = owners.get(path.name.split("__")[1])
        settings = claim(file).read(file)[0].evidence.settings
        if owner and not file.base.endswith("adapter_config.json"):
            assert settings.framework in owner, path.name


def test_every_yaml_line_is_where_it_is_said_to_be(corpus, claim):
    for path, file in files(corpus, "configs"):
        if not file.base.endswith((".yaml", ".yml")):
            continue
        lines = path.read_text().splitlines()
        settings = claim(file).read(file)[0].evidence.settings
        for setting in (*settings.values.values(), *settings.unknown.values()):
            line = lines[int(setting.where.rsplit(":", 1)[1]) - 1]
            last = [part for part in setting.key.split(".") if not part.isdigit()][-1]
            assert last in line or setting.key == "adapter", (path.name, setting)


def test_every_json_line_is_where_it_is_said_to_be(corpus, claim):
    for path, file in files(corpus, "configs"):
        if not file.base.endswith(".json"):
            continue
        lines = path.read_text().splitlines()
        for setting in claim(file).read(file)[0].evidence.settings.values.values():
            line = lines[int(setting.where.rsplit(":", 1)[1]) - 1]
            key = "peft_type" if setting.key == "method" else setting.key.rsplit(".", 1)[-1]
            assert f'"{key}"' in line, (path.name, setting)


def test_tokenizers_agree_with_their_own_json(corpus, claim):
    for path, file in files(corpus, "tokenizers"):
        if not file.base.endswith("tokenizer_config.json") or path.name in EMPTY:
            continue
        config = json.loads(path.read_text())
        tokenizer = claim(file).read(file)[0].evidence.tokenizer
        eos = config.get("eos_token")
        assert tokenizer.eos == (eos["content"] if isinstance(eos, dict) else eos)
        assert len(tokenizer.ids) == len(config.get("added_tokens_decoder", {}))
        assert (tokenizer.template is None) == (config.get("chat_template") is None)
