import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.probes.readers.gguf import GgufReader
from tuneclinic.probes.reading import SourceFile


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if value and isinstance(value[0], float):
        return text(key) + struct.pack("<IIQ", 9, 6, len(value)) + struct.pack(f"<{len(value)}f", *value)
    return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))


def gguf(values, version=3, claimed=None):
    body = b"".join(entry(key, value) for key, value in values.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(values) if claimed is None else claimed) + body


QWEN = {
    "general.architecture": "qwen2",
    "general.name": "tuned",
    "general.file_type": 15,
    "qwen2.context_length": 32768,
    "tokenizer.ggml.tokens": ["a", "<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0],
    "tokenizer.ggml.merges": ["a b", "c d"],
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{% endfor %}",
}


def read(folder, content, name="model.gguf"):
    path = folder / name
    path.write_bytes(content)
    (reading,) = GgufReader().read(SourceFile(path, name))
    return reading


def test_header(tmp_path):
    reading = read(tmp_path, gguf(QWEN))
    serving = reading.evidence.serving
    assert reading.understood == {"header entries": len(QWEN)}
    assert (serving.engine, serving.model, serving.quantization, serving.context) == ("gguf", "tuned", "Q4_K_M", 32768)
    assert (serving.eos_id, serving.bos_id, serving.adds_bos) == (1, 1, False)
    assert serving.stop_ids == (1, 3)
    assert serving.stops == ("<|endoftext|>", "<|im_end|>")
    assert serving.template.startswith("{% for m")
    assert serving.places["eos_id"] == "model.gguf: tokenizer.ggml.eos_token_id"


def test_no_template(tmp_path):
    serving = read(tmp_path, gguf({"general.architecture": "llama", "tokenizer.ggml.eos_token_id": 2})).evidence.serving
    assert (serving.template, serving.adds_bos, serving.stop_ids) == (None, None, (2,))


@pytest.mark.parametrize("length", [0, 3, 4, 8, 20, 30, 100, 300])
def test_cut_off(tmp_path, length):
    assert read(tmp_path, gguf(QWEN)[:length]).note


def test_lies(tmp_path):
    assert read(tmp_path, gguf(QWEN, claimed=2**60)).note
    bomb = (
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + text("x")
        + struct.pack("<IIQ", 9, 9, 2**40)
        + struct.pack("<IQ", 9, 2**40) * 1000
    )
    assert read(tmp_path, bomb).note
    assert read(tmp_path, gguf({"general.file_type": 999})).evidence.serving.quantization == "file type 999"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 30))
def test_mutated(tmp_path_factory, seed, changes):
    chance = random.Random(seed)
    content = bytearray(gguf(QWEN))
    for _ in range(changes):
        content[4 + chance.randrange(len(content) - 4)] = chance.randrange(256)
    reading = read(tmp_path_factory.getbasetemp(), bytes(content), "fuzz.gguf")
    assert reading.understood or reading.note
