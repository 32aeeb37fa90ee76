"""Every reader answers every input: it never raises, never hangs, and says so where it understood nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneclinic.probes.readers._shell_words import commands
from tuneclinic.probes.readers._tree import flat, json_tree
from tuneclinic.probes.readers._yaml_tree import yaml_tree
from tuneclinic.probes.reading import Reading, SourceFile
from tuneclinic.vocabulary import NAMES

FILES = (
    "config.yaml",
    "training_args.json",
    "ds_config.json",
    "run.sh",
    "train.py",
    "run.ipynb",
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.json",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "requirements.txt",
    "environment.yml",
    "uv.lock",
    "nvidia-smi.txt",
)
SEEDS = (
    "learning_rate: 2e-5\nnum_epochs: 3\nadapter: lora\nbase_model: a/b\na: &a [*a, {b: *a}]\n",
    '{"learning_rate": 1e-4, "zero_optimization": {"stage": 3}, "peft_type": "LORA", "r": 8, "target_modules": ["q"]}',
    '{"model_type": "llama", "architectures": ["X"], "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}',
    '{"eos_token": {"content": "</s>"}, "chat_template": [{"name": "a", "template": "{{ messages }}"}], "added_tokens_decoder": {"1": {}}}',
    "#!/bin/bash\nA=1 B=$A python train.py --learning_rate 1e-4 \\\n --bf16 'x y' | tee log\n",
    "import torch\nfrom trl import SFTConfig\nx = SFTConfig(learning_rate=2e-4, **{'packing': True})\n",
    "torch==2.1.0\ntransformers==4.40.0\npeft @ https://e.org/peft-0.1-py3-none-any.whl\n",
    "| NVIDIA-SMI 550.54.15  Driver Version: 550.54.15  CUDA Version: 12.4 |\n|   0  NVIDIA A100  On | 1MiB / 81920MiB |\n",
)
NATURAL = (
    "adapter_config.json", "chat_template.jinja", "generation_config.json", "args.json", "config.json", "nvidia-smi.txt",
    "train.py", "requirements.txt", "run.sh", "tokenizer_config.json", "tokenizer.json", "config.yaml",
)  # fmt: skip
"""A name of its own for each reader, in the order of the fixture."""


def answered(content: bytes, name: str, folder: Path, readers) -> None:
    path = folder / name
    path.write_bytes(content)
    file = SourceFile(path, name)
    for reader in readers:
        assert 0 <= reader.claims(file) <= 1
        readings = reader.read(file)
        assert readings
        for reading in readings:
            assert isinstance(reading, Reading)
            assert reading.understood or reading.note
            found = reading.evidence.settings
            for setting in found.values.values() if found else ():
                assert setting.quote
            for key in NAMES if found else ():
                found.number(key)
                found.flag(key)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300), name=st.sampled_from(FILES))
def test_bytes(content, name, tmp_path, readers):
    answered(content, name, tmp_path, readers)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.sampled_from(SEEDS), name=st.sampled_from(FILES), data=st.data())
def test_damaged_files(seed, name, data, tmp_path, readers):
    content = bytearray(seed.encode())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content)))
        content[at:at] = data.draw(
            st.sampled_from((b"\0", b"[", b"{", b'"', b"'", b"\\", b"$(", b"*a", b"&a ", b"9" * 400, b"\xff\xfe", b"\r"))
        )
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    answered(bytes(content), name, tmp_path, readers)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "learning_rate", "eos_token_id", "chat_template", "added_tokens_decoder", "target_modules", "rope_scaling", "vision_config",
    "hidden_size", "num_hidden_layers", "vocab_size", "model_type", "peft_type", "r", "zero_optimization", "deepspeed", "bf16", "dtype", "quantization_config",
    "architectures", "eos_token", "post_processor", "added_tokens", "text_config", "warmup_steps", "quant_bits", "load_in_4bit", "betas", "mm_tunable_parts",
)  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), name=st.sampled_from(FILES))
def test_documents_of_the_wrong_types(content, name, tmp_path, readers):
    answered(json.dumps(content).encode("utf-8", "replace"), name, tmp_path, readers)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_json_tree_reads_what_json_writes(value):
    tree = json_tree(json.dumps({"learning_rate": value}))
    assert tree is not None
    leaves = list(flat(tree))
    if isinstance(value, (bool, type(None))) or (isinstance(value, str) and value.isascii()):
        assert leaves[0][1].value == value
    elif isinstance(value, int):
        assert leaves[0][1].value == pytest.approx(value, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_yaml_and_shell_take_any_text(text):
    yaml_tree(text)
    list(commands(text))


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b"{" * 200_000,
        b'{"a":' * 100_000,
        b"- " * 100_000,
        b"? " * 50_000,
        b'{"learning_rate": ' + b"9" * 400_000 + b"}",
        b"learning_rate: " + b"x" * 10_000_000,
        b'"' * 300_000,
        b"a" * 10_000_000,
        b"$(" * 100_000,
        b"'" * 100_001,
        b"import torch\nx = " + b"a[" * 50_000,
        b"import torch\n" + b"x = not " * 50_000,
        b"\n" * 1_000_000,
        b'{"added_tokens": ' + b"[" * 100_000,
        b"\n\x80\x80\x80\x80\x80\x80",
        b"\n\x02\n\xff" * 1000,
    ],
    ids=range(17),
)
def test_large_and_deep_inputs_end(content, tmp_path, readers):
    for name in (
        "config.yaml",
        "config.json",
        "run.sh",
        "train.py",
        "run.ipynb",
        "tokenizer.json",
        "tokenizer.model",
        "requirements.txt",
    ):
        (tmp_path / name).write_bytes(content)
        file = SourceFile(tmp_path / name, name)
        assert all(0 <= reader.claims(file) <= 1 for reader in readers)
    for reader, name in zip(readers, NATURAL, strict=True):
        answered(content, name, tmp_path, (reader,))
