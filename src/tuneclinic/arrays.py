"""Order statistics that load nothing.

numpy's own `median`, `percentile` and `unique` import its masked arrays at their first call, which costs more than the rest of a
diagnosis of a short run.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def median(values: Any, axis: int | None = None) -> Any:
    """The median as `np.median` gives it: NaN where any value is NaN, NaN of nothing."""
    held = np.asarray(values, dtype=np.float64)
    if axis is None:
        held, axis = held.ravel(), 0
    count = held.shape[axis]
    if not count:
        return np.full(held.shape[:axis] + held.shape[axis + 1 :] if axis >= 0 else held.shape[:-1], np.nan)[()]
    ordered = np.moveaxis(np.sort(held, axis=axis), axis, 0)
    # sort puts NaN last: a row whose last value is NaN has one
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return np.where(np.isnan(ordered[-1]), np.nan, middle)[()]


def percentile(values: Any, share: Any) -> Any:
    """One or several percentiles, `share` from 0 to 100, linear between values as `np.percentile` gives them."""
    ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if not len(ordered):
        return np.full(np.shape(share), np.nan)[()]
    if np.isnan(ordered[-1]):
        return np.full(np.shape(share), np.nan)[()]
    return np.interp(np.asarray(share, dtype=np.float64) / 100 * (len(ordered) - 1), np.arange(len(ordered)), ordered)


def distinct(values: Any) -> int:
    """How many different values there are."""
    ordered = np.sort(np.asarray(values).ravel())
    return int(len(ordered) > 0) + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
