"""Which lines of a log are worth keeping, without keeping the log."""

from __future__ import annotations

from collections import deque
from dataclasses import field

from tuneclinic.patterns import pattern
from tuneclinic.values import dataclass

HEAD_LINES = 60
TAIL_LINES = 150
TAIL_HELD = 1200
"""Lines held for the tail before repeated bars are taken out of it."""
MOST_NOTED = 400
"""Different lines with a warning or an error in them."""
MOST_OTHERS = 150
"""Different other lines: a known message may use none of the words below."""
TEXT_CHARS = 2000
ERROR_WINDOWS = 12
"""How often the surroundings of one shape of error line are kept."""
WINDOW_LINES = 120
"""Lines kept behind an error line. Stacks of compiled models and of hydra have some 100."""
MOST_ERROR_LINES = 6000

WORDS = (
    "error", "warn", "except", "traceback", "memory", "overflow", "nan", "finite", "kill", "sig", "time", "fail", "truncat", "mismatch", "initialized", "key", "deprec", "skip", "ignor",
    "not used", "grad", "resum", "sanity", "mask", "pad", "exceed", "longer", "fallback", "unsupp", "unknown", "corrupt", "fault", "assert", "interrupt", "watchdog", "exit", "what()", "root cause",
    "minimum", "no space", "cancelled", "警告", "错误", "失败",
)  # fmt: skip
"""Lower case. A line without any of these is neither noted nor failing."""
GRAVE = (
    "error",
    "warning",
    "exception",
    "traceback",
    "out of memory",
    "overflow",
    "killed",
    "watchdog",
    "core dumped",
    "interrupt",
)
"""What is still looked for once a log has shown thousands of different lines."""
NOTED = pattern(
    r"error|warn|exception|traceback|out of memory|overflow|\bnan\b|non-?finite|killed|sig(?:term|kill|abrt|segv|int)|timed? ?out|fail|truncat|mismatch|newly initialized|unexpected key|missing key"
    r"|deprecat|skipp|ignor|not used|no gradient|requires_grad|resum|sanity|mask|padding|exceed|longer than|fallback|unsupported|unknown|corrupt|警告|错误|失败"
)
FAILED = pattern(
    r"error|exception|traceback|out of memory|killed|sig(?:term|kill|abrt|segv|bus|int)\b|signal|core dumped|fault|assert|interrupt|timed? ?out|watchdog|exit ?code|exitcode|what\(\)|root cause|at minimum|no space left|cancelled|\bnot enough memory"
)
TRACEBACK = pattern(
    r"Traceback \(most recent call last\)|^\s*(?:\[[^\]]{1,40}\]:? ?)?[\w.]+(?:Error|Exception)\b|Root Cause|ray::|error_file"
)


@dataclass(eq=False)
class Kept:
    """The first line of one shape and how many more there were; `hits` are those of the block being read."""

    text: str
    line: int
    order: int
    count: int = 0
    noted: bool = False
    windows: int = 0
    hits: list[int] = field(default_factory=list)


class Keeper:
    """Head, tail, different lines between, and what stands around errors."""

    def __init__(self) -> None:
        self.head: list[tuple[int, int, str]] = []
        self.noted: list[Kept] = []
        self.others: list[Kept] = []
        self.errors: dict[int, tuple[int, str]] = {}
        self.held: deque[tuple[int, int, bytes, bytes]] = deque(maxlen=TAIL_HELD)
        self.window = 0

    def keep(self, text: str, line: int, order: int, *, noted: bool) -> Kept | None:
        """Takes in the first line of a shape; None where there are enough already."""
        into, most = (self.noted, MOST_NOTED) if noted else (self.others, MOST_OTHERS)
        if len(into) >= most or not text.strip():
            return None
        kept = Kept(text[:TEXT_CHARS].rstrip(), line, order, noted=noted)
        into.append(kept)
        return kept

    def tally(self) -> None:
        """Counts the hits of a block."""
        for kept in (*self.noted, *self.others):
            if kept.hits:
                kept.count += len(kept.hits)
                kept.hits.clear()

    def tail(self) -> list[tuple[int, int, str]]:
        """The last lines, a bar that was drawn again and again once: (order, line, text)."""
        kept: list[tuple[int, int, str]] = []
        before = b""
        for order, line, raw, shape in reversed(self.held):
            if not raw.strip():
                continue
            if shape != before or len(kept) < 3:
                kept.append((order, line, shown(raw)))
                if len(kept) >= TAIL_LINES:
                    break
            before = shape
        return kept[::-1]


def shown(raw: bytes) -> str:
    """A line as text for people: cut, without control characters."""
    text = text_of(raw)[:TEXT_CHARS].rstrip()
    return text if text.isprintable() else "".join(char if char.isprintable() or char == "\t" else " " for char in text)


def text_of(raw: bytes) -> str:
    """A line as text: UTF-8, else GB 18030 where it fits, never failing."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return raw.decode("gb18030")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")
