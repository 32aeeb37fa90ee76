"""Facts that a training script's syntax tree shows.

Each module of this package holds the checks of one group as a function `check(source, report)`. A check first says by
`report.checked(name)` that the script has what it looks at, then reports a fact only where the tree really shows one.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable

from tuneclinic.probes.scripts import (
    distributed,
    evaluation,
    generation,
    gradients,
    labels,
    optimizing,
    saving,
    speed,
    tokens,
)
from tuneclinic.probes.scripts._report import Report
from tuneclinic.probes.scripts._source import Source
from tuneclinic.sections import Script

CHECKS: tuple[Callable[[Source, Report], None], ...] = tuple(
    module.check for module in (evaluation, distributed, labels, optimizing, gradients, tokens, saving, generation, speed)
)

__all__ = ["parse", "script_of"]


def parse(text: str) -> ast.Module | None:
    """The syntax tree of a script; None where it is no Python that this interpreter reads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def script_of(text: str, source: str, tree: ast.Module | None = None) -> Script | None:
    """All facts of a script, None where it cannot be parsed or is too long.

    Args:
        text: The script.
        source: How reports cite it.
        tree: Its syntax tree where it was parsed already.
    """
    tree = tree if tree is not None else parse(text)
    if tree is None:
        return None
    parsed = Source(tree, text)
    if not parsed.whole:
        return None
    report = Report(parsed.lines, source)
    for check in CHECKS:
        try:
            check(parsed, report)
        except RecursionError:  # a tree deeper than any script: what was found so far stands
            continue
    return report.script()
