"""Ends that come from outside Python: the kernel's killer, a scheduler, a person, a broken native library."""

from __future__ import annotations

import re
from typing import Literal

from tuneclinic.values import dataclass

Role = Literal["own", "echo", "stop"]
"""Whether an error is the run's own, repeats another one, or says that somebody stopped the run."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One kind of line: a fixed `word` that it always holds, how it reads and what it says.

    Patterns are compiled (and kept by `re`) when their word first occurs: most logs hold none of them.
    """

    kind: str
    word: str
    pattern: str
    role: Role = "own"
    host: bool = False


def _sign(kind: str, word: str, pattern: str, role: Role = "own", *, host: bool = False) -> Sign:
    return Sign(kind, word, pattern, role, host)


SIGNS: tuple[Sign, ...] = (
    _sign("Watchdog", "Watchdog caught", r"Watchdog caught collective operation timeout: .{0,600}"),
    _sign("Watchdog", "watchdog thread", r"Process group watchdog thread terminated with exception: .{0,600}"),
    _sign("device-side assert", "Assertion", r"\S{0,200}\.(?:cu|cuh|h|hip|cpp):\d+: .{0,200}Assertion [`'].{1,200}['`] failed"),
    _sign("Loss scale", "at minimum", r"Current loss scale already at minimum - cannot decrease scale anymore\. Exiting run\."),
    _sign(
        "oom-kill", "error: ", r"(?:slurmstepd|srun): error: .{0,200}(?:oom[-_]kill|OOM Killed|Out Of Memory).{0,200}", host=True
    ),
    _sign("oom-kill", "Kill", r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process \d+.{0,200}", host=True),
    _sign("OOMKilled", "OOMKilled", r"\bOOMKilled\b.{0,100}", host=True),
    _sign("Killed", "illed", r"^(?:Killed|.{1,200}: line \d+: +\d+ Killed\b.{0,300}|zsh: killed\b.{0,300})$", host=True),
    _sign("SIGKILL", "killed by signal", r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) is killed by signal: Killed", host=True),
    _sign("SIGKILL", "SIGKILL", r"died with <Signals\.SIGKILL: 9>", host=True),
    _sign(
        "SIGKILL",
        "exit",
        r"exit(?:s|ed|code)? ?(?:with )?(?:exit )?(?:return )?(?:code|status)?[ :=]{1,3}(?:-9|137)\b",
        host=True,
    ),
    _sign("SIGKILL", "return code", r"return code(?: is|:| =) ?(?:-9|137)\b", host=True),
    _sign("SIGTERM", "CANCELLED", r"slurmstepd: error: \*{3} .{0,200}CANCELLED AT.{0,200}", "stop"),
    _sign("SIGTERM", "SignalException", r"SignalException: Process \d+ got signal: (?:15|2|1)\b", "stop"),
    _sign(
        "SIGTERM",
        "Received ",
        r"Received (?:[Ss]ignals?[. ])?(?:SIGTERM|SIGINT|15|2)\b.{0,80}(?:death signal|shutting down|[Ee]xit|closing)",
        "stop",
    ),
    _sign("SIGTERM", "code = -15", r"exits with return code = -15\b", "stop"),
    _sign("SIGBUS", "Bus error", r"\bBus error\b.{0,100}"),
    _sign(
        "SIGSEGV",
        "gment",
        r"Fatal Python error: Segmentation fault|Segmentation fault \(core dumped\)|!!!!!!! Segfault encountered !!!!!!!",
    ),
    _sign("SIGILL", "Illegal instruction", r"Illegal instruction \(core dumped\)"),
    _sign("usage", "py: error: ", r"^[\w./-]{1,120}\.py: error: .{1,400}"),
)
WORDS = (
    "rror", "xception", "aceback", "illed", "SIG", "nterrupt", "ssertion", "exit", "fault", "of memory", "te memory", "gh memory", 'File "', "space left", "at minimum",
    "CANCELLED", "imeout", "what()", "Root Cause", "instruction",
)  # fmt: skip
"""A line without any of these starts nothing: sixteen searches for a fixed word cost a microsecond, the patterns ten."""


LONGEST = 2000
"""Characters of a line that signs are looked for in: they all stand near its beginning."""


def suspect(text: str) -> bool:
    """Whether a line could say that something failed. A cheap filter with no misses among the known signs."""
    for word in WORDS:  # noqa: SIM110 - any() with a generator takes three times as long, and this runs on every line
        if word in text:
            return True
    return False


def sign_of(text: str) -> tuple[Sign, str] | None:
    """The sign that a line shows and the words that show it."""
    text = text[:LONGEST]
    for sign in SIGNS:
        match = re.search(sign.pattern, text) if sign.word in text else None
        if match:
            return sign, match[0].strip()
    return None
