"""From paths to diagnoses: find the files, read them, tell the runs apart, examine each.

This is the library's door: `tuneclinic.diagnose(path)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np

from tuneclinic.arrays import median
from tuneclinic.diagnosis import Diagnosis
from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.files import files_of, run_of, split_runs
from tuneclinic.probes.gather import Gathered, Progress, gather
from tuneclinic.probes.reading import SourceFile
from tuneclinic.sections import Attempt, Attempts, Metrics, Series
from tuneclinic.triage import examine
from tuneclinic.values import dataclass

RANK_LOG = pattern(r"(?:^|[._-])rank[._-]?(\d{1,4})(?:[._-]|$)")
"""Names of logs that each rank writes for itself: `log_rank1.txt`, `train-rank-0.log`."""
HELD_OUT = pattern(r"(^|[._-])(eval|evaluation|valid|validation|val|dev|test|holdout|held_out)([._-]|\d|$)")
"""Names of files that hold evaluation rows."""
AGREEING = 0.5
"""Two logs of one folder are views of one run where at least this share of their common steps shows the same loss and rate. Two views of
one run agree nearly everywhere; two runs on the same data agree at a step or two by chance of rounding."""
SAME_NUMBER = 0.002
"""Relative difference up to which two logged numbers are the same: trainers print three digits or more."""


@dataclass(frozen=True, eq=False)
class Run:
    """The readings that belong to one run, and its name."""

    name: str
    readings: tuple[Gathered, ...]

    @cached_property
    def evidence(self) -> Evidence:
        """All readings' evidence in one, those of higher precedence first."""
        seen = self._states()
        for one in self.readings:
            seen = seen.merge(one.reading.evidence)
        return seen

    def _states(self) -> Evidence:
        """The states of several checkpoints as one history: the newest, with the earlier rows that it lacks."""
        states = [one.file for one in self.readings if one.file.base == "trainer_state.json" and one.reading.understood]
        if len(states) < 2:
            return Evidence()
        from tuneclinic.probes.readers.trainer_state import merge_states  # noqa: PLC0415 - only where there is something to merge

        return merge_states(states).evidence


def diagnose(
    *paths: str | os.PathLike[str],
    symptoms: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[Diagnosis]:
    """Diagnoses every run found in `paths`: each folder is a run or holds several; loose files belong together.

    Args:
        paths: files and folders that a run left behind.
        symptoms: ids of symptoms that the user reports.
        columns: which column of a table plays which role ("loss", "step" …), where the guess would be wrong.
        progress: called before each file is read.

    Returns:
        One diagnosis a run, in order of their names.

    Raises:
        FileNotFoundError: where a path does not exist.
    """
    found = runs(paths, progress, columns or {})
    attempts = [_attempt(run) for run in found]
    return [
        examine(_with_attempts(_finished(run), attempts, number), run.name, [one.read for one in run.readings], symptoms)
        for number, run in enumerate(found)
    ]


def runs(
    paths: Iterable[str | os.PathLike[str]], progress: Progress | None = None, columns: Mapping[str, str] = MappingProxyType({})
) -> list[Run]:
    """The runs found in `paths`, read."""
    given = [Path(path) for path in paths]
    for path in given:
        if not path.exists():
            raise FileNotFoundError(path)
    folders = [path for path in given if path.is_dir()]
    loose = gather(_loose([path for path in given if not path.is_dir()]), progress, columns)
    if not folders:
        return _told_apart(loose, given[0].name if len(given) == 1 else _common(given).name)
    found: list[Run] = []
    for folder in folders:
        name = folder.resolve().name
        found.extend(_told_apart(gather(files_of(folder), progress, columns), name, loose))
    return found


def _loose(paths: Sequence[Path]) -> list[SourceFile]:
    if not paths:
        return []
    root = _common(paths)
    return [SourceFile(path, path.resolve().relative_to(root).as_posix()) for path in paths]


def _common(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path.resolve().parent for path in paths]))


def _side_by_side(gathered: list[Gathered]) -> list[Gathered]:
    """Logs of several ranks in one folder: the lowest rank's is the run's log, the others' series stand beside it by rank."""
    ranks: dict[str, dict[int, Metrics]] = {}
    for one in gathered:
        match, metrics = RANK_LOG.search(one.file.base), _loss(one)
        if match and metrics is not None:
            ranks.setdefault(run_of(one.file.name), {})[int(match[1])] = metrics
    return [_placed(one, ranks.get(run_of(one.file.name), {})) for one in gathered]


def _placed(one: Gathered, ranks: Mapping[int, Metrics]) -> Gathered:
    mine = next((rank for rank, metrics in ranks.items() if metrics is one.reading.evidence.metrics), None)
    if mine is None or len(ranks) < 2:
        return one
    by_rank = {rank: metrics.series for rank, metrics in ranks.items()}
    seen = replace(ranks[mine], by_rank=by_rank) if mine == min(ranks) else Metrics(by_rank=by_rank)
    return replace(one, reading=replace(one.reading, evidence=replace(one.reading.evidence, metrics=seen)))


def _told_apart(gathered: list[Gathered], name: str, shared: Sequence[Gathered] = ()) -> list[Run]:
    """The runs among the readings of one folder: by subfolder, by log where two logs tell of different runs, by run in a log."""
    gathered = _side_by_side(gathered)
    folders = split_runs(one.file.name for one in gathered if _loss(one) is not None)
    common = [*shared, *(one for one in gathered if not any(_below(one, folder) for folder in folders))]
    found: list[Run] = []
    for folder in folders:
        own = [one for one in gathered if _below(one, folder)]
        label = f"{name}/{folder}" if folder else name
        found.extend(_by_log(own, common, label))
    return found


def _below(one: Gathered, folder: str) -> bool:
    return not folder or run_of(one.file.name) == folder or one.file.name.startswith(f"{folder}/")


def _loss(one: Gathered) -> Metrics | None:
    metrics = one.reading.evidence.metrics
    return metrics if metrics is not None and metrics.get("loss") is not None else None


def _by_log(own: list[Gathered], common: Sequence[Gathered], label: str) -> list[Run]:
    groups: list[list[Gathered]] = []
    for one in own:
        metrics = _loss(one)
        if metrics is None:
            continue
        home = next((group for group in groups if all(_same_run(metrics, _loss(other)) for other in group)), None)
        if home is None:
            groups.append([one])
        else:
            home.append(one)
    rest = [one for one in own if _loss(one) is None]
    if len(groups) <= 1:
        return [Run(label, _ordered([*own, *common]))]
    return [Run(f"{label} [{_called(group[0])}]", _ordered([*group, *rest, *common])) for group in groups]


def _called(one: Gathered) -> str:
    return f"{one.file.name} {one.reading.run}".strip()


def _ordered(readings: Iterable[Gathered]) -> tuple[Gathered, ...]:
    return tuple(sorted(readings, key=lambda one: one.reader.precedence if one.reader else 99))


def _same_run(first: Metrics, second: Metrics | None) -> bool:
    """Whether two logs tell of one run: their losses and learning rates agree at common steps, or they have no step in common."""
    if second is None or first.rows_are_steps != second.rows_are_steps:
        return True
    return all(_agree(first.get(name), second.get(name)) for name in ("loss", "learning_rate"))


def _agree(one: Series | None, other: Series | None) -> bool:
    """Whether two series show the same numbers at common steps, if there are any; one log may count from 0 and the other from 1."""
    if one is None or other is None:
        return True
    shares = [_share_alike(one, other, shift) for shift in (0, 1, -1)]
    return shares[0] is None or any(share is not None and share >= AGREEING for share in shares)


def _share_alike(one: Series, other: Series, shift: int) -> float | None:
    """Share of the common steps at which both show the same number; None where they have no step in common."""
    _, at, also_at = np.intersect1d(one.steps, other.steps + shift, return_indices=True)
    left, right = one.values[at], other.values[also_at]
    finite = np.isfinite(left) & np.isfinite(right)
    if not finite.any():
        return None
    left, right = left[finite], right[finite]
    return float(np.mean(np.abs(left - right) <= SAME_NUMBER * np.maximum(np.abs(left), np.abs(right))))


def _finished(run: Run) -> Evidence:
    """The run's evidence with what only shows once all files were read: rendered samples, leaks between data files."""
    seen = run.evidence
    if seen.data is None:
        return seen
    from tuneclinic.probes.rendering import render  # noqa: PLC0415 - the template engine is loaded only for runs with data

    return render(_leaks(run, seen))


def _leaks(run: Run, seen: Evidence) -> Evidence:
    """The evidence with the evaluation rows that stand in the training files too."""
    files = [one.file for one in run.readings if one.reading.evidence.data is not None]
    held_out = [file for file in files if HELD_OUT.search(file.base)]
    train = [file for file in files if file not in held_out]
    if seen.data is None or not held_out or not train:
        return seen
    from tuneclinic.probes.data.leak import leak  # noqa: PLC0415 - only where there are two halves to compare

    found = leak(train, held_out)
    if found is None:
        return seen
    data = replace(
        seen.data, checked=seen.data.checked | {found.name}, defects=(*seen.data.defects, *((found,) if found.rows else ()))
    )
    return replace(seen, data=data)


def _attempt(run: Run) -> Attempt:
    seen = run.evidence
    loss = seen.metrics.get("loss") if seen.metrics else None
    settings = {name: setting.value for name, setting in seen.settings.values.items()} if seen.settings else {}
    values = loss.values[np.isfinite(loss.values)] if loss is not None else np.empty(0)
    if not len(values):
        return Attempt(run.name, settings)
    return Attempt(run.name, settings, float(values[0]), float(median(values[-3:])))


def _with_attempts(seen: Evidence, attempts: Sequence[Attempt], mine: int) -> Evidence:
    others = tuple(attempt for number, attempt in enumerate(attempts) if number != mine)
    return replace(seen, attempts=Attempts(others)) if others else seen
