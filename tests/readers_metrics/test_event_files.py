import json
import math
import struct

import pytest

from tuneclinic.probes.readers.tensorboard_events import TensorboardEvents
from tuneclinic.probes.readers.wandb_offline import WandbFiles, WandbOffline
from tuneclinic.words import Text

EVENTS = "events.out.tfevents.1700000000.host.0"


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(content):
    return struct.pack("<Q", len(content)) + b"\0" * 4 + content + b"\0" * 4


def event(step, *values):
    return record(varint(2 << 3) + varint(step & (1 << 64) - 1) + field(5, b"".join(field(1, value) for value in values)))


def tensor(tag, dtype, body, shape=b""):
    return field(1, tag) + field(8, varint(1 << 3) + varint(dtype) + field(2, shape) + body)


def test_a_file_that_tensorboardx_wrote(real):
    file = real(EVENTS)
    assert TensorboardEvents().claims(file) > 0.9
    (reading,) = TensorboardEvents().read(file)
    metrics = reading.evidence.metrics
    assert metrics.get("loss").steps.tolist() == [10, 20, 30, 40, 50]
    assert metrics.get("loss").values[:3] == pytest.approx([2.5, 1.25, 2.5 / 3])
    assert math.isnan(metrics.get("loss").values[3])
    assert metrics.get("eval_loss").steps.tolist() == [20, 40]
    assert metrics.get("learning_rate").values == pytest.approx([2e-5] * 5)
    assert metrics.summary == pytest.approx({"train_loss": 1.2, "train_runtime": 33.0})
    assert metrics.finished is True
    assert reading.understood == {"scalars": 14}
    assert reading.evidence.settings.number("learning_rate") == 2e-5
    assert reading.evidence.settings.number("batch_per_device") == 2


@pytest.mark.parametrize("cut", [1, 3, 40, 200])
def test_a_damaged_tail_ends_the_reading(real, written, cut):
    content = real(EVENTS).read_bytes()
    (reading,) = TensorboardEvents().read(written(EVENTS, content[:-cut]))
    assert reading.understood["scalars"] > 5
    assert isinstance(reading.note, Text)


@pytest.mark.parametrize(
    ("dtype", "body"),
    [
        (1, field(4, struct.pack("<f", 1.5))),
        (1, field(5, struct.pack("<f", 1.5))),
        (2, field(4, struct.pack("<d", 1.5))),
        (2, field(6, struct.pack("<d", 1.5))),
        (14, field(4, struct.pack("<f", 1.5)[2:])),
        (19, field(4, struct.pack("<e", 1.5))),
    ],
)
def test_scalars_as_tensors(written, dtype, body):
    file = written(EVENTS, event(7, tensor(b"eval/loss", dtype, body)))
    metrics = TensorboardEvents().read(file)[0].evidence.metrics
    assert metrics.get("eval_loss").values.tolist() == [1.5]
    assert metrics.get("eval_loss").steps.tolist() == [7]


def test_megatron_names_and_their_doubles_against_samples(written):
    scalar = lambda tag, value: field(1, tag) + varint(2 << 3 | 5) + struct.pack("<f", value)  # noqa: E731 - one line, used thrice
    values = (
        scalar(b"lm loss", 10.5),
        scalar(b"lm loss vs samples", 10.5),
        scalar(b"learning-rate", 0.5),
        scalar(b"loss-scale", 4.0),
    )
    (reading,) = TensorboardEvents().read(written(EVENTS, event(1, *values)))
    assert set(reading.evidence.metrics.series) == {"loss", "learning_rate", "loss_scale"}
    assert reading.evidence.metrics.kind == "causal-lm"
    assert reading.skipped == {"scalars against samples": 1}


def test_histograms_are_no_scalars_and_a_file_without_scalars_says_so(written):
    shape = field(2, varint(1 << 3) + varint(3))
    file = written(EVENTS, event(1, tensor(b"weights", 1, field(4, b"\0" * 12), shape)))
    (reading,) = TensorboardEvents().read(file)
    assert not reading.understood
    assert reading.skipped == {"values that are no scalar": 1}
    (empty,) = TensorboardEvents().read(written("empty.tfevents.1", record(field(3, b"brain.Event:2"))))
    assert isinstance(empty.note, Text)
    assert "no scalar" in empty.note.en


def test_a_huge_record_is_passed_over_and_an_absurd_length_ends_the_reading(written):
    scalar = field(1, b"loss") + varint(2 << 3 | 5) + struct.pack("<f", 1.0)
    file = written(EVENTS, record(b"\0" * (2 << 20)) + event(1, scalar) + b"\xff" * 12 + event(2, scalar))
    (reading,) = TensorboardEvents().read(file)
    assert reading.understood == {"scalars": 1}
    assert reading.skipped == {"records beyond 1 MiB": 1}
    assert reading.note


def test_a_file_that_wandb_wrote(real):
    file = real("run-offline.wandb")
    assert WandbOffline().claims(file) > 0.9
    (reading,) = WandbOffline().read(file)
    metrics = reading.evidence.metrics
    assert metrics.get("loss").steps.tolist() == [10, 20, 30, 40, 50]
    assert metrics.get("loss").values[:3] == pytest.approx([2.5, 1.25, 2.5 / 3])
    assert math.isnan(metrics.get("loss").values[3])
    assert metrics.get("eval_loss").steps.tolist() == [20, 40]
    assert metrics.get("nested/a").values.tolist() == [2, 4]
    assert metrics.summary == {"train_loss": 1.2, "train_runtime": 33.0}
    assert metrics.finished is True
    assert reading.evidence.settings.number("learning_rate") == 2e-5
    assert reading.evidence.settings.get("optimizer") == "adamw_torch"
    assert reading.evidence.model.vocabulary == 32000
    assert [line.text for line in reading.evidence.log.lines] == [f"step {at}" for at in range(1, 6)]
    assert reading.understood["train rows"] == 5


def framed(records, block=32768):
    """LevelDB framing with records split over blocks."""
    out = b":W&B\xe1\xbe\x00"
    for whole in records:
        start, content = True, whole
        while start or content:
            room = block - len(out) % block
            if room < 7:
                out += b"\0" * room
                continue
            piece, content = content[: room - 7], content[room - 7 :]
            kind = (1 if start else 4) if not content else (2 if start else 3)
            out += b"\0" * 4 + struct.pack("<HB", len(piece), kind) + piece
            start = False
    return out


def history(**values):
    items = b"".join(field(1, field(1, key.encode()) + field(16, json.dumps(value).encode())) for key, value in values.items())
    return field(2, items)


def test_records_over_several_blocks(written):
    rows = [history(loss=2.0, _step=0, note="x" * 100_000), history(loss=1.0, _step=1), field(18, varint(1 << 3) + varint(1))]
    file = written("run-a.wandb", framed(rows))
    (reading,) = WandbOffline().read(file)
    assert reading.evidence.metrics.get("loss").values.tolist() == [2.0, 1.0]
    assert reading.evidence.metrics.finished is False


def test_a_wandb_file_that_is_still_being_written(real, written):
    content = real("run-offline.wandb").read_bytes()
    (reading,) = WandbOffline().read(written("run-a.wandb", content[: len(content) // 2]))
    assert reading.understood["train rows"] >= 1
    assert isinstance(reading.note, Text)


def test_summary_and_configuration_files(written):
    summary = written(
        "wandb-summary.json",
        {"train/train_loss": 1.5, "eval/loss": 2.0, "_runtime": 3, "_wandb": {"runtime": 3}, "train/global_step": 5},
    )
    assert WandbFiles().claims(summary) > 0.9
    (reading,) = WandbFiles().read(summary)
    assert reading.evidence.metrics.summary == {"train_loss": 1.5, "eval_loss": 2.0}
    text = "wandb_version: 1\n\n_wandb:\n    desc: null\n    value:\n        python_version: 3.11.0\nlearning_rate:\n    desc: null\n    value: 2e-05\nvocab_size:\n    value: 32000\nmodel_type:\n    value: llama\nmax_length:\n    value: 20\n"
    config = written("files/config.yaml", text)
    assert WandbFiles().claims(config) > 0.9
    (reading,) = WandbFiles().read(config)
    assert reading.evidence.settings.number("learning_rate") == 2e-5
    assert "max_length" not in reading.evidence.settings
    assert reading.evidence.model.vocabulary == 32000
    assert WandbFiles().claims(written("config.yaml", "learning_rate: 1\n")) == 0


def test_metadata_of_the_machine(written):
    content = {
        "python": "CPython 3.10.12",
        "cudaVersion": "12.4",
        "gpu_nvidia": [{"name": "NVIDIA A100-SXM4-40GB", "memoryTotal": "42949672960"}] * 2,
        "memory": {"total": "1073741824000"},
        "host": "somewhere",
    }
    file = written("files/wandb-metadata.json", content)
    assert WandbFiles().claims(file) > 0.9
    (reading,) = WandbFiles().read(file)
    found = reading.evidence.environment
    assert (found.python, found.cuda, found.gpus, found.gpu_memory, found.host_memory) == (
        "3.10.12",
        "12.4",
        ("NVIDIA A100-SXM4-40GB",) * 2,
        40.0,
        1000.0,
    )
