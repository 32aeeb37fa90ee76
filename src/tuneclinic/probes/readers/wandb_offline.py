"""W&B's own files: the offline record `run-*.wandb`, `wandb-summary.json` and `config.yaml`.

A `.wandb` file is a LevelDB log (blocks of 32 KiB, records in one piece or several) behind a header of seven bytes; each record
is a protobuf `Record` (wandb/proto/wandb_internal.proto) whose values are JSON texts.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from tuneclinic.evidence import Evidence
from tuneclinic.probes.readers import _protobuf as wire
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._config import logged_model, logged_settings, unwrapped_yaml
from tuneclinic.probes.readers._jsonl import NO_ROWS, readings_of
from tuneclinic.probes.readers._metric_names import STEP_NAMES, meaning, summary_name
from tuneclinic.probes.readers._rows import JSON_ERRORS, READ_ERRORS, document, flat, joined, nothing, number, sure
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Environment, Log, LogLine, Metrics
from tuneclinic.words import Text

HEADER = b":W&B"
BLOCK = 32768
"""Bytes of a LevelDB log block."""
RECORD_BYTES = 8 << 20
"""The largest record put together; a history row or a configuration has some kilobytes."""
LOG_LINES = 400
"""Lines of the run's own output that are kept, the last ones; the whole is in `output.log` beside it."""
METADATA = "wandb-metadata.json"
GIB = 1 << 30
LINE_CHARS = 2000
"""Characters kept of one line of output."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _SUMMARY, _OUTPUT, _CONFIG, _OUTPUT_RAW, _RUN, _EXIT = 2, 3, 4, 5, 13, 17, 18
_ITEM_KEY, _ITEM_NESTED_KEY, _ITEM_JSON = 1, 2, 16


class _Run:
    """What the records told so far."""

    def __init__(self, source: str) -> None:
        self.collector = Collector(source)
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.output: deque[str] = deque(maxlen=LOG_LINES)
        self.output_lines = 0
        self.unfinished = ""
        self.exit_code: int | None = None
        self.skipped: Counter[str] = Counter()


class WandbOffline(Reader):
    """Reads a run's `.wandb` file."""

    kind: ClassVar[str] = "W&B offline run"
    precedence: ClassVar[int] = 30

    def claims(self, file: SourceFile) -> float:
        """By the four bytes that open it."""
        return 0.99 if file.head.startswith(HEADER) else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """History rows as series, the configuration as settings, the last lines of output, the exit code."""
        run, damage = _Run(file.name), list[str]()
        for record, content in enumerate(_records(file, damage), 1):
            try:
                _take(run, content, record)
            except (wire.BrokenError, struct.error):
                run.skipped["malformed records"] += 1
        reading = readings_of(run.collector, run.skipped, damage, split=False)[0]
        return [_completed(reading, run, file.name)]


class WandbFiles(Reader):
    """Reads `wandb-summary.json`, `wandb-metadata.json` and W&B's `config.yaml`."""

    kind: ClassVar[str] = "W&B run files"
    precedence: ClassVar[int] = 45

    def claims(self, file: SourceFile) -> float:
        """By name, and for the configuration by the keys W&B adds."""
        return sure(_claim_files, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """End-of-run numbers, settings, or the machine."""
        if file.base == METADATA:
            return [_metadata_file(file)]
        return [_summary_file(file) if file.base.endswith(".json") else _config_file(file)]


def _claim_files(file: SourceFile) -> float:
    if file.base in {"wandb-summary.json", METADATA}:
        return 0.97
    if not file.base.startswith("config") or not file.base.endswith((".yaml", ".yml")):
        return 0.0
    head = f"\n{file.head_text}"
    wrapped = "    value:" in head or "\n  value:" in head
    return 0.96 if wrapped and ("\n_wandb:" in head or "\nwandb_version:" in head) else 0.0


def _records(file: SourceFile, damage: list[str]) -> Iterator[bytes]:
    """The records in order, put together from their pieces; the first damage ends the reading."""
    try:
        with file.open() as stream:
            header = stream.read(7)
            pieces: list[bytes] = []
            size, first = 0, True
            while True:
                block = stream.read(BLOCK - 7) if first else stream.read(BLOCK)
                first = False
                if not block:
                    break
                for kind, content in _pieces(block, damage):
                    if kind in {_FULL, _FIRST}:
                        pieces, size = [], 0
                    size += len(content)
                    if size <= RECORD_BYTES:
                        pieces.append(content)
                    if kind in {_FULL, _LAST} and size <= RECORD_BYTES:
                        yield b"".join(pieces)
                if damage:
                    return
            if not header:
                damage.append("the file is empty")
    except READ_ERRORS as error:
        damage.append(str(error) or type(error).__name__)


def _pieces(block: bytes, damage: list[str]) -> Iterator[tuple[int, bytes]]:
    """The pieces in one block: checksum (4 bytes, not verified), length (2), type (1), content; zeros fill its end."""
    at = 0
    while at + 7 <= len(block):
        length, kind = struct.unpack_from("<HB", block, at + 4)
        if kind == 0 and length == 0:
            return
        if kind not in {_FULL, _FIRST, _MIDDLE, _LAST}:
            damage.append(f"piece of unknown type {kind}")
            return
        if at + 7 + length > len(block):
            damage.append("the last record is cut off")
            return
        yield kind, block[at + 7 : at + 7 + length]
        at += 7 + length


def _take(run: _Run, content: bytes, record: int) -> None:
    for kind, form, _, data in wire.fields(content):
        if form != wire.BYTES:
            continue
        if kind == _HISTORY:
            row = _items(data)
            if not run.collector.add(flat(row), record):
                run.skipped["rows without numbers"] += 1
        elif kind == _SUMMARY:
            run.summary.update(_items(data))
        elif kind == _CONFIG:
            run.config.update(_items(data))
        elif kind == _RUN:  # field 4 of a run is its configuration at the start
            for inner, inner_form, _, config in wire.fields(data):
                if inner == 4 and inner_form == wire.BYTES:
                    run.config.update(_items(config))
        elif kind in {_OUTPUT, _OUTPUT_RAW}:
            _take_output(run, data)
        elif kind == _EXIT:
            run.exit_code = next((wire.signed(value) for inner, _, value, _ in wire.fields(data) if inner == 1), 0)


def _take_output(run: _Run, data: bytes) -> None:
    """Adds output: records hold any piece of text, a line may come in several."""
    for inner, form, _, words in wire.fields(data):
        if inner == 3 and form == wire.BYTES:
            *lines, run.unfinished = (run.unfinished + wire.text(words, 1 << 16)).split("\n")
            run.unfinished = run.unfinished[-LINE_CHARS:]
            for line in lines:
                last = line.rstrip("\r").rpartition("\r")[2]  # what a progress bar left standing
                run.output.append(last[:LINE_CHARS])
                run.output_lines += 1


def _items(data: bytes) -> dict[str, Any]:
    """The items of a history, summary or configuration record: field 1 repeated, a key or a nested key, and a JSON value."""
    items: dict[str, Any] = {}
    for number_, form, _, item in wire.fields(data):
        if number_ != 1 or form != wire.BYTES:
            continue
        keys: list[str] = []
        value: Any = None
        for inner, inner_form, _, content in wire.fields(item):
            if inner_form != wire.BYTES:
                continue
            if inner in {_ITEM_KEY, _ITEM_NESTED_KEY}:
                keys.append(wire.text(content, 200))
            elif inner == _ITEM_JSON:
                value = _value(content)
        if keys:
            items["/".join(key for key in keys if key)] = value
    return items


def _value(content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8", errors="replace"))
    except JSON_ERRORS:
        return None


def _completed(reading: Reading, run: _Run, source: str) -> Reading:
    """The reading with settings, model, summary, output and exit code."""
    understood = dict(reading.understood)
    settings, model = logged_settings(run.config, source), logged_model(run.config, source)
    if settings:
        understood["settings"] = len(settings.values)
    log = None
    if run.output:
        first = run.output_lines - len(run.output) + 1
        lines = tuple(LogLine(text, f"{source} output line {at}", source) for at, text in enumerate(run.output, first))
        log = Log(lines, run.output_lines)
        understood["output lines"] = run.output_lines
    metrics = _summarised(reading.evidence.metrics, run, source)
    if model:
        understood["model facts"] = 1
    if metrics is not None and not reading.understood:
        understood["summary values"] = len(metrics.summary)
    evidence = Evidence(metrics=metrics, settings=settings, model=model, log=log)
    return replace(reading, evidence=evidence, understood=understood)


def _summarised(metrics: Metrics | None, run: _Run, source: str) -> Metrics | None:
    summary = _summary_numbers(run.summary)
    if metrics is None:
        return Metrics(summary=summary, source=source) if summary else None
    finished = metrics.finished
    if finished is None and run.exit_code is not None:
        finished = run.exit_code == 0
    once = {name: held for name, held in summary.items() if name not in metrics.series}
    return replace(metrics, summary={**once, **metrics.summary}, finished=finished)


def _summary_numbers(summary: dict[str, Any]) -> dict[str, float]:
    """Numbers of a summary under our names; `_runtime` and other keys of W&B itself are left out."""
    numbers: dict[str, float] = {}
    for raw, value in flat(summary).items():
        held = number(value)
        if held is not None and not str(raw).startswith("_") and raw not in STEP_NAMES and len(str(raw)) <= 200:
            numbers[summary_name(raw) or meaning(raw)[0]] = held
    return numbers


def _summary_file(file: SourceFile) -> Reading:
    value, _, problem = document(file)
    summary = _summary_numbers(value) if isinstance(value, dict) else {}
    if not summary:
        return nothing(joined(NO_ROWS, problem))[0]
    finished = True if "train_runtime" in summary else None
    return Reading(
        Evidence(metrics=Metrics(summary=summary, finished=finished, source=file.name)), {"summary values": len(summary)}
    )


def _config_file(file: SourceFile) -> Reading:
    try:
        config, problem = unwrapped_yaml(file)
    except READ_ERRORS as error:
        return nothing(str(error) or type(error).__name__)[0]
    settings, model = logged_settings(config, file.name), logged_model(config, file.name)
    if settings is None and model is None:
        return nothing(joined(Text("no known setting in it", "里面没有认识的配置项"), problem))[0]
    understood = {"settings": len(settings.values) if settings else 0, "model facts": 1 if model else 0}
    return Reading(Evidence(settings=settings, model=model), {shape: count for shape, count in understood.items() if count})


def _metadata_file(file: SourceFile) -> Reading:
    """Versions and hardware as W&B found them; memory is written in bytes."""
    value, _, problem = document(file)
    found: dict[str, Any] = {}
    if isinstance(value, dict):
        python, cuda = value.get("python"), value.get("cudaVersion", value.get("cuda"))
        found["python"] = python.rpartition(" ")[2][:40] if isinstance(python, str) else None
        found["cuda"] = cuda[:40] if isinstance(cuda, str) else None
        cards = value.get("gpu_nvidia", value.get("gpu_amd"))
        cards = [card for card in cards[:64] if isinstance(card, dict)] if isinstance(cards, list) else []
        found["gpus"] = tuple(str(card["name"])[:100] for card in cards if card.get("name")) or None
        found["gpu_memory"] = _gib([card.get("memoryTotal", card.get("memory_total")) for card in cards])
        memory = value.get("memory")
        found["host_memory"] = _gib([memory.get("total")]) if isinstance(memory, dict) else None
    found = {name: held for name, held in found.items() if held}
    if not found:
        return nothing(joined(Text("nothing of the machine in it", "里面没有机器信息"), problem))[0]
    environment = Environment(**found, places=dict.fromkeys(found, file.name))
    return Reading(Evidence(environment=environment), {"machine facts": len(found)})


def _gib(values: list[Any]) -> float | None:
    """The smallest of several sizes in bytes, in GiB."""
    sizes = [size for value in values if (size := number(value)) is not None and 0 < size < 1e18]
    return min(sizes) / GIB if sizes else None
