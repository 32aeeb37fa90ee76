"""Takes an out-of-memory text apart, in GiB: CUDA in its old and new wordings, HIP, MPS, the host."""

from __future__ import annotations

import re

from tuneclinic.patterns import pattern
from tuneclinic.sections import OutOfMemory

SIZE = r"([\d.,]{1,24})\s?([KMGT]?i?B|bytes)"
FACTORS = {"b": 2.0**-30, "k": 2.0**-20, "m": 2.0**-10, "g": 1.0, "t": 2.0**10}
"""Every allocator counts in powers of 1024, also where it prints GB (the MPS allocator does)."""

GPU = pattern(r"(cuda|hip|npu|xpu)\b.{0,40}out of memory|outofmemoryerror|out of memory\. tried to allocate", re.IGNORECASE)
MPS = pattern(r"mps backend out of memory", re.IGNORECASE)
HOST = pattern(
    r"defaultcpuallocator|not enough memory: you tried|cannot allocate memory|std::bad_alloc|node (?:is |was )?running low on memory"
    r"|oom[-_ ]?kill|unable to allocate .{1,40} for an array",
    re.IGNORECASE,
)
FIELDS = {
    "asked": (rf"[Tt]ried to allocate {SIZE}", rf"Unable to allocate {SIZE}"),
    "capacity": (rf"total capacity of {SIZE}", rf"{SIZE} total capacity", rf"max allowed: {SIZE}"),
    "free": (rf"of which {SIZE} is free", rf"{SIZE} free[;,. )]"),
    "in_use": (rf"this process has {SIZE} memory in use", rf"\bHIP.{{0,40}}process has {SIZE}"),
    "allocated": (rf"allocated memory {SIZE} is allocated", rf"{SIZE} already allocated", rf"MPS allocated: {SIZE}"),
    "reserved_unallocated": (rf"{SIZE} is reserved by PyTorch but unallocated",),
}
RESERVED = rf"{SIZE} reserved in total by PyTorch"
OTHERS = rf"Process \d+ has {SIZE} memory in use"
ROUNDED = 0.05
"""GiB by which two printed sizes may differ: they have two digits."""
SLACK = 0.5
"""GiB of a card that no process is charged with: the driver's own share."""
LONGEST = 4096
"""Characters of a message that are looked at: the longest wording has 900."""


def gibibytes(number: str, unit: str) -> float | None:
    """A printed size in GiB; None for what is no number or no unit ("20.00 iB", cut)."""
    try:
        value = float(number.replace(",", "").rstrip("."))
    except ValueError:
        return None
    factor = FACTORS.get(unit[0].lower())
    return None if factor is None else value * factor


def out_of_memory(text: str, phase: str = "") -> OutOfMemory | None:
    """The parts of an out-of-memory text, None where `text` is none."""
    text = text[:LONGEST]
    device = _device(text)
    if not device:
        return None
    parts = {name: _first(patterns, text) for name, patterns in FIELDS.items()}
    others = [size for number, unit in re.findall(OTHERS, text) if (size := gibibytes(number, unit)) is not None]
    reserved = _first((RESERVED,), text)
    allocated = parts["allocated"]
    if parts["reserved_unallocated"] is None and reserved is not None and allocated is not None:
        parts["reserved_unallocated"] = max(0.0, reserved - allocated)
    if parts["in_use"] is None:
        parts["in_use"] = _own(parts, others)
    return OutOfMemory(device, phase=phase, other_processes=sum(others) if others else None, **parts)


def _own(parts: dict[str, float | None], others: list[float]) -> float | None:
    """Takes this process out of `others`, where it stands among them: in a container it goes by a number it does not know itself.

    It does where the processes listed and PyTorch's own share together are more than is taken of the card.
    """
    allocated, capacity, free = parts["allocated"], parts["capacity"], parts["free"]
    if allocated is None or capacity is None or free is None or not others:
        return None
    own = allocated + (parts["reserved_unallocated"] or 0.0)
    holders = [size for size in others if size >= own - ROUNDED]
    if not holders or sum(others) + own <= capacity - free + SLACK:
        return None
    others.remove(min(holders))
    return min(holders)


def _device(text: str) -> str:
    if MPS.search(text):
        return "mps"
    if HOST.search(text):
        return "host"
    match = GPU.search(text)
    if match is None:
        return ""
    named = (match[1] or "cuda").lower()
    return "hip" if re.search(r"\bHIP\b", text) else named


def _first(patterns: tuple[str, ...], text: str) -> float | None:
    for one in patterns:
        match = re.search(one, text)
        if match:
            return gibibytes(match[1], match[2])
    return None
