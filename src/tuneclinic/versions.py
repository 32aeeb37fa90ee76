"""Versions and pairs of versions that are known to be bad, and which of them fit a run's environment.

The facts stand in `tables/known_versions.json`, each with the issue, pull request, guide or release source it was read from.
An entry fits where every one of its packages is installed in a version that its specifier (PEP 440) holds. What an entry says
about a call or a setting (`when`) cannot be told from versions: such an entry is a candidate until the error or the settings agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from tuneclinic.sections import Environment, Settings
from tuneclinic.values import dataclass

LONGEST = 64
"""Characters of a version string that are looked at; the longest local version of a published wheel has about 40."""

CAPABILITIES: tuple[tuple[str, str], ...] = (
    (r"\b(b200|gb200|b100)\b", "10.0"),
    (r"\brtx pro \d000 blackwell|\b(rtx )?50[6-9]0\b", "12.0"),
    (r"\b(h100|h200|h800|h20|gh200)\b", "9.0"),
    (r"\b(l4|l40s?|l20)\b|\b(rtx )?40[5-9]0\b|\brtx [456]000 ada", "8.9"),
    (r"\b(a10g?|a16|a2|a40|rtx a\d000|a6000)\b|\b(rtx )?30[5-9]0\b", "8.6"),
    (r"\b(a100|a800|a30)\b", "8.0"),
    (r"\bt4\b|\b(rtx )?20[6-8]0\b|\btitan rtx\b|\bgtx 16[56]0\b", "7.5"),
    (r"\bv100s?\b|\btitan v\b", "7.0"),
    (r"\b(p40|p4)\b|\b(gtx )?10[5-8]0\b", "6.1"),
    (r"\bp100\b", "6.0"),
)
"""Compute capability by card name (NVIDIA's list of CUDA GPUs), for the cards that people fine-tune on."""


@dataclass(frozen=True, slots=True)
class KnownFault:
    """One entry: `packages` maps names to specifiers, `symptom` is the id of the symptom it causes.

    `when` is the condition beyond versions in words ("" for none), `settings` the part of it that the vocabulary can check
    (name → value, or ">1"), `error` a piece of the message it raises. `weak` marks entries of a single report, with bounds
    inferred from dates, or read in part: never proof by versions alone.
    """

    id: str
    packages: Mapping[str, str]
    symptom: str
    what: str
    fix: str
    source: str
    when: str = ""
    error: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    weak: bool = False


@cache
def known() -> tuple[KnownFault, ...]:
    """The whole table, read once."""
    text = (Path(__file__).parent / "tables" / "known_versions.json").read_text(encoding="utf-8")
    return tuple(KnownFault(**entry) for entry in json.loads(text)["faults"])


def installed(environment: Environment) -> dict[str, str]:
    """Package versions with `cuda`, `driver` and `gpu-capability` (of the first card) beside them, where they were read."""
    held = dict(environment.packages)
    cuda = wheel_cuda(environment)
    if cuda:
        held["cuda"] = cuda
    if environment.driver:
        held["driver"] = environment.driver
    capability = next((found for name in environment.gpus if (found := capability_of(name))), None)
    if capability is not None:
        held["gpu-capability"] = capability
    return held


def wheel_cuda(environment: Environment) -> str | None:
    """The CUDA that torch was built for: from its version (`2.9.0+cu130`), else what the log names.

    A snapshot of nvidia-smi names the newest CUDA of the driver instead, which is why torch's own word goes first.
    """
    built = re.search(r"\+cu(\d{1,2})(\d)$", environment.packages.get("torch", "")[:LONGEST])
    return f"{int(built.group(1))}.{built.group(2)}" if built else environment.cuda


def capability_of(card: str) -> str | None:
    """The compute capability of a card by its name, None for a card that the table lacks."""
    name = card[:LONGEST].lower()
    return next((version for pattern, version in CAPABILITIES if re.search(pattern, name)), None)


def holds(specifier: str, version: str) -> bool:
    """Whether `version` lies within `specifier`, pre-releases included; False for text that is no version."""
    from packaging.specifiers import InvalidSpecifier  # noqa: PLC0415 - most runs name no version that needs it
    from packaging.version import InvalidVersion  # noqa: PLC0415 - as above

    if len(version) > LONGEST:
        return False
    try:
        return bool(_specifier(specifier).contains(version, prereleases=True))
    except (InvalidSpecifier, InvalidVersion, ValueError):  # ValueError: more digits than Python turns into an int
        return False


@cache
def _specifier(text: str) -> Any:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - as above

    return SpecifierSet(text)


def fitting(environment: Environment) -> Iterator[KnownFault]:
    """Entries all of whose packages are installed in a version they name."""
    held = installed(environment)
    for entry in known():
        if all(name in held for name in entry.packages) and all(
            holds(specifier, held[name]) for name, specifier in entry.packages.items()
        ):
            yield entry


def agrees(entry: KnownFault, settings: Settings | None) -> bool | None:
    """Whether the run's settings meet the entry's: None where it asks for none, or where one of them was not read."""
    if not entry.settings or settings is None or any(name not in settings for name in entry.settings):
        return None
    return all(_meets(settings, name, wanted) for name, wanted in entry.settings.items())


def _meets(settings: Settings, name: str, wanted: Any) -> bool:
    if isinstance(wanted, bool):
        return settings.flag(name) is wanted
    if isinstance(wanted, str) and wanted.startswith(">"):
        number = settings.number(name)
        return number is not None and number > float(wanted[1:])
    if isinstance(wanted, (int, float)):
        return settings.number(name) == wanted
    return str(settings.get(name)).strip().lower() == str(wanted)
