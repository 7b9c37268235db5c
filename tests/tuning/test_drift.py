from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.tuning.drift import Drift


def told(*readings):
    drift = Drift()
    for reading in readings:
        drift.tell(reading)
    return drift.factor


@pytest.mark.parametrize(
    ("readings", "factor"),
    [
        ((), 1.0),
        ((10.0, 90.0), 1.0),
        ((10.0, 10.0, 10.0), 1.0),
        ((10.0, 10.1, 9.9, 10.15, 10.19, 10.1), 1.0),
        ((10.0, 10.0, 10.0, 10.5, 10.5), 1.05),
        ((10.0, 10.0, 10.0, 9.0, 9.0, 9.0), 0.9),
        ((10.0, 10.0, 10.0, 99.0), 1.0),
        ((10.0, 10.0, 10.0, 11.0, 11.0, 11.0, 10.0, 10.0), 1.0),
    ],
    ids=["none", "too few", "none moved", "noise", "slower", "faster", "one outlier", "back again"],
)
def test_the_factor(readings, factor):
    assert told(*readings) == pytest.approx(factor)


@given(st.lists(st.floats(1.0, 1.009), min_size=3, max_size=3), st.floats(0.5, 2.0))
def test_a_device_that_changed_by_a_share_is_found_by_that_share(first, share):
    factor = told(*first, *(each * share for each in first))
    # Either that, or too little to be told from noise.
    assert factor == pytest.approx(share) or (factor == 1.0 and abs(share - 1.0) <= 0.0201)
