"""One text log, read: the pass over its lines, and what it tells of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from tuneclinic.evidence import Evidence
from tuneclinic.probes.lines._report import crash_between, environment_of, kind_said, log_between, model_of, settings_of
from tuneclinic.probes.lines._runs import Run, found_runs
from tuneclinic.probes.lines._scan import Scan
from tuneclinic.probes.lines._series import metrics_of
from tuneclinic.probes.reading import Reading, SourceFile
from tuneclinic.words import Text

NO_ROWS = Text(
    "no metric line and no error was understood. Known are the Trainer's dictionaries (TRL, LLaMA-Factory, ms-swift, axolotl, Unsloth), torchtune, torchtitan, Megatron, nanoGPT, nanochat, xtuner/mmengine, verl, DeepSpeed, Lightning and tqdm bars, and lines with a step or epoch and a loss as key: value",
    "没有读懂任何指标行，也没有读到报错。已支持的格式：Trainer 打印的字典（TRL、LLaMA-Factory、ms-swift、axolotl、Unsloth）、torchtune、torchtitan、Megatron、nanoGPT、nanochat、xtuner/mmengine、verl、DeepSpeed、Lightning 与 tqdm 进度条，以及带 step 或 epoch 且 loss 写成 key: value 的行",
)


def read_log(file: SourceFile) -> list[Reading]:
    """One reading a run; one without metrics where the log has none."""
    scan = Scan()
    try:
        with file.open() as stream:
            scan.run(stream)
    except OSError as error:
        return [Reading(note=Text(f"could not be opened: {error}", f"打不开：{error}"))]
    tables = list(scan.tables.values())
    with np.errstate(all="ignore"):  # a log may well print infinities
        runs = found_runs(tables, scan.facts, scan.bars)
        several = len(runs) > 1
        return [_reading(scan, run, file.name, f"run {number}" if several else "") for number, run in enumerate(runs, 1)]


def _reading(scan: Scan, run: Run, source: str, name: str) -> Reading:
    tables = list(scan.tables.values())
    understood = _counts(run, scan)
    last = float(run.steps[run.rows.train][-1]) if run.rows.train.any() else None
    crash = crash_between(scan, run, source, last)
    log, meaning = log_between(scan, run, source)
    rows = bool(understood)
    evidence = Evidence(
        settings=settings_of(scan, run, source, tables),
        metrics=metrics_of(run, tables, source, kind_said(scan), scan.facts) if rows else None,
        model=model_of(scan, run, source),
        crash=crash,
        log=log,
        environment=environment_of(scan, run, source),
    )
    if crash is not None:
        understood["errors"] = len(crash.errors)
    if understood:
        understood["log lines"] = meaning
    others = min(run.ends, scan.lines) - run.begins - len(run.rows) - sum(map(len, run.ranks.values())) - meaning
    skipped = {"other lines": others} if others > 0 else {}
    note = _note(run, scan) if understood else NO_ROWS
    return Reading(evidence, {key: count for key, count in understood.items() if count}, skipped, note, name)


def _counts(run: Run, scan: Scan) -> dict[str, int]:
    """Rows of the run by what they are; thinned tables count in full."""
    tables = list(scan.tables.values())
    counts: Counter[str] = Counter()
    rows: Mapping[int, int] = Counter(run.rows.table.tolist())
    for number, kept in rows.items():
        table = tables[number]
        steps = kept * table.stride
        if table.form.bar:
            steps = len(set(run.steps[run.rows.table == number].tolist()))
        counts["train rows" if table.kind == "train" else "eval rows"] += steps
    for other in run.ranks.values():
        counts["rows of other ranks"] += len(other)
    counts["summary rows"] += run.summaries
    return {key: count for key, count in counts.items() if count}


def _note(run: Run, scan: Scan) -> Text | str:
    """Which columns a guessed format took, and what was thinned."""
    tables = list(scan.tables.values())
    used = {number: tables[number] for number in set(run.rows.table.tolist())}
    guessed = sorted(
        {
            f"{printed} → {name}" if printed != name else name
            for table in used.values()
            if table.form.last_resort
            for printed, name in zip(table.printed, table.names, strict=True)
        }
    )
    if guessed:
        columns = ", ".join(guessed[:12])
        return Text(f"columns taken by their names: {columns}", f"按列名识别的列：{columns}")
    if any(table.stride > 1 for table in used.values()):
        return Text("very long: only every few rows were kept", "日志过长，只按间隔保留了部分行")
    return ""
