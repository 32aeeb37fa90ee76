"""What happened and where: script, crash, log, environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tuneclinic.sections._fill import filled
from tuneclinic.values import dataclass


@dataclass(frozen=True, slots=True)
class ScriptFact:
    """One fact that the syntax tree of a script shows, with the line it stands on."""

    name: str
    quote: str
    line: int
    source: str
    detail: str = ""

    @property
    def where(self) -> str:
        """`train.py:41`."""
        return f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True)
class Script:
    """Facts of the training script. `checked` names the checks that applied to it; one without a fact was clean."""

    facts: tuple[ScriptFact, ...] = ()
    checked: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()

    def fact(self, name: str) -> ScriptFact | None:
        """The first fact called `name`."""
        return next((fact for fact in self.facts if fact.name == name), None)

    def merge(self, later: Script) -> Script:
        """Both scripts' facts."""
        return Script(self.facts + later.facts, self.checked | later.checked, self.sources + later.sources)


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """An out-of-memory text taken apart, in GiB. `device` is "cuda", "hip", "mps" or "host"."""

    device: str
    asked: float | None = None
    capacity: float | None = None
    free: float | None = None
    in_use: float | None = None
    allocated: float | None = None
    reserved_unallocated: float | None = None
    other_processes: float | None = None
    phase: str = ""


@dataclass(frozen=True, slots=True)
class CrashError:
    """One error: its class, message, rank, place and stack (innermost frame last, `file:line in function`).

    `phase` is what the run did when it failed, where the stack tells: "load", "data", "forward", "backward", "optimizer",
    "evaluation", "save". `step` is the last step seen before it.
    """

    kind: str
    message: str
    where: str = ""
    source: str = ""
    rank: int | None = None
    frames: tuple[str, ...] = ()
    phase: str = ""
    step: float | None = None
    memory: OutOfMemory | None = None

    @property
    def quote(self) -> str:
        """The error's last line: `ValueError: …`."""
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True, eq=False, slots=True)
class Crash:
    """All errors of a run, the cause first: the first failing rank's own error, launchers and echoes after it.

    `interrupted` says that a person or a signal from outside ended the run, which is no failure of the run.
    """

    errors: tuple[CrashError, ...] = ()
    interrupted: bool = False

    @property
    def cause(self) -> CrashError | None:
        """The error that came first."""
        return self.errors[0] if self.errors else None

    def merge(self, later: Crash) -> Crash:
        """Both; this one's cause stays first."""
        return Crash(self.errors + later.errors, self.interrupted or later.interrupted)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One kept line of a log: the first of `count` lines that differ only in numbers."""

    text: str
    where: str
    source: str = ""
    count: int = 1
    step: float | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Log:
    """Lines of a log worth keeping: its head, its tail, warnings and errors. Bounded; `lines_read` is the whole."""

    lines: tuple[LogLine, ...] = ()
    lines_read: int = 0

    def merge(self, later: Log) -> Log:
        """Both logs' lines."""
        return Log(self.lines + later.lines, self.lines_read + later.lines_read)


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions and hardware: package names in canonical form (lower case, hyphens), memory in GiB.

    `processes` is how many processes trained. `gpu_memory_used` and `gpu_processes` are what a snapshot of the first card
    showed as taken, and by whom (`python (12034 MiB, GPU 0)`).
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    cuda: str | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_memory: float | None = None
    gpu_memory_used: float | None = None
    gpu_processes: tuple[str, ...] = ()
    host_memory: float | None = None
    processes: int | None = None
    device: str | None = None
    places: Mapping[str, str] = field(default_factory=dict)

    def merge(self, later: Environment) -> Environment:
        """This one, with gaps filled from `later`."""
        return filled(self, later)
