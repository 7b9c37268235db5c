from __future__ import annotations

from lfbo_aot.tuning.limits import Limits


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_no_end():
    limits = Limits()
    assert not limits.over()
    assert limits.left_s is None
    assert limits.within(None) is limits


def test_an_end():
    clock = Clock()
    limits = Limits(ends=110.0, trials=7, clock=clock)
    assert limits.left_s == 10.0
    clock.now = 109.5
    assert not limits.over()
    clock.now = 110.0
    assert limits.over()
    clock.now = 115.0
    assert limits.left_s == 0.0


def test_the_earlier_end_counts():
    clock = Clock()
    limits = Limits(ends=110.0, trials=7, clock=clock)
    assert limits.within(3.0) == Limits(103.0, 7, clock)
    assert limits.within(30.0) == limits
    assert Limits(clock=clock).within(0.0).over()
