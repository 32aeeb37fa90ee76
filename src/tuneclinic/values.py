"""Frozen dataclasses that are cheap to define.

The standard library writes and compiles six methods for every frozen dataclass, which for the hundred of this package costs more than
a diagnosis. Here only `__init__` is compiled; the other methods are the same functions for all classes. To a type checker this *is*
`dataclasses.dataclass`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - re-exported as it is
else:

    def dataclass(bare: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
        """`dataclasses.dataclass` with the options that this package uses."""

        def decorate(cls: type) -> type:
            made = dataclasses.dataclass(repr=False, eq=False, slots=slots)(cls)
            if "__repr__" not in cls.__dict__:
                made.__repr__ = _repr
            if eq and "__eq__" not in cls.__dict__:
                made.__eq__, made.__hash__ = _eq, _hash if frozen else None
            if frozen:
                made.__setattr__, made.__delattr__ = _setattr, _delattr
            return made

        return decorate if bare is None else decorate(bare)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__dataclass_fields__)


def _repr(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{type(self).__qualname__}({inside})"


def _eq(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _setattr(self: Any, name: str, value: Any) -> None:
    """Sets a field once, as `__init__` does; what is set stays."""
    held = getattr(self, "__dict__", None)
    if name not in self.__dataclass_fields__ or (name in held if held is not None else _set(self, name)):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _set(self: Any, name: str) -> bool:
    """Whether a slot is filled."""
    try:
        object.__getattribute__(self, name)
    except AttributeError:
        return False
    return True


def _delattr(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
