"""Python tracebacks out of a log in which several ranks write at once."""

from __future__ import annotations

import re
from dataclasses import field

from tuneclinic.patterns import pattern
from tuneclinic.probes.crashes.phases import Frame
from tuneclinic.probes.crashes.prefixes import Line
from tuneclinic.values import dataclass

HEAD = pattern(r"Traceback \(most recent call last\):?")
FRAME = pattern(r'^(\s*)File "([^"]{0,1000})", line (\d{1,9})(?:, in (.{0,300}))?$')
ERROR = pattern(r"^(\s*)((?:[A-Za-z_][\w<>]{0,80}\.){0,12}[A-Za-z_]\w{0,100}(?:\[[\w.]{1,60}\])?)(?:: ?(.*))?$")
CLASS = pattern(r"(?:Error|Exception|Exit|Interrupt|Iteration|Failure|Timeout|Abort|Fault|Warning)(?:\[[\w.]{1,60}\])?$")
QUIET = pattern(r"\b(?:WARN(?:ING)?|INFO|DEBUG)\b")
"""A traceback that a logger prints below the level of an error was caught."""
CHAIN = "The above exception was the direct cause of the following exception"
HANDLING = "During handling of the above exception, another exception occurred"
CONTINUED = (
    r"^(?:\s+\S|CUDA kernel errors|HIP kernel errors|Compile with|For debugging|Device-side assert|Search for|nccl\w+:|Last error|Error :|size mismatch"
    r"|socket|Net/|Missing key|Unexpected key|You (?:can|should|may)|Please|If you|\(?https?://|- |\d+\. |Parameter)"
)
"""How the further lines of a message begin in torch, NCCL, DeepSpeed and transformers."""
BAR = pattern(r"^\s*(?:[^|\n]{0,60}: {1,3})?\d{1,3}%\|")
"""A progress bar that is closed behind the error is no part of its message."""
FRAMES_KEPT = 60
MESSAGE_KEPT = 2000
LINES_CONTINUED = 15
PENDING_LINES = 4000
"""Lines of one stream after which an unfinished traceback is taken as cut off: torch.compile prints graphs of a thousand lines."""


@dataclass(slots=True)
class Raised:
    """One exception that a traceback shows."""

    kind: str
    message: str
    line: int
    rank: int | None
    stream: str
    frames: list[Frame] = field(default_factory=list)
    chained: str = ""
    ignored: bool = False
    in_summary: bool = False
    complete: bool = True


class Stream:
    """The traceback that one rank is writing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[Raised] = []
        self._frames: list[Frame] | None = None
        self._base = self._frame_indent = self._seen = self._continued = 0
        self._message: list[str] | None = None
        self._chained = ""
        self._ignored = False
        self._quiet_until = 0
        self._head = 0
        self._headless = False

    @property
    def open(self) -> bool:
        """Whether the next line may belong to a traceback or to an error's message."""
        return self._frames is not None or self._message is not None

    def feed(self, line: Line) -> bool:
        """Takes in one line; False where it is no part of a traceback."""
        text = line.text
        if "Traceback" in text and (match := HEAD.search(text)):
            self._begin(line, match.start())
            return True
        if self._message is not None:
            return self._continue(line)
        if self._frames is not None:
            return self._inside(line)
        return self._between(line)

    def close(self) -> None:
        """The end of the log: a traceback without its last line is kept as such."""
        if self._frames is not None and not self._headless:
            self._raise("Traceback (most recent call last)", "…", self._head, None, complete=False)
        self._settle()

    def _begin(self, line: Line, at: int) -> None:
        if self._frames and not self._headless:  # another one begins before this one ended: ours was cut off
            self._raise("Traceback (most recent call last)", "…", self._head, line.rank, complete=False)
        self._settle()
        before = line.text[:at]
        self._ignored = self._ignored or QUIET.search(before) is not None
        self._base = at if not before.strip() else len(before) - len(before.lstrip(" "))
        self._frames, self._frame_indent, self._seen, self._head, self._headless = [], -1, 0, line.number, False

    def _between(self, line: Line) -> bool:
        text = line.text
        frame = FRAME.match(text) if 'File "' in text else None
        if frame and len(frame[1]) >= 2 and frame[4]:  # ray prints stacks without a head, and a log's tail may begin inside one
            self._base, self._frame_indent, self._seen = len(frame[1]) - 2, len(frame[1]), 0
            self._frames, self._head, self._headless = [(frame[2], frame[3], frame[4].strip(), "")], line.number, True
        elif CHAIN in text:
            self._chained = "cause"
        elif HANDLING in text:
            self._chained = "handling"
        elif "Exception ignored in" in text or "--- Logging error ---" in text:
            self._ignored = True
        else:
            return False
        return True

    def _inside(self, line: Line) -> bool:
        assert self._frames is not None  # noqa: S101 - the caller looked
        text = line.text
        self._seen += 1
        frame = FRAME.match(text)
        if frame:
            self._frame_indent = len(frame[1])
            self._add((frame[2], frame[3], (frame[4] or "").strip(), ""))
            return True
        indent = len(text) - len(text.lstrip(" \t"))
        if not text.strip() or indent > max(self._frame_indent, self._base):
            self._code(text.strip())
            return self._bounded()
        error = ERROR.match(text)
        if error and indent <= self._base and (CLASS.search(error[2]) or (self._frames and not self._headless)):
            self._raise(error[2], error[3] or "", line.number, line.rank)
            self._message, self._continued = [], 0
            return True
        if self._headless:  # no error where one should stand: it was no traceback
            self._frames = None
            return self._between(line)
        return self._bounded()

    def _bounded(self) -> bool:
        if self._seen > PENDING_LINES and self._headless:
            self._frames = None
        elif self._seen > PENDING_LINES:
            self._raise("Traceback (most recent call last)", "…", self._head, None, complete=False)
        return True

    def _add(self, frame: Frame) -> None:
        assert self._frames is not None  # noqa: S101 - the caller looked
        self._frames.append(frame)
        if len(self._frames) > FRAMES_KEPT:  # a recursion: its beginning and its end tell
            del self._frames[FRAMES_KEPT // 2]

    def _code(self, text: str) -> None:
        if self._frames and text and not self._frames[-1][3] and not text.startswith(("^", "~")):
            path, number, function, _ = self._frames[-1]
            self._frames[-1] = (path, number, function, text[:200])

    def _raise(self, kind: str, message: str, number: int, rank: int | None, *, complete: bool = True) -> None:
        self.found.append(
            Raised(
                kind,
                message[:MESSAGE_KEPT].strip(),
                number,
                rank,
                self.name,
                list(self._frames or []),
                self._chained,
                self._ignored,
                complete=complete,
            )
        )
        self._frames, self._chained, self._ignored = None, "", False

    def _continue(self, line: Line) -> bool:
        text = line.text
        assert self._message is not None  # noqa: S101 - the caller looked
        if not text.strip() and self._continued < LINES_CONTINUED:
            self._continued += 1
            return True
        if CHAIN in text or HANDLING in text:
            self._settle()
            return self._between(line)
        empty = not self.found[-1].message.rstrip(" :") and not self._message
        if (
            self._continued >= LINES_CONTINUED
            or not (re.match(CONTINUED, text) or empty)
            or text.lstrip().startswith(("===", "---"))
            or BAR.match(text)
        ):
            self._settle()
            return self._between(line)
        self._continued += 1
        self._message.append(text.strip())
        return True

    def _settle(self) -> None:
        if self._message:
            last = self.found[-1]
            last.message = "\n".join([last.message, *self._message]).strip()[:MESSAGE_KEPT]
        self._message = None


def caused(chain: list[Raised]) -> Raised:
    """Of exceptions chained to each other, the one that came first and was not expected.

    "The direct cause" names the first. "During handling" names the first too, unless it is of a class that code raises and
    catches in its normal course (a missing key, an optional import): then the last one is what ended the run.
    """
    first = chain[0]
    for later in chain[1:]:
        if later.chained == "handling" and re.search(EXPECTED, first.kind):
            first = later
    return first


EXPECTED = r"(?:KeyError|AttributeError|ImportError|ModuleNotFoundError|IndexError|StopIteration|JSONDecodeError|HTTPError|EntryNotFoundError|FileNotFoundError|queue\.Empty|_queue\.Empty|Empty|CancelledError)$"
