import numpy as np
import pytest

from tuneclinic.arrays import distinct, median, percentile

DRAW = np.random.default_rng(0)
SETS = [DRAW.normal(size=size) for size in (1, 2, 3, 10, 11, 1000)] + [
    np.array([1.0, np.inf, -np.inf]),
    np.array([1.0, np.nan, 2.0]),
]


@pytest.mark.parametrize("values", SETS, ids=len)
def test_equal_to_numpy(values):
    np.testing.assert_array_equal(median(values), np.median(values))
    assert distinct(values[~np.isnan(values)]) == len(np.unique(values[~np.isnan(values)]))
    finite = values[np.isfinite(values)]
    np.testing.assert_allclose(percentile(finite, (5, 50, 95)), np.percentile(finite, (5, 50, 95)))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_median_along_an_axis(axis):
    table = DRAW.normal(size=(7, 12))
    np.testing.assert_array_equal(median(table, axis=axis), np.median(table, axis=axis))


def test_of_nothing():
    assert np.isnan(median([]))
    assert distinct([]) == 0
