"""Finds what stands in a folder: one file a thing, and adding the file is the whole of registering it."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any


@cache
def found(package: str, base: type) -> tuple[Any, ...]:
    """One instance of every class derived from `base` that a module below `package` defines, in order of module names.

    Names that start with an underscore, of modules and of classes, are helpers and are passed over.
    """
    root = importlib.import_module(package)
    things: list[Any] = []
    for info in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
        if info.name.rsplit(".", 1)[-1].startswith("_"):
            continue
        module = importlib.import_module(info.name)
        things.extend(
            value()
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == info.name and not name.startswith("_")
        )
    return tuple(things)
