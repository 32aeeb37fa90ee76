"""Safetensors files written by hand, so that a file can be as wrong as one likes."""

import json
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneclinic.probes.readers import safetensors
from tuneclinic.probes.readers.safetensors import SafetensorsReader
from tuneclinic.probes.reading import SourceFile

TYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I64": np.int64, "U8": np.uint8}


def packed(tensors, metadata=None, raw=()):
    header, body, at = {}, b"", 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, array) in tensors.items():
        data = array if isinstance(array, bytes) else np.asarray(array, TYPES[dtype]).tobytes()
        shape = [len(data) // safetensors.BYTES[dtype]] if isinstance(array, bytes) else list(np.shape(array))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        body, at = body + data, at + len(data)
    header.update(raw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def write(folder, content, name="adapter_model.safetensors"):
    path = folder / name
    path.write_bytes(content)
    return SourceFile(path, name)


def read(folder, content, name="adapter_model.safetensors"):
    (reading,) = SafetensorsReader().read(write(folder, content, name))
    return reading, reading.evidence.weights.files[0]


def bf16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def test_a_trained_adapter(tmp_path):
    content = packed(
        {"q_proj.lora_A.weight": ("F32", [[0.1, 2]]), "q_proj.lora_B.weight": ("F32", [[0.3], [0.0]])}, {"format": "pt"}
    )
    reading, held = read(tmp_path, content)
    assert reading.understood == {"tensors": 2}
    assert (held.tensors, held.lora_b, held.zero_lora_b, held.values_read, held.nonfinite) == (2, 1, 0, True, ())
    assert held.metadata == {"format": "pt"}
    assert held.dtypes == {"F32": 2}
    assert held.size == len(content)


def test_an_untrained_adapter(tmp_path):
    names = {
        "a.lora_B.weight": ("F16", [[0.0, -0.0]]),
        "b.lora_B.default.weight": ("F32", [[0.0]]),
        "c.lora_up.weight": ("F32", [1.0]),
        "d.lora_embedding_B": ("F32", [0.0]),
        "lora_Bias": ("F32", [0.0]),
    }
    _, held = read(tmp_path, packed(names))
    assert (held.lora_b, held.zero_lora_b) == (4, 3)


@pytest.mark.parametrize("dtype", ["F32", "F16", "F64"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -np.nan])
def test_nonfinite(tmp_path, dtype, value):
    _, held = read(tmp_path, packed({"good": (dtype, [1, -2]), "bad": (dtype, [1, value])}))
    assert held.nonfinite == ("bad",)


@pytest.mark.parametrize("largest", [np.finfo(np.float32).max, -np.finfo(np.float32).max, np.finfo(np.float32).tiny])
def test_the_largest_finite_number_is_finite(tmp_path, largest):
    assert read(tmp_path, packed({"x": ("F32", [largest])}))[1].nonfinite == ()
    assert read(tmp_path, packed({"x": ("F16", [np.finfo(np.float16).max])}))[1].nonfinite == ()


def test_brain_float_and_eight_bit(tmp_path):
    content = packed(
        {
            "a": ("BF16", bf16([1, -3e38])), "b": ("BF16", bf16([1, np.inf])), "c": ("F8_E4M3", bytes([0x7E, 0xFE])), "d": ("F8_E4M3", bytes([0xFF])),
            "e": ("F8_E5M2", bytes([0x7B])), "f": ("F8_E5M2", bytes([0xFC])), "g": ("U8", bytes([0xFF])), "h.lora_B.weight": ("I8", bytes(4)),
        }
    )  # fmt: skip
    _, held = read(tmp_path, content)
    assert held.nonfinite == ("b", "d", "f")
    assert held.zero_lora_b == 1


def test_nan_late_in_a_large_tensor(tmp_path):
    values = np.ones(3_000_000, np.float32)
    values[2_999_999] = np.nan
    assert read(tmp_path, packed({"x": ("F32", values)}))[1].nonfinite == ("x",)


def test_over_budget_the_beginnings_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors, "VALUES_BYTES", 1000)
    monkeypatch.setattr(safetensors, "SAMPLE_BYTES", 100_000)
    tensors = {f"layer{i}": ("F32", np.full(5000, np.nan if i == 3 else 1.0)) for i in range(5)} | {
        "x.lora_B.weight": ("F32", np.zeros(9000))
    }
    reading, held = read(tmp_path, packed(tensors))
    assert not held.values_read
    assert held.nonfinite == ("layer3",)
    assert held.zero_lora_b == 0
    assert reading.note


def test_empty_tensors_of_a_partitioned_save(tmp_path):
    _, held = read(tmp_path, packed({"q.lora_A.weight": ("F32", []), "q.lora_B.weight": ("F32", [])}))
    assert held.empty == ("q.lora_A.weight", "q.lora_B.weight")
    assert held.zero_lora_b == 0


def test_an_adapter_of_443_bytes(tmp_path):
    content = packed({}, {"format": "pt"})
    reading, held = read(tmp_path, content)
    assert (held.tensors, held.adapter, reading.understood) == (0, True, {})
    assert held.size == len(content) < 500


@pytest.mark.parametrize(
    ("name", "step"),
    [("checkpoint-500/model.safetensors", 500), ("run/global_step40/model.safetensors", 40), ("model.safetensors", None)],
)
def test_step(tmp_path, name, step):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed({"x": ("F32", [1.0])}))
    (reading,) = SafetensorsReader().read(SourceFile(path, name))
    assert reading.evidence.weights.files[0].step == step


def test_both_ends_of_a_large_model_are_named(tmp_path):
    tensors = {f"w{i}": ("U8", b"\1") for i in range(6000)} | {
        "model.embed_tokens.weight": ("U8", b"\1"),
        "lm_head.weight": ("U8", b"\1"),
    }
    _, held = read(tmp_path, packed(tensors))
    assert {"model.embed_tokens.weight", "lm_head.weight"} <= set(held.names)
    assert len(held.names) < 4200


def test_cut_off(tmp_path):
    content = packed({"a": ("F32", [1, 2]), "b": ("F32", [1, 2])})
    reading, held = read(tmp_path, content[:-4])
    assert not held.values_read
    assert "cut off" in reading.note.en
    for length in range(0, len(content) - 12, 3):
        reading, held = read(tmp_path, content[:length])
        assert not held.values_read
        assert reading.note


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff" * 8, struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 4) + b"[[]]", struct.pack("<Q", 3) + b"nul", b"\x08\0\0\0\0\0\0\0" + b"\xff" * 8,
        struct.pack("<Q", 200_000) + b"[" * 200_000, struct.pack("<Q", 100_001) + b'{"a":' * 20_000 + b"1",
    ],
)  # fmt: skip
def test_header_lies(tmp_path, content):
    reading, held = read(tmp_path, content)
    assert not held.values_read
    assert reading.understood == {}
    assert reading.note


@pytest.mark.parametrize(
    "entry",
    [
        None, [], {"dtype": 3}, {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}, {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}, {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}, {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]},
    ],
)  # fmt: skip
def test_malformed_entries(tmp_path, entry):
    reading, held = read(tmp_path, packed({"good": ("F32", [1.0])}, raw={"bad": entry}.items()))
    assert reading.skipped == {"malformed header entries": 1}
    assert (held.tensors, held.values_read) == (2, False)


def test_unknown_types_are_named_and_not_judged(tmp_path):
    _, held = read(tmp_path, packed({}, raw={"x": {"dtype": "F4", "shape": [3], "data_offsets": [0, 0]}}.items()))
    assert held.dtypes == {"F4": 1}


def test_index(tmp_path):
    write(tmp_path, packed({"a": ("F32", [1.0])}), "model-00001-of-00002.safetensors")
    index = {
        "metadata": {"total_size": 8},
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "lm_head.weight": "model-00002-of-00002.safetensors",
            "x": "../../etc/passwd",
        },
    }
    reading, held = read(tmp_path, json.dumps(index).encode(), "model.safetensors.index.json")
    assert (held.form, held.tensors, held.metadata["missing"]) == ("safetensors-index", 3, "model-00002-of-00002.safetensors")
    assert "1 of 3" in reading.note.en


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"weight_map": 3}', b"[" * 100_000])
def test_broken_index(tmp_path, content):
    (reading,) = SafetensorsReader().read(write(tmp_path, content, "model.safetensors.index.json"))
    assert reading.note


def test_claims(tmp_path):
    content = packed({"x": ("F32", [1.0])})
    assert SafetensorsReader().claims(write(tmp_path, content)) == 1
    assert SafetensorsReader().claims(write(tmp_path, content, "weights")) > 0.5
    assert SafetensorsReader().claims(write(tmp_path, b"loss: 1", "train.log")) == 0


def test_real_library_agrees(tmp_path):
    real = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")
    real.save_file(
        {"a.lora_B.weight": np.zeros((4, 2), np.float32), "b": np.array([np.nan], np.float16)},
        tmp_path / "m.safetensors",
        metadata={"format": "np"},
    )
    _, held = read(tmp_path, (tmp_path / "m.safetensors").read_bytes(), "m.safetensors")
    assert (held.tensors, held.zero_lora_b, held.nonfinite, held.metadata["format"]) == (2, 1, ("b",), "np")


BASE = packed({"a.lora_B.weight": ("F32", [0.0, 0.0]), "b": ("F16", [1.0])}, {"format": "pt"})


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.booleans())
def test_mutated(tmp_path_factory, seed, changes, cut):
    chance = random.Random(seed)
    content = bytearray(BASE)
    for _ in range(changes):
        content[chance.randrange(len(content))] = chance.randrange(256)
    content = content[: chance.randrange(len(content))] if cut else content
    folder = tmp_path_factory.getbasetemp()
    for name in ("fuzz.safetensors", "fuzz.safetensors.index.json"):
        file = write(folder, bytes(content), name)
        assert 0 <= SafetensorsReader().claims(file) <= 1
        (reading,) = SafetensorsReader().read(file)
        assert reading.understood or reading.note
