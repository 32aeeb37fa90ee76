"""TensorBoard event files: the scalars, without TensorFlow.

An event file is a chain of TFRecords: length (8 bytes), its CRC (4), content, its CRC (4); little endian. The content is a
protobuf `Event` (tensorflow/core/util/event.proto); scalars are simple values in old writers and tensors in newer ones.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, ClassVar

from tuneclinic.probes.readers import _protobuf as wire
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._config import logged_settings
from tuneclinic.probes.readers._jsonl import readings_of
from tuneclinic.probes.readers._rows import JSON_ERRORS, READ_ERRORS, sure
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Settings
from tuneclinic.words import Text

RECORD_BYTES = 1 << 20
"""A scalar's record has some hundred bytes; larger ones are graphs, images and histograms and are passed over."""
LARGEST_RECORD = 1 << 31
"""A length beyond protobuf's own limit of 2 GiB is damage."""
ARGUMENTS = frozenset({"args/text_summary", "args", "training_args/text_summary"})
"""Tags under which the Trainer's callback writes its arguments."""
_FLOAT, _DOUBLE, _INT32, _INT64, _STRING, _BFLOAT16, _HALF = 1, 2, 3, 9, 7, 14, 19
_FORMATS = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q", _HALF: "<e"}


class TensorboardEvents(Reader):
    """Reads TensorBoard event files."""

    kind: ClassVar[str] = "TensorBoard events"
    precedence: ClassVar[int] = 30

    def claims(self, file: SourceFile) -> float:
        """By name, or by the version event that opens every event file."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """The scalars as series, in one streaming pass; `lines` of a series are record numbers."""
        collector, skipped = Collector(file.name), Counter[str]()
        damage: list[str] = []
        settings = None
        for record, content in _records(file, damage, skipped):
            try:
                step, scalars, arguments = _event(content, skipped)
            except (wire.BrokenError, struct.error, OverflowError):
                skipped["malformed records"] += 1
                continue
            settings = settings or _settings(arguments, file.name)
            for tag, value in scalars:
                if tag.endswith("vs samples"):
                    skipped["scalars against samples"] += 1
                else:
                    collector.add({tag: value, "step": step}, record)
        readings = readings_of(collector, skipped, damage, split=False)
        return [_named(reading, settings) for reading in readings]


def _claim(file: SourceFile) -> float:
    if b"brain.Event:" in file.head[:64]:
        return 0.99
    return 0.9 if ".tfevents." in file.base and not file.head.startswith(b"version http") else 0.0


_NO_SCALARS = Text("the event file holds no scalar: nothing was logged to it", "event 文件里没有任何标量，没有记录过数值")


def _named(reading: Reading, settings: Settings | None) -> Reading:
    """The reading with rows counted as scalars; a file without any says so."""
    metrics = reading.evidence.metrics
    evidence = replace(reading.evidence, settings=settings)
    if metrics is None:
        understood = {"settings": len(settings.values)} if settings else {}
        return replace(reading, evidence=evidence, understood=understood, note=reading.note if reading.skipped else _NO_SCALARS)
    return replace(reading, evidence=evidence, understood={"scalars": sum(reading.understood.values())})


def _records(file: SourceFile, damage: list[str], skipped: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """Record number from 1 and content; the first damage ends the reading."""
    record = 0
    try:
        with file.open() as stream:
            while header := stream.read(12):
                record += 1
                if len(header) < 12:
                    damage.append(f"record {record} is cut off")
                    return
                (length,) = struct.unpack("<Q", header[:8])
                if length > LARGEST_RECORD:
                    damage.append(f"record {record} claims {length} bytes")
                    return
                if length > RECORD_BYTES:
                    skipped["records beyond 1 MiB"] += 1
                    complete = _pass_over(stream, length + 4)
                    content = b""
                else:
                    content = stream.read(length)
                    complete = len(content) == length and len(stream.read(4)) == 4
                if not complete:
                    damage.append(f"record {record} is cut off")
                    return
                if content:
                    yield record, content
    except READ_ERRORS as error:
        damage.append(str(error) or type(error).__name__)


def _pass_over(stream: BinaryIO, length: int) -> bool:
    """Reads on by `length` bytes in bounded pieces; False where the file ends before."""
    while length > 0:
        piece = stream.read(min(length, RECORD_BYTES))
        if not piece:
            return False
        length -= len(piece)
    return True


def _event(content: bytes, skipped: Counter[str]) -> tuple[int, list[tuple[str, float]], list[str]]:
    """Step, scalars and argument texts of one `Event`: field 2 is the step, field 5 the summary."""
    step, summaries = 0, []
    for number, kind, value, data in wire.fields(content):
        if number == 2 and kind == wire.VARINT:
            step = wire.signed(value)
        elif number == 5 and kind == wire.BYTES:
            summaries.append(data)
    scalars: list[tuple[str, float]] = []
    arguments: list[str] = []
    for summary in summaries:
        for number, kind, _, data in wire.fields(summary):
            if number == 1 and kind == wire.BYTES:
                tag, scalar, words = _value(data)
                if scalar is not None:
                    scalars.append((tag, scalar))
                elif words and tag in ARGUMENTS:
                    arguments.append(words)
                else:
                    skipped["values that are no scalar"] += 1
    return step, scalars, arguments


def _value(data: bytes) -> tuple[str, float | None, str]:
    """Tag, number and text of one `Summary.Value`: field 1 is the tag, 2 a simple value, 8 a tensor."""
    tag, scalar, words = "", None, ""
    for number, kind, _, content in wire.fields(data):
        if number == 1 and kind == wire.BYTES:
            tag = wire.text(content, 200)
        elif number == 2 and kind == wire.FIXED32:
            scalar = wire.float32(content)
        elif number == 8 and kind == wire.BYTES:
            scalar, words = _tensor(content)
    return tag, scalar, words


def _tensor(data: bytes) -> tuple[float | None, str]:
    """The number of a tensor with one element, or its text. Fields: 1 type, 2 shape, 4 raw bytes, 5 to 10 typed values, 13 halves."""
    dtype, raw, words = 0, b"", ""
    typed: list[float] = []
    elements = 1
    for number, kind, value, content in wire.fields(data):
        if number == 1 and kind == wire.VARINT:
            dtype = value
        elif number == 2 and kind == wire.BYTES:
            elements = _elements(content)
        elif number == 4 and kind == wire.BYTES:
            raw = content
        elif number in {5, 6} and kind in {wire.BYTES, wire.FIXED32, wire.FIXED64} and content:
            form = "<f" if number == 5 else "<d"
            typed.append(float(struct.unpack_from(form, content)[0]))
        elif number in {7, 10}:
            typed.append(float(wire.signed(value if kind == wire.VARINT else wire.varint(content, 0)[0])))
        elif number == 8 and kind == wire.BYTES:
            words = wire.text(content, RECORD_BYTES)
    if dtype == _STRING:
        return None, words
    if elements != 1:
        return None, ""
    return _scalar_of(dtype, raw, typed), ""


def _scalar_of(dtype: int, raw: bytes, typed: list[float]) -> float | None:
    if not raw:
        return typed[0] if typed else None
    if dtype == _BFLOAT16 and len(raw) == 2:
        return wire.float32(b"\0\0" + raw)
    form = _FORMATS.get(dtype)
    return float(struct.unpack(form, raw)[0]) if form and len(raw) == struct.calcsize(form) else None


def _elements(shape: bytes) -> int:
    """How many elements a shape has: the product of its dimensions' sizes (field 2, each with its size in field 1)."""
    elements = 1
    for number, kind, _, dimension in wire.fields(shape):
        if number == 2 and kind == wire.BYTES:
            size = next((value for inner, form, value, _ in wire.fields(dimension) if inner == 1 and form == wire.VARINT), 0)
            elements = min(elements * size, 1 << 62)
    return elements


def _settings(arguments: list[str], source: str) -> Settings | None:
    for words in arguments:
        try:
            value: Any = json.loads(words)
        except JSON_ERRORS:
            continue
        if isinstance(value, dict):
            return logged_settings(value, source)
    return None
