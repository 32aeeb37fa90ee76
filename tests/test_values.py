import dataclasses

import pytest

from tuneclinic.sections import Series, Setting, Settings
from tuneclinic.values import dataclass


@pytest.mark.parametrize("slots", [True, False])
def test_behaves_as_a_frozen_dataclass(slots):
    @dataclass(frozen=True, slots=slots)
    class Point:
        x: int
        y: int = 2
        z: list = dataclasses.field(default_factory=list)

    one = Point(1)
    assert one == Point(1, 2, [])
    assert one != Point(2)
    assert one != object()
    assert "x=1" in repr(one)
    assert dataclasses.replace(one, y=5) == Point(1, 5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.y = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.other = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.x


def test_sections_compare_by_value_and_series_by_identity():
    assert Settings({"a": Setting(1)}) == Settings({"a": Setting(1)})
    assert hash(Setting(1, "x")) == hash(Setting(1, "x"))
    assert Series.of([1.0]) != Series.of([1.0])


def test_works_bare():
    @dataclass
    class Counter:
        count: int = 0

    one = Counter()
    one.count += 1
    assert one == Counter(1)
