"""What kind of end a run came to, told from its errors, else from its log."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from tuneclinic.evidence import Evidence, Exhibit, from_error, from_line
from tuneclinic.sections import CrashError
from tuneclinic.signature import first_line

End: TypeAlias = Literal["memory", "timeout", "collective", "interrupt", "launcher", "error"]

MEMORY = (
    r"(cuda|hip|xpu|npu|mps backend) out of memory",
    r"outofmemoryerror",
    r"cuda error: out of memory",
    r"free memory on device .{0,80}less than desired",
    r"no available memory for the cache blocks",
)
"""Texts of torch, ROCm, MPS and vLLM for a device without room; the host's own kill is a crash of another kind."""

SETUP = (
    r"dist(store|network)error",
    r"address already in use|eaddrinuse",
    r"rendezvous",
    r"duplicate gpu detected",
    r"timed out after .{0,40}waiting for clients",
    r"tcpstore|connection (refused|reset by peer)",
)
"""A process group that never formed: no collective ran, so its time-outs are no hang."""

TIMEOUT = (
    r"collective operation timeout",
    r"watchdog .{0,80}(timed out|timeout)",
    r"(allreduce|allgather|all_gather|all_reduce|reducescatter|reduce_scatter|broadcast|barrier|alltoall)\w*.{0,120}(timed out|timeout)",
    r"timeout\(ms\)=\d+",
    r"heartbeat monitor timed out",
    r"timed out (waiting|after) .{0,60}(recv|collective|barrier|send|operation)",
)
"""The watchdog of torch's NCCL process group, and gloo's own time-outs."""

COLLECTIVE = (
    r"\bnccl(system|internal|unhandledcuda|invalidusage|invalidargument|remote)?error",
    r"nccl (error|communicator was aborted|failure|warn)",
    r"distbackenderror",
    r"unhandled (system|cuda) error.{0,60}nccl",
    r"expected to have finished reduction in the prior iteration",
    r"\bgloo\b.{0,200}(connectfullmesh|connection closed)",
)
"""NCCL's and DDP's own failures."""

INTERRUPT = (r"keyboardinterrupt", r"got signal: (2|15)\b", r"sig(term|int)\b", r"signalexception")
LAUNCHER = (
    r"childfailederror",
    r"calledprocesserror",
    r"failed \(exitcode",
    r"processexitedexception",
    r"processraisedexception",
)


def end_of(error: CrashError) -> End:
    """What kind of end one error is."""
    if error.memory is not None:
        return "error" if error.memory.device == "host" else "memory"
    text = error.quote.lower()
    tests: tuple[tuple[End, tuple[str, ...]], ...] = (
        ("memory", MEMORY),
        ("interrupt", INTERRUPT),
        ("launcher", LAUNCHER),
        ("collective", SETUP),
        ("timeout", TIMEOUT),
        ("collective", COLLECTIVE),
    )
    return next((end for end, patterns in tests if any(re.search(pattern, text) for pattern in patterns)), "error")


def cause(seen: Evidence) -> tuple[End, CrashError] | None:
    """The error that ended the run and its kind; None where no error was read.

    A rank's own error goes before the time-outs and aborted collectives of its neighbours, and everything before the
    launcher's report of them.
    """
    ends = [(end_of(error), error) for error in (seen.crash.errors if seen.crash is not None else ())]
    if not ends:
        return None
    first = next((pair for pair in ends if pair[0] != "launcher"), ends[0])
    if first[0] in {"timeout", "collective"}:
        return next((pair for pair in ends if pair[0] in {"memory", "error"}), first)
    return first


def ended_by(seen: Evidence, *wanted: End) -> tuple[CrashError | None, Exhibit] | None:
    """The error, or the log line, that shows an end of one of the `wanted` kinds; None where neither does."""
    found = cause(seen)
    if found is not None:
        end, error = found
        return (error, from_error(error)) if end in wanted else None
    if seen.metrics is not None and seen.metrics.finished:
        return None  # caught and survived: a trainer that searches its batch size prints such lines
    patterns = {"memory": MEMORY, "timeout": TIMEOUT, "collective": (*COLLECTIVE, *SETUP[:1])}
    for end in wanted:
        for pattern in patterns.get(end, ()):
            line = first_line(seen.log, pattern) if seen.log is not None else None
            if line is not None:
                return None, from_line(line)
    return None


def went_well(seen: Evidence) -> tuple[Exhibit, ...] | None:
    """Exhibits that the run came to no bad end of the kind asked for; None where nothing read could have shown one."""
    found = cause(seen)
    if found is not None:
        return (from_error(found[1]),)
    if seen.crash is not None or (seen.log is not None and seen.log.lines_read > 0):
        return ()
    if seen.metrics is not None and seen.metrics.finished:
        return ()
    return None
