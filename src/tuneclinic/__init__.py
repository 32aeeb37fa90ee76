"""Tuneclinic finds out why a fine-tuning run went wrong, proves it, and says what to change.

`tuneclinic.diagnose(path)` returns one `Diagnosis` a run found there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuneclinic.version import __version__

if TYPE_CHECKING:
    from tuneclinic.clinic import diagnose

__all__ = ["__version__", "diagnose"]


def __getattr__(name: str) -> Any:
    """Loads the library only when it is used: `import tuneclinic` costs nothing."""
    if name == "diagnose":
        from tuneclinic.clinic import diagnose  # noqa: PLC0415

        return diagnose
    raise AttributeError(name)
