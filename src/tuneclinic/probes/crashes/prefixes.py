"""What stands in front of a log line: colours, ranks, process ids, times."""

from __future__ import annotations

from tuneclinic.patterns import pattern

COLOUR = pattern(r"\x1b\[[0-9;?]{0,16}[ -/]?[@-~]| \[(?:\d{1,3}(?:;\d{1,3}){0,5})?m")
"""Colour codes, also where the escape character was replaced by a blank on the way."""
RANK = pattern(r"\s{0,8}\[(?:rank|Rank |default|local_rank |r)\s?(\d{1,6})\]:? ?")
"""torch (`[rank1]:`), torchrun's `--tee` (`[default1]:`), Megatron (`[Rank 1]`)."""
ACTOR = pattern(r"\s{0,8}\((?:[\w.:<>]{1,80} )?pid=(\d{1,9})(?:, ip=[\w.:]{1,60})?\) ?")
"""Ray: `(WorkerDict pid=123, ip=…)`."""
SRUN = pattern(r"(\d{1,5}): (?=\S| )")
"""`srun --label`: `3: `."""
TIME = pattern(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]?\d{0,9}(?:Z|[+-]\d\d:?\d\d)? (?=Traceback| {2}|[A-Za-z_.]{2,80}(?:Error|Exception|Interrupt)\b)"
)
"""`kubectl logs --timestamps` and CI runners put the time before every line, tracebacks included."""
MOST_PREFIXES = 6
"""Prefixes stack (`[rank0]:[rank0]:`); more than a handful is no prefix."""


class Line:
    """One line without what stands before it: `text`, with the `rank` and the `stream` it belongs to."""

    __slots__ = ("number", "rank", "stream", "text")

    def __init__(self, number: int, raw: str) -> None:
        text = COLOUR.sub("", raw) if "\x1b" in raw or " [" in raw else raw
        if "\r" in text:
            text = text.rstrip("\r").rsplit("\r", 1)[-1]
        self.number = number
        self.rank: int | None = None
        self.stream = ""
        for _ in range(MOST_PREFIXES):
            rest = self._shorter(text)
            if rest is None:
                break
            text = rest
        self.text = text

    def _shorter(self, text: str) -> str | None:
        first = text.lstrip(" ")[:1]
        if first == "[" and (match := RANK.match(text)):
            self.rank = int(match[1])
            self.stream = f"rank {self.rank}"
        elif first == "(" and (match := ACTOR.match(text)):
            self.stream = f"pid {match[1]}"
        elif first.isdigit() and (match := TIME.match(text)):
            pass
        elif first.isdigit() and (match := SRUN.match(text)):
            self.rank = int(match[1])
            self.stream = f"rank {self.rank}"
        else:
            return None
        return text[match.end() :]
