"""`trainer_state.json`: the history that a Hugging Face Trainer keeps in every checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._collect import Collector
from tuneclinic.probes.readers._rows import document, flat, joined, nothing, number, objects_after, step_number, sure
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Metrics, Setting, Settings
from tuneclinic.words import Text, Words

MOST_EPOCHS = 10_000
"""A Trainer on a data set without length writes sys.maxsize epochs; nobody means more than this."""
_SCALARS = ("global_step", "max_steps", "num_train_epochs", "epoch")
_HISTORY = pattern(r'"log_history"\s*:\s*\[')


class _State(NamedTuple):
    """One state file: its history rows with their numbers from 1, its scalars, and what was wrong with it."""

    name: str
    rows: Sequence[tuple[int, Mapping[str, Any]]] = ()
    scalars: Mapping[str, float] = MappingProxyType({})
    malformed: int = 0
    cut: bool = False
    note: Words = ""

    @property
    def step(self) -> float:
        """How far this state came."""
        return self.scalars.get("global_step", max((_step(row) for _, row in self.rows), default=0.0))


class TrainerState(Reader):
    """Reads one `trainer_state.json`."""

    kind: ClassVar[str] = "trainer_state.json"
    precedence: ClassVar[int] = 20

    def claims(self, file: SourceFile) -> float:
        """By name, or by the keys that only a trainer state has."""
        return sure(_claim, file)

    def read(self, file: SourceFile) -> list[Reading]:
        """One reading: the train and eval rows as series, the last summary row, the planned steps."""
        return [_reading(_load(file), ())]


def merge_states(files: Iterable[SourceFile]) -> Reading:
    """The state that came furthest, with the earlier rows that it lacks from the others.

    A run that was resumed without its old state has a history that begins in the middle. Rows of older checkpoints before
    that point are put in front; rows that were trained again are replaced by the later ones. The border is kept in
    `Metrics.resumed_at`.
    """
    states = [_load(file) for file in files]
    if not states:
        return Reading(note=Text("no trainer_state.json was given", "没有给出 trainer_state.json"))
    states.sort(key=lambda state: (state.step, len(state.rows)), reverse=True)
    newest, *older = states
    rows, resumed, helped = list(newest.rows), [], [newest.name]
    for state in older:
        begins = min((_step(row) for _, row in rows), default=float("inf"))
        lacking = [(line, row) for line, row in state.rows if _step(row) < begins and "train_runtime" not in row]
        if lacking:
            if rows:
                resumed.append(begins)
            rows = [*lacking, *rows]
            helped.append(state.name)
    note: Words = ""
    if len(states) > 1:
        note = Text(
            f"merged from {len(helped)} of {len(states)} states: {', '.join(helped)}",
            f"由 {len(states)} 个状态文件中的 {len(helped)} 个合并而成：{'、'.join(helped)}",
        )
    return _reading(newest._replace(rows=rows, note=joined(newest.note, note)), tuple(reversed(resumed)))


def _claim(file: SourceFile) -> float:
    if file.base == "trainer_state.json":
        return 0.97
    head = file.head_text
    if not head.lstrip().startswith("{") or '"log_history"' not in head:
        return 0.0
    return 0.9 if '"is_world_process_zero"' in head or ('"global_step"' in head and '"model_info"' not in head) else 0.0


def _load(file: SourceFile) -> _State:
    value, text, problem = document(file)
    if isinstance(value, dict):
        history = value.get("log_history")
        rows = (
            [(at, flat(row)) for at, row in enumerate(history, 1) if isinstance(row, dict)] if isinstance(history, list) else []
        )
        malformed = len(history) - len(rows) if isinstance(history, list) else 0
        scalars = {name: held for name in _SCALARS if (held := number(value.get(name))) is not None}
        note: Words = "" if isinstance(history, list) else _NO_HISTORY
        return _State(file.name, rows, scalars, malformed, cut=False, note=note)
    if not problem:
        return _State(file.name, note=_NO_HISTORY)
    return _recovered(file, text, problem)


def _recovered(file: SourceFile, text: str, problem: str) -> _State:
    """The complete rows of a state that was cut off or damaged, and the scalars that still can be read."""
    found = _HISTORY.search(text)
    objects, _ = objects_after(text, found.end()) if found else ([], False)
    scalars = {}
    for name in _SCALARS:
        told = re.search(rf'"{name}"\s*:\s*([-+.\deE]{{1,40}})', text)
        held = number(told.group(1)) if told else None
        if held is not None:
            scalars[name] = held
    note = Text(
        f"the JSON is damaged ({problem}); {len(objects)} complete rows before the damage were read",
        f"JSON 不完整（{problem}），读出了损坏处之前的 {len(objects)} 行完整记录",
    )
    rows = [(at, flat(row)) for at, row in enumerate(objects, 1)]
    return _State(file.name, rows, scalars, malformed=0, cut=True, note=note)


_NO_HISTORY = Text("no log_history in the file: no loss could be read", "文件里没有 log_history，读不到 loss")
_NO_ROWS = Text("log_history holds no row with a number: no loss could be read", "log_history 里没有带数值的记录，读不到 loss")


def _step(row: Mapping[str, Any]) -> float:
    step = step_number(row.get("step"))
    return 0.0 if step is None else step


def _reading(state: _State, resumed: tuple[float, ...]) -> Reading:
    collector = Collector(state.name)
    skipped: Counter[str] = Counter()
    for line, row in state.rows:
        if not collector.add(row, line):
            skipped["rows without numbers"] += 1
    if state.malformed:
        skipped["malformed rows"] += state.malformed
    if state.cut:
        skipped["rows after the damage"] += 1
    skipped.update(collector.skipped)
    parts = collector.parts(split=False)
    if not parts:
        return nothing(joined(state.note or _NO_ROWS), skipped)[0]
    metrics = _with_totals(parts[0].metrics, state, resumed)
    return Reading(Evidence(metrics=metrics, settings=_settings(state)), parts[0].shapes, skipped, state.note)


def _with_totals(metrics: Metrics, state: _State, resumed: tuple[float, ...]) -> Metrics:
    """Planned steps and whether the run came to its end; 0 and negative step counts mean "not set"."""
    planned = state.scalars.get("max_steps", 0.0)
    reached = state.scalars.get("global_step")
    finished = metrics.finished
    if finished is None and planned > 0 and reached is not None:
        finished = reached >= planned
    return replace(metrics, total_steps=planned if planned > 0 else None, finished=finished, resumed_at=resumed)


def _settings(state: _State) -> Settings | None:
    epochs = state.scalars.get("num_train_epochs")
    if epochs is None or not 0 < epochs <= MOST_EPOCHS:
        return None
    return Settings({"epochs": Setting(epochs, state.name, state.name, "num_train_epochs")})
