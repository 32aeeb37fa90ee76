"""Dictionaries as the Hugging Face Trainer and its kin print them: TRL, LLaMA-Factory, ms-swift, axolotl, Unsloth."""

from __future__ import annotations

import re
from typing import ClassVar

from tuneclinic.probes.lines import NUMBER, Field, LineFormat, Row, ordered
from tuneclinic.probes.lines._lazy import Lazy

LONGEST = 1 << 14
"""Characters of one dictionary: GRPO with twenty rewards prints some two thousand."""
DICT = Lazy(rf"\{{[^{{}}]{{8,{LONGEST}}}\}}")
PAIR = Lazy(
    r"""['"](?P<name>[^'"]{1,120})['"]\s{0,4}:\s{0,4}(?:['"]|np\.\w{1,12}\(|tensor\()?(?P<value>"""
    + NUMBER
    + r""")(?=['"),}\s])"""
)
PROGRESS = Lazy(r"""['"]global_step/max_steps['"]\s{0,4}:\s{0,4}['"](\d{1,12})/(\d{1,12})['"]""")
BAR = Lazy(r"\| *(\d{1,12})/(\d{1,12}) \[")
LOSSES = frozenset(
    {
        "loss",
        "eval_loss",
        "train_loss",
        "val_loss",
        "validation_loss",
        "train/loss",
        "train_runtime",
        "eval_runtime",
        "loss/policy_avg",
    }
)
PLACES = frozenset({"epoch", "step", "global_step", "eval_runtime", "eval_samples_per_second"})


class HuggingFaceDict(LineFormat):
    """`{'loss': 1.66, 'grad_norm': 17.0, 'learning_rate': 3e-06, 'epoch': 0.01}`: several may share a line, values may be strings."""

    framework: ClassVar[str] = ""
    needles: ClassVar[tuple[bytes, ...]] = (b"loss'", b'loss"', b"'loss/policy", b"'eval_", b'"eval_', b"train_runtime")
    by_epoch: ClassVar[bool] = True
    aliases: ClassVar[dict[str, str]] = {
        "train_loss": "train_loss",
        "step_peak_memory_reserved_MB": "memory_gib",
        "time": "time",
        "memory": "memory",
    }

    def rows(self, line: str) -> list[Row]:
        """The dictionaries of the line that hold a loss or an evaluation."""
        found: list[Row] = []
        for match in DICT.finditer(line):
            fields = _fields(line, match.start(), match.end())
            names = {field.name for field in fields}
            if not (names & LOSSES or (names & PLACES and any(name.startswith("eval_") for name in names))):
                continue
            start = match.start()
            bar = None if found else _bar(line, start)
            if bar is not None:
                fields += [Field("bar", *bar.span(1)), Field("bar_total", *bar.span(2))]
                start = bar.start()
            found.append(Row(ordered(fields), start, match.end()))
        return found


def _fields(line: str, start: int, end: int) -> list[Field]:
    fields = []
    for pair in PAIR.finditer(line, start, end):
        scale = 1 / 1024 if pair["name"].endswith("_MB") else 1.0
        fields.append(Field(pair["name"], *pair.span("value"), scale))
    progress = PROGRESS.search(line, start, end)
    if progress is not None:
        fields = [field for field in fields if field.name != "global_step/max_steps"]
        fields += [Field("step", *progress.span(1)), Field("total_steps", *progress.span(2))]
    return fields


def _bar(line: str, end: int) -> re.Match[str] | None:
    """The last progress bar before `end`."""
    last = None
    for last in BAR.finditer(line, max(0, end - 400), end):  # noqa: B007 - the last match is wanted
        pass
    return last
