from __future__ import annotations

import pytest

from lfbo_aot.tuning.fidelity import Fidelity
from lfbo_aot.tuning.fidelity import Reading
from lfbo_aot.tuning.fidelity import median
from lfbo_aot.tuning.fidelity import read

FIDELITY = Fidelity(warmup=1, quick=3, full=10, slack=1.5, longest_us=1000.0)


def clock(*durations):
    """Gives these one after another, then the last one again and again."""
    left = list(durations)
    asked = []

    def time(launches):
        asked.append(launches)
        return [left.pop(0) if len(left) > 1 else left[0] for _ in range(launches)]

    return time, asked


@pytest.mark.parametrize(
    ("durations", "best_us", "asked", "reading"),
    [
        ((50.0, 10.0), None, [1, 3, 7], Reading((10.0,) * 10)),
        ((50.0, 10.0), 10.0, [1, 3, 7], Reading((10.0,) * 10)),
        # Slower than the best by more than the slack: cut after the first look.
        ((50.0, 16.0), 10.0, [1, 3], Reading((16.0,) * 3, cut=True)),
        # So much slower that the warm-up tells.
        ((121.0, 10.0), 10.0, [1], Reading((121.0,), cut=True)),
        # Long calls earn no more launches than fit.
        ((400.0,), None, [1, 3, 2], Reading((400.0,) * 5)),
        ((5000.0,), None, [1, 3], Reading((5000.0,) * 3)),
        # A clock that reads nothing doesn't divide by it.
        ((0.0,), None, [1, 3, 7], Reading((0.0,) * 10)),
    ],
)
def test_launches_are_earned(durations, best_us, asked, reading):
    time, seen = clock(*durations)
    assert read(time, best_us, FIDELITY) == reading
    assert seen == asked


def test_without_a_warm_up():
    time, asked = clock(10.0)
    fidelity = Fidelity(warmup=0, quick=1, full=1)
    assert read(time, 9.0, fidelity) == Reading((10.0,))
    assert asked == [1]


def test_median():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median((1.0, 2.0)) == 1.5
