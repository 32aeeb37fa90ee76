"""Gathers the errors of all streams of a log and puts the cause first."""

from __future__ import annotations

from dataclasses import replace

from tuneclinic.patterns import pattern
from tuneclinic.probes.crashes import launchers
from tuneclinic.probes.crashes.out_of_memory import out_of_memory
from tuneclinic.probes.crashes.phases import phase_of
from tuneclinic.probes.crashes.prefixes import Line
from tuneclinic.probes.crashes.signals import Sign, sign_of, suspect
from tuneclinic.probes.crashes.tracebacks import CLASS, ERROR, Raised, Stream, caused
from tuneclinic.sections import Crash, CrashError, OutOfMemory
from tuneclinic.values import dataclass

LAST_LINES = 60
"""A bare `SomeError: …` without a traceback counts where the log ends within so many lines after it: a process that dies
prints its error last, one that goes on has caught it."""
ERRORS_KEPT = 64
NATIVE = pattern(r"terminate called after throwing an instance of '([\w:]{1,120})'")
WHAT = pattern(r"what\(\):\s+(.{1,600})")
FATAL = pattern(
    r"(?:CUDA|HIP|MPS backend) out of memory|DefaultCPUAllocator: |No space left on device|Disk quota exceeded|CUDA error: "
)
NUMBERS = pattern(r"\d+(?:\.\d+)?")
LINE_LOOKED_AT = 8192


@dataclass(slots=True)
class _Held:
    error: CrashError
    line: int
    role: str
    root: bool = False
    summary: bool = False


class Collector:
    """Takes lines in order; `crash` gives what they add up to."""

    def __init__(self, source: str, step: float | None) -> None:
        self.source = source
        self.step = step
        self._streams: dict[str, Stream] = {}
        self._held: list[_Held] = []
        self._bare: list[_Held] = []
        self._seen: dict[str, int] = {}
        self._summary = launchers.Summary()
        self._native = ""
        self._last = 0
        self._hot = False
        self._roots: dict[int, bool] = {}

    def feed(self, number: int, raw: str) -> None:
        """Takes in one line."""
        self._last = number
        if not self._hot and not suspect(raw):
            return
        raw = raw[:LINE_LOOKED_AT] if len(raw) > LINE_LOOKED_AT and "\r" not in raw else raw[-LINE_LOOKED_AT:]
        line = Line(number, raw)
        told = self._summary.feed(number, line.text)
        stream = self._streams.get(line.stream)
        if stream is None:
            if len(self._streams) > 4 * ERRORS_KEPT:
                return
            stream = self._streams.setdefault(line.stream, Stream(line.stream))
        count = len(stream.found)
        taken = stream.feed(line)
        for raised in stream.found[count:]:
            raised.in_summary = self._summary.inside
            if raised.in_summary:
                raised.rank = self._summary.rank
                self._roots[id(raised)] = self._summary.root
        if not taken and not told:
            self._outside(line)
        self._hot = self._summary.inside or bool(self._native) or any(stream.open for stream in self._streams.values())

    def crash(self) -> Crash | None:
        """All errors, the cause first."""
        for stream in self._streams.values():
            stream.close()
            self._hold_stream(stream)
        self._hold_exits()
        if not any(held.role == "own" for held in self._held):
            self._held.extend(held for held in self._bare if self._last - held.line <= LAST_LINES)
        ordered = self._ordered()
        if not ordered:
            return None
        stopped = any(held.role == "stop" for held in ordered) and not any(held.role == "own" for held in ordered)
        return Crash(tuple(_explained([held.error for held in ordered])[:ERRORS_KEPT]), interrupted=stopped)

    def _outside(self, line: Line) -> None:
        text = line.text
        native = NATIVE.search(text)
        if native:
            self._native = native[1]
            return
        if self._native and (what := WHAT.search(text)):
            self._keep(line, self._native, what[1], "echo" if "watchdog" in what[1] else "own")
            self._native = ""
            return
        sign = sign_of(text)
        if sign is not None:
            self._keep_sign(line, *sign)
            return
        error = ERROR.match(text.strip())
        if error and error[3] is not None and CLASS.search(error[2]) and "Warning" not in error[2]:
            self._bare_line(line, error[2], error[3])
        elif "out of memory" in text and (at := text.find("Tried to allocate")) >= 0:
            self._bare_line(line, "out of memory", text[max(0, at - 60) :].strip())

    def _bare_line(self, line: Line, kind: str, message: str) -> None:
        """An error's last line without a traceback above it."""
        held = self._bare if not FATAL.search(f"{kind}: {message}") else self._held
        if self._role(kind, message) == "own" and len(held) < ERRORS_KEPT:
            held.append(_Held(self._error(kind, message, line.number, line.rank), line.number, "own"))

    def _keep_sign(self, line: Line, sign: Sign, words: str) -> None:
        kind, _, message = words.partition(": ") if sign.kind == "Watchdog" else (sign.kind, "", words)
        if sign.kind == "Watchdog" and "CUDA error: " in message:
            kind, message = "CUDA error", message.split("CUDA error: ", 1)[1]
        memory = OutOfMemory("host") if sign.host else None
        self._keep(line, kind, message, sign.role, memory)

    def _keep(self, line: Line, kind: str, message: str, role: str, memory: OutOfMemory | None = None) -> None:
        key = f"{kind}|{NUMBERS.sub('#', message)}|{line.rank}"
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] > 1 or len(self._held) >= 4 * ERRORS_KEPT:
            return
        error = self._error(kind, message, line.number, line.rank)
        self._held.append(_Held(replace(error, memory=memory or error.memory), line.number, role))

    def _error(self, kind: str, message: str, number: int, rank: int | None) -> CrashError:
        memory = out_of_memory(f"{kind}: {message}")
        if memory is None and (sign := sign_of(message)) and sign[0].host:
            memory = OutOfMemory("host")
        return CrashError(kind, message, f"{self.source}:{number}", self.source, rank, step=self.step, memory=memory)

    def _role(self, kind: str, message: str) -> str:
        if launchers.stop(kind):
            return "stop"
        return "echo" if launchers.echo(kind, message) else "own"

    def _hold_stream(self, stream: Stream) -> None:
        chain: list[Raised] = []
        for raised in stream.found:
            if chain and not raised.chained:
                self._hold_chain(chain)
                chain = []
            chain.append(raised)
        if chain:
            self._hold_chain(chain)

    def _hold_chain(self, chain: list[Raised]) -> None:
        chain = [raised for raised in chain if not raised.ignored]
        if not chain:
            return
        own = [raised for raised in chain if self._role(raised.kind, raised.message) == "own"] or chain
        cause = caused(own)
        for raised in chain:
            role = self._role(raised.kind, raised.message)
            if raised is not cause and role == "own":
                role = "echo"
            self._held.append(
                _Held(self._told(raised), raised.line, role, self._roots.get(id(raised), False), raised.in_summary)
            )  # fmt: skip

    def _told(self, raised: Raised) -> CrashError:
        error = self._error(raised.kind, raised.message, raised.line, raised.rank)
        phase = phase_of(raised.frames)
        frames = tuple(
            f"{path}:{line} in {function}" if function else f"{path}:{line}" for path, line, function, _ in raised.frames
        )
        memory = replace(error.memory, phase=phase) if error.memory else None
        return replace(error, frames=frames, phase=phase, memory=memory)

    def _hold_exits(self) -> None:
        """Exit codes count only where a rank left no words of its own."""
        spoken = any(held.role in {"own", "stop"} for held in self._held)
        roots = [entry for entry in self._summary.exits if entry[3]] or self._summary.exits
        for number, rank, code, _, quotation in roots[:ERRORS_KEPT]:
            name = launchers.SIGNALS.get(code)
            if spoken or name is None:
                continue
            memory = OutOfMemory("host") if name == "SIGKILL" else None
            error = replace(self._error(name, quotation, number, rank), memory=memory)
            self._held.append(_Held(error, number, "stop" if name == "SIGTERM" else "own", root=True))

    def _ordered(self) -> list[_Held]:
        """Own errors first, by line, then stops, then echoes; a root cause of the summary that no rank told goes first."""
        told = {_same(held.error) for held in self._held if held.role == "own" and not held.summary}
        kept: list[_Held] = []
        for held in sorted(self._held, key=lambda held: held.line):
            if held.summary and held.role == "own":
                if _same(held.error) in told:
                    continue
                told.add(_same(held.error))
            kept.append(held)
        rank = {"own": 1, "stop": 2, "echo": 3}
        return sorted(kept, key=lambda held: (0 if held.root and held.role == "own" else rank[held.role], held.line))


def _same(error: CrashError) -> str:
    return f"{error.kind}|{NUMBERS.sub('#', error.message[:200])}"


def _explained(errors: list[CrashError]) -> list[CrashError]:
    """A device-side assertion is printed without a stack; the Python error that follows it has one."""
    if not errors or errors[0].kind != "device-side assert":
        return errors
    follower = next((error for error in errors[1:] if "device-side assert" in error.message and error.frames), None)
    if follower is None:
        return errors
    return [replace(errors[0], frames=follower.frames, phase=follower.phase, rank=follower.rank), *errors[1:]]
