"""Versions of packages: requirements files, `pip freeze`, `pip list`, conda environments, lock files."""

from __future__ import annotations

import re

from tuneclinic.evidence import Evidence
from tuneclinic.patterns import pattern
from tuneclinic.probes.readers._settings import stand_in
from tuneclinic.probes.reading import Reader, Reading, SourceFile
from tuneclinic.sections import Environment
from tuneclinic.words import Text

BYTES = 16 << 20
"""The most of the file that is read; a lock file of a training stack with hashes has 1 to 2 MB."""
PACKAGES = 5000
"""How many packages are kept."""
LINES = 200_000
"""How many lines are read: a lock file with hashes has 20 a package."""
LINE = 2000
"""Characters of a line that are read."""
NO_VERSION = Text(
    "No package with an exact version was found in this file.",
    "这个文件里没有一个写明确切版本的包。",
)

_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]{0,80})"
_VERSION = r"([0-9][A-Za-z0-9.+!_-]{0,40})"
_PINNED = pattern(rf"^\s*(?:-\s*)?[\"']?{_NAME}(?:\[[\w, -]*\])?\s*===?\s*{_VERSION}")
_CONDA = pattern(rf"^\s*-\s*(?:[\w./-]+::)?{_NAME}=([0-9][\w.]*)(?:=\S*)?\s*$")
_TABLE = pattern(rf"^\s*{_NAME}\s+{_VERSION}(?:\s+(?:\S+))*\s*$")
_WHEEL = pattern(rf"^\s*{_NAME}\s*@\s*\S*?/?[A-Za-z0-9_.]+-{_VERSION}-[\w.]+-[\w.]+-[\w.]+\.whl")
_LOCK_NAME = pattern(r"^\s*name\s*=\s*\"([^\"]{1,80})\"")
_LOCK_VERSION = pattern(r"^\s*version\s*=\s*\"([0-9][^\"]{0,40})\"")
_HEADER = pattern(rb"(?m)^\s*Package\s+Version\b")
_NAMED = pattern(
    r"(?:^|[-_.])(?:requirements[\w.-]*|constraints[\w.-]*|pip[-_]?freeze|pip[-_]?list|freeze|packages|pip[-_]?packages)\.(?:txt|in|log)$"
)
_KNOWN = pattern(rb"(?m)^\s*(?:-\s*)?(?:torch|transformers|peft|trl|accelerate|deepspeed|numpy|datasets)\s*(?:==|\s+\d|@)")


class Requirements(Reader):
    """Files that list packages with their versions."""

    kind = "package versions"
    precedence = 50

    def claims(self, file: SourceFile) -> float:
        """By the usual names, or by lines that pin packages of a training stack."""
        if file.binary:
            return 0.0
        if file.base in {"environment.yml", "environment.yaml", "conda.yml", "conda.yaml", "uv.lock", "poetry.lock", "pdm.lock"}:
            return 0.9
        if _NAMED.search(file.base):
            return 0.9
        if file.base.endswith((".txt", ".log", ".list")) and len(_KNOWN.findall(file.head)) >= 2:
            return 0.6 if _HEADER.search(file.head) or file.head.count(b"==") > file.head.count(b"\n") // 2 else 0.0
        return 0.0

    def read(self, file: SourceFile) -> list[Reading]:
        """Exact versions by canonical name; ranges (`>=4.40`) say what was asked, not what ran, and are counted as skipped."""
        try:
            text = file.text(BYTES)
        except (OSError, EOFError) as error:
            return [Reading(note=type(error).__name__)]
        if stand_in(text):
            return [Reading(note=stand_in(text))]
        packages, places, loose = _versions(text, file)
        python = packages.pop("python", None)
        skipped = {"packages without an exact version": loose} if loose else {}
        if not packages and python is None:
            return [Reading(skipped=skipped, note=NO_VERSION)]
        environment = Environment(packages=packages, python=python, places=places)
        return [Reading(Evidence(environment=environment), {"packages": len(packages)}, skipped)]


def canonical(name: str) -> str:
    """A package's canonical name: lower case, runs of `-`, `_` and `.` as one hyphen (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _versions(text: str, file: SourceFile) -> tuple[dict[str, str], dict[str, str], int]:
    lock, table = file.base.endswith(".lock"), bool(_HEADER.search(text[:4096].encode(errors="replace")))
    conda = file.base.endswith((".yml", ".yaml"))
    packages: dict[str, str] = {}
    places: dict[str, str] = {}
    loose, pending = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        line = line[:LINE].split(" #", 1)[0]  # noqa: PLW2901 - the line without its comment
        if len(packages) >= PACKAGES or number > LINES:
            break
        if lock:
            named, versioned = _LOCK_NAME.match(line), _LOCK_VERSION.match(line)
            pending = named[1] if named else pending
            found = (pending, versioned[1]) if versioned and pending else None
            pending = "" if versioned else pending
        else:
            found = _one(line, table=table, conda=conda)
            loose += found is None and bool(re.match(rf"\s*{_NAME}\s*(?:[<>~!]=?|$)", line)) and not table and not conda
        if found:
            packages.setdefault(canonical(found[0]), found[1])
            places.setdefault(canonical(found[0]), f"{file.name}:{number}")
    return packages, places, loose


def _one(line: str, *, table: bool, conda: bool) -> tuple[str, str] | None:
    match = _PINNED.match(line) or _WHEEL.match(line)
    if match is None and conda:
        match = _CONDA.match(line)
    if match is None and table:
        match = _TABLE.match(line)
    return (match[1], match[2]) if match else None
