"""What launchers print when a worker has died: it comes last and is never the cause."""

from __future__ import annotations

import re

from tuneclinic.patterns import pattern

ECHO_KIND = (
    r"(?:ChildFailedError|CalledProcessError|RayTaskError(?:\(\w+\))?|RayActorError|ActorDiedError|RemoteTraceback|BrokenProcessPool|ProcessExitedException"
    r"|ProcessRaisedException|RendezvousConnectionError|SystemExit|TaskExecutionException|ConnectionResetError|BrokenPipeError|RemoteError|DistNetworkError)$"
)
ECHO_TEXT = (
    r"connection closed by peer|broken pipe|connection reset by peer|socket timeout|socketStartConnect|ncclRemoteError|remote process exited"
    r"|Failed to recv|failed to CUDA calls|worker died|pin memory thread exited|process group .{0,40}(?:has been )?aborted|NCCL communicator was aborted"
)
"""What the other ranks say when one has gone."""
STOP_KIND = pattern(r"(?:KeyboardInterrupt|SignalException|RunAborted)$")

BLOCK = pattern(r"^(?:Root Cause \(first observed failure\)|Failures):")
RANK = pattern(r"^\s*rank\s*: (\d{1,6}) \(local_rank: \d{1,6}\)")
EXIT = pattern(r"^\s*exitcode\s*: (-?\d{1,4}) \(pid: \d+\)\s*(?:\((SIG\w+)\))?")
AGENT = pattern(r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,6}) \(pid: \d+\)")
SIGNALS = {
    -4: "SIGILL",
    -6: "SIGABRT",
    -7: "SIGBUS",
    -9: "SIGKILL",
    -11: "SIGSEGV",
    -15: "SIGTERM",
    137: "SIGKILL",
    134: "SIGABRT",
    139: "SIGSEGV",
}


class Summary:
    """torchrun's closing summary: one block a rank, the root cause's last."""

    def __init__(self) -> None:
        self.inside = self.root = False
        self.rank: int | None = None
        self.exits: list[tuple[int, int | None, int, bool, str]] = []

    def feed(self, number: int, text: str) -> bool:
        """Takes in one line, True where it tells an exit; `exits` collects (line, rank, code, whether it is the root cause, quotation)."""
        told = len(self.exits)
        block = BLOCK.match(text)
        if block:
            self.inside, self.root, self.rank = True, text.startswith("Root"), None
        elif self.inside and self.root and text.startswith("===="):
            self.inside = False
        elif self.inside and (match := RANK.match(text)):
            self.rank = int(match[1])
        elif self.inside and (match := EXIT.match(text)):
            self.exits.append((number, self.rank, int(match[1]), self.root, " ".join(text.split())))
        elif "local_rank" in text and (match := AGENT.search(text)):
            self.exits.append((number, int(match[2]), int(match[1]), False, match[0]))
        return len(self.exits) > told


def echo(kind: str, message: str) -> bool:
    """Whether an error only says that another process has failed."""
    return re.search(ECHO_KIND, kind) is not None or re.search(ECHO_TEXT, message[:1000], re.IGNORECASE) is not None


def stop(kind: str) -> bool:
    """Whether an error says that a person or a signal from outside stopped the run."""
    return STOP_KIND.search(kind) is not None
