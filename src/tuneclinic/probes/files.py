"""Finding the files of a run, without following links out of it and without end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from tuneclinic.patterns import pattern
from tuneclinic.probes.reading import SourceFile

MOST_FILES = 20_000
"""Files looked at below one folder. A run with hourly checkpoints of a sharded model has some thousands."""
DEEPEST = 10
"""Levels of folders walked down: Lightning and MLflow nest six."""
PASSED_OVER = frozenset({
    "__pycache__", "node_modules", "site-packages", ".git", ".venv", "venv", ".cache", ".ipynb_checkpoints", ".mypy_cache", ".idea", ".vscode",
})  # fmt: skip
"""Folders that hold no trace of a run."""
INNER = frozenset({
    "logs", "log", "runs", "wandb", "files", "tensorboard", "tb", "lightning_logs", "config", "configs", "checkpoints", "global_step", "trainer", "mlruns", "final", "output", "outputs", "results", "eval", "data", "tokenizer", "model", "adapter", "train", "weights", "metrics", "params", "tags",
})  # fmt: skip
"""Folders inside one run's folder: what stands in them belongs to the run above."""
_CHECKPOINT = pattern(r"(checkpoint|version|step|epoch|iter|global_?step)[-_]?\d+|(offline-)?run-\d{8}_\d{6}-\w+")
"""Folders named after a step, a Lightning version or a W&B run: a plain `run-2` is a run of its own."""


def files_of(root: Path) -> list[SourceFile]:
    """The regular files of a run: the file itself, or all below the folder, in order of their names."""
    if not root.is_dir():
        return [SourceFile(root, root.name)] if _regular(root) else []
    found = []
    for path in _walk(root):
        found.append(SourceFile(path, path.relative_to(root).as_posix()))
        if len(found) >= MOST_FILES:
            break
    return sorted(found, key=lambda file: file.name)


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root, followlinks=False, onerror=lambda _: None):
        depth = len(Path(folder).relative_to(root).parts)
        folders[:] = [] if depth >= DEEPEST else sorted(name for name in folders if name not in PASSED_OVER)
        for name in sorted(names):
            path = Path(folder, name)
            if _regular(path):
                yield path


def _regular(path: Path) -> bool:
    """Whether `path` is a plain file; a pipe or a device would block the reading for ever."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def run_of(name: str) -> str:
    """The folder of the run that a file belongs to, relative to the root: its own folder without the inner ones."""
    parts = list(PurePosixPath(name).parent.parts)
    while parts and _inner(parts[-1]):
        parts.pop()
    return "/".join(parts)


def _inner(part: str) -> bool:
    lower = part.lower()
    return lower in INNER or _CHECKPOINT.fullmatch(lower) is not None


def split_runs(names_with_loss: Iterable[str]) -> list[str]:
    """The folders of the runs below one root, from the names of the files that hold a loss; nested ones fall to the outer."""
    folders = sorted({run_of(name) for name in names_with_loss}, key=lambda folder: (folder.count("/"), folder))
    outer: list[str] = []
    for folder in folders:
        if not any(folder == other or folder.startswith(f"{other}/") or other == "" for other in outer):
            outer.append(folder)
    return sorted(outer) or [""]
