"""What the cases of several processes ask of the evidence: how many there are, who shards the data, which collective timed out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tuneclinic.casebook.learning._facts import as_number, number, say
from tuneclinic.evidence import Evidence, Exhibit, from_error, from_line, from_setting
from tuneclinic.patterns import pattern

TRAINERS = frozenset({"transformers", "trl", "llama-factory", "axolotl", "ms-swift", "unsloth", "lightning"})
"""Frameworks whose trainer shards the loader, sets the epoch and steps the scheduler by itself."""
TIMED_OUT = pattern(
    r"collective operation timeout|watchdog .{0,80}(timed out|timeout)|timeout\(ms\)=\d+|heartbeat monitor timed out|"
    r"timed out (waiting|after) .{0,60}(recv|collective|barrier|send|operation)"
)
RANK = pattern(r"\[?rank[ :]?\s?(\d{1,5})\]?")
SEQUENCE = pattern(r"seqnum=(\d{1,12})")
OPERATION = pattern(r"optype=(\w{1,40})")


@dataclass(frozen=True, slots=True)
class Timeout:
    """One rank's time-out: the collective it waited in, by its number and kind, where the watchdog names them."""

    rank: int | None
    sequence: int | None
    operation: str
    exhibit: Exhibit


@lru_cache(maxsize=4)
def timeouts(seen: Evidence) -> tuple[Timeout, ...]:
    """All time-outs that were read, one a rank, in order of the errors and then of the log. Kept, since four cases ask for them."""
    found: list[Timeout] = []
    ranks: set[int | None] = set()
    told = [(error.quote, error.rank, from_error(error)) for error in (seen.crash.errors if seen.crash is not None else ())]
    told += [(line.text, None, from_line(line)) for line in (seen.log.lines if seen.log is not None else ())]
    for text, rank, exhibit in told:
        low = text[:4000].lower()
        if "time" not in low or not TIMED_OUT.search(low):
            continue
        named = RANK.search(low)
        who = rank if rank is not None else int(named.group(1)) if named else None
        if who in ranks:
            continue
        ranks.add(who)
        sequence, operation = SEQUENCE.search(low), OPERATION.search(low)
        found.append(Timeout(who, int(sequence.group(1)) if sequence else None, operation.group(1) if operation else "", exhibit))
    return tuple(found)


def own_error(seen: Evidence) -> Exhibit | None:
    """The first error that is no time-out, no aborted collective and no launcher's report: a rank that died by itself."""
    for error in seen.crash.errors if seen.crash is not None else ():
        low = error.quote[:4000].lower()
        if not TIMED_OUT.search(low) and not re.search(
            r"nccl|gloo|childfailed|distbackend|connection (reset|closed)|sigterm|stopiteration", low
        ):
            return from_error(error, -4.0)
    return None


def finished(seen: Evidence) -> tuple[Exhibit, ...]:
    """An exhibit that the run came to its end, so that nothing hung for ever."""
    if seen.metrics is None or not seen.metrics.finished or timeouts(seen):
        return ()
    return (say("the run finished", "训练正常跑完了", -5.0),)


def processes(seen: Evidence) -> int | None:
    """How many processes trained, from the log, else from the settings (per machine × machines); None where not known."""
    if seen.environment is not None and seen.environment.processes:
        return seen.environment.processes
    each = number(seen, "processes")
    if each is None or each < 1:
        return None
    machines = number(seen, "machines") or 1
    return int(min(each * max(1.0, machines), 1e6))


def alone(seen: Evidence) -> tuple[Exhibit, ...]:
    """An exhibit that there is one process only, which rules out every fault between ranks."""
    if processes(seen) != 1:
        return ()
    if seen.settings is not None and as_number(seen.settings.get("processes")) == 1:
        return (from_setting(seen.settings.values["processes"], -9.0),)
    where = seen.environment.places.get("processes", "") if seen.environment is not None else ""
    return (say("one process", "只有一个进程", -9.0, section="environment", where=where),)


def shards(seen: Evidence) -> tuple[Exhibit, ...]:
    """An exhibit that the framework's own trainer takes care of sharding, where several processes are known to run."""
    framework = seen.settings.framework if seen.settings is not None else ""
    count = processes(seen)
    if framework not in TRAINERS or count is None or count < 2 or (seen.script is not None and seen.script.facts):
        return ()
    return (
        say(
            f"{framework} shards its loader over the {count} processes by itself",
            f"{framework} 的 Trainer 自己会把数据切给 {count} 个进程",
            -4.0,
            section="settings",
        ),
    )


def rank_losses(seen: Evidence, rows: int = 5) -> tuple[bool, Exhibit] | None:
    """Whether the first two ranks log the same losses to the last digit over at least `rows` rows; None without two ranks.

    Equal losses prove nothing by themselves: trainers average before they log.
    """
    held = [(rank, kept["loss"]) for rank, kept in sorted(seen.metrics.by_rank.items()) if "loss" in kept] if seen.metrics else []
    if len(held) < 2:
        return None
    (a, mine), (b, other) = held[:2]
    count = min(len(mine), len(other))
    if count < rows:
        return None
    equal = int((mine.values[:count] == other.values[:count]).sum())
    same = equal == count
    return same, say(
        f"ranks {a} and {b} log the same loss in {equal} of {count} rows",
        f"rank {a} 和 rank {b} 有 {equal}/{count} 行 loss 完全相同",
        2.0 if same else -3.0,
        where=f"{mine.source}, {other.source}",
        source=mine.source,
    )
