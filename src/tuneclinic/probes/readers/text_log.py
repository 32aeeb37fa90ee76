"""Text logs: what a training run printed. One streaming pass; the formats stand in `probes/lines`, one file each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

from tuneclinic.patterns import pattern
from tuneclinic.probes.reading import Reader, Reading, SourceFile

NAMES = pattern(
    r"(?:^|[._-])(?:log|out|err|output|stdout|stderr|nohup|console|slurm-\d+)(?:\.\d+)?$|\.(?:log|out|err)(?:\.\d+|\.txt)?$|log[^/]{0,40}\.txt$"
)
"""`train.log`, `nohup.out`, `slurm-123.out`, `running_log.txt`, `log_rank0.txt`, `train.log.1`."""
HEAD_SIGN = pattern(
    rb"Traceback \(most recent call last\)|\| *\d+/\d+ \[|['\"]loss['\"]: |\bloss[:= ]+\d|\bstep[:= ]+\d|\b(?:INFO|WARNING|ERROR)\b|out of memory|\[rank\d+\]|\*{5} Running training|it/s\]|Error: ",
    re.IGNORECASE,
)
OTHERS = pattern(
    r"\.(?:md|rst|py|pyi|ipynb|sh|bash|ya?ml|json|jsonl|jinja2?|csv|tsv|html?|toml|ini|cfg|lock|js|css|tex|xml|sql|bib)$|^(?:vocab|merges|added_tokens|license|licence|notice|readme|authors|requirements[^/]{0,40}|environment)(?:\.txt)?$"
)
"""Documents, code, tables and vocabularies quote losses and errors without being logs."""
BY_NAME, BY_HEAD, PLAIN = 0.45, 0.4, 0.32
"""Low: a reader that knows a file's own format is surer of it."""


class TextLogReader(Reader):
    """Standard output and error of a training run, saved or pasted."""

    kind: ClassVar[str] = "text-log"
    precedence: ClassVar[int] = 60

    def claims(self, file: SourceFile) -> float:
        """By name or by the look of the head; any other plain text is taken when nobody else wants it."""
        if file.binary and b"\0" * 16 not in file.head[:4096]:
            return 0.0
        if NAMES.search(file.base):
            return BY_NAME
        if OTHERS.search(file.base):
            return 0.0
        if HEAD_SIGN.search(file.head):
            return BY_HEAD
        return PLAIN if file.base.endswith(".txt") else 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """One reading a run; one without metrics where the log has none."""
        from tuneclinic.probes.lines._log import read_log  # noqa: PLC0415 - a third of all loading, needed for logs only

        readings = read_log(file)
        return [_with_printed(readings[0], file)] if len(readings) == 1 else readings


def _with_printed(reading: Reading, file: SourceFile) -> Reading:
    """The reading with the configuration that the trainer printed at the head of its log."""
    if b"[axolotl." not in file.head and b"[INFO:swift]" not in file.head:
        return reading
    from tuneclinic.probes.readers._printed_config import printed_settings  # noqa: PLC0415 - needed for these logs only

    printed = printed_settings(file)
    if printed is None or not (printed.values or printed.unknown):
        return reading
    seen = reading.evidence
    settings = seen.settings.merge(printed) if seen.settings is not None else printed
    understood = {**reading.understood, "settings": len(printed.values)}
    return replace(reading, evidence=replace(seen, settings=settings), understood=understood)
