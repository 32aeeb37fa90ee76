"""Any bytes whatever: the reader returns, counts honestly and keeps what it keeps bounded."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tuneclinic.probes.lines import formats
from tuneclinic.probes.lines._stream import blocks
from tuneclinic.probes.readers.text_log import TextLogReader
from tuneclinic.probes.reading import SourceFile

READER = TextLogReader()
PIECES = st.sampled_from(
    [
        b"{'loss': 1.5, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}", b"{'loss': '1.5', 'epoch': '9999999999999999999999'}", b"{'eval_loss': inf, 'epoch': 1e309}", b"{'loss': ", b"}", b"{", b"'",
        b"step: 10  loss: 5.0  grad_norm: 1.0", b"step: 99999999999  loss: -1", b"[rank1]:", b"[rank0]: ", b"(pid=77) ", b"0: ", b"3: ", b"Epoch 3:  45%|####      | 450/1000 [01:23<01:41,  5.40it/s, loss=0.1]",
        b" 10%|#  | 10/100 [00:01<00:09, 9.9it/s]", b"iter 5: loss 2.0, time 1ms, mfu 2%", b" iteration 1/ 10 | lm loss: 1.0 | ", b"step:1 - a:1 - b:np.float64(nan)", b"epoch 1 step 2 loss: 3", b"Traceback (most recent call last):",
        b'  File "a.py", line 1, in f', b"ValueError: x", b"Total optimization steps = 9999999999999", b"Num Epochs = 0", b"trainable params: 0 || all params: 1 || trainable%: 0", b"1|2|Loss: 3.0:", b"\r", b"\n", b"\n", b"\n", b"\r\n", b"\x1b[31m", b"\x1b]0;t", b"\0", b"\xff\xfe",
        b"\xe2\x96\x88" * 5, "训练 loss: 2.0 step: 3".encode(), "错误".encode("gb18030"), b" " * 50, b"9" * 400, b"1,2,3", b"nan", b"{'train_runtime': 1, 'train_loss': 1}", b"***** Running training *****", b"Continuing training from checkpoint", b"OVERFLOW! Rank 0 Attempted loss scale: 2, reducing to 1",
    ]
)  # fmt: skip
LOGS = st.one_of(
    st.lists(PIECES, max_size=60).map(b"".join), st.lists(PIECES, max_size=60).map(b"\n".join), st.binary(max_size=2000)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


def read(folder: Path, content: bytes):
    path = folder / "x.log"
    path.write_bytes(content)
    file = SourceFile(path, "x.log")
    assert 0 <= READER.claims(file) <= 1
    return READER.read(file)


@settings(max_examples=int(os.environ.get("TUNECLINIC_FUZZ", "150")), deadline=None, suppress_health_check=list(HealthCheck))
@given(content=LOGS)
@example(content=b"{'loss': 1.0, 'epoch': 0.1}\n{'loss': 1.0, 'epoch': 0.1}\n{'eval_loss': 1.0, 'epoch': 0.1}")
@example(content=b"\xff\xfe{\0'")
@example(content=b"\x1f\x8b\x08\0\0\0\0\0")
def test_any_bytes_are_read(folder, content):
    readings = read(folder, content)
    assert readings
    for reading in readings:
        metrics = reading.evidence.metrics
        assert (metrics is None) or reading.understood
        assert reading.understood or reading.note
        assert all(count > 0 for count in reading.understood.values())
        for series in metrics.series.values() if metrics else ():
            assert len(series.steps) == len(series.values) == len(series.lines) > 0
            assert not np.isnan(series.steps).any()
        log = reading.evidence.log
        assert len(log.lines) <= 700
        assert all("\x1b" not in line.text and "\0" not in line.text for line in log.lines)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    line=st.text(max_size=300) | st.lists(PIECES, max_size=12).map(lambda pieces: b" ".join(pieces).decode("utf-8", "replace"))
)
def test_no_format_raises_and_fields_are_in_order(line):
    for form in formats():
        for row in form.rows(line):
            assert 0 <= row.start <= row.end <= len(line)
            ends = [0, *(field.end for field in row.fields)]
            assert all(field.start >= end for field, end in zip(row.fields, ends, strict=False))
        form.parse(line)


VALUE = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(st.tuples(VALUE, VALUE, st.booleans()), min_size=1, max_size=40))
def test_what_was_printed_is_what_is_read(folder, values):
    rows = [
        f"{{'loss': {loss!r}, 'grad_norm': '{norm:.6g}', 'epoch': {at}, 'step': {at}}}" + (" done" if odd else "")
        for at, (loss, norm, odd) in enumerate(values)
    ]
    (reading,) = read(folder, "\n".join(rows).encode())
    series = reading.evidence.metrics.series
    assert np.array_equal(series["loss"].values, [loss for loss, _, _ in values], equal_nan=True)
    assert np.array_equal(series["grad_norm"].values, [float(f"{norm:.6g}") for _, norm, _ in values], equal_nan=True)


class Dripping:
    """A stream that gives a few bytes at a time."""

    def __init__(self, content, size):
        self.content, self.size = content, size

    def read(self, _):
        piece, self.content = self.content[: self.size], self.content[self.size :]
        return piece


@settings(max_examples=100, deadline=None)
@given(pieces=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"7"]), max_size=60), size=st.integers(1, 9))
def test_lines_and_their_numbers_do_not_depend_on_the_blocks(pieces, size):
    content = b"".join(pieces)
    found = [(block.number(at), raw) for block in blocks(Dripping(content, size)) for at, raw in enumerate(block.lines) if raw]
    expected = [(number, part) for number, line in enumerate(content.split(b"\n"), 1) for part in line.split(b"\r") if part]
    assert found == expected
