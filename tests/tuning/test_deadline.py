from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.tuning.devices.deadline import Deadline


def told(seconds, **words):
    deadline = Deadline(**{"most_s": 60.0, "least_s": 1.0, **words})
    for each in seconds:
        deadline.tell(each)
    return deadline


@pytest.mark.parametrize(
    ("seconds", "limit_s"),
    [
        ([], 60.0),
        ([2.0] * 11, 60.0),
        ([2.0] * 12, 6.0),
        ([0.1] * 12, 1.0),
        ([50.0] * 12, 60.0),
        ([1.0] * 18 + [9.0] * 2, 27.0),
        ([1.0] * 19 + [9.0], 3.0),
    ],
    ids=["nothing", "too few", "enough", "least", "most", "a tenth is slow", "one is slow"],
)
def test_the_limit(seconds, limit_s):
    assert told(seconds).limit_s == pytest.approx(limit_s)


def test_a_share_and_a_factor_of_its_own():
    assert told([1.0] * 19 + [1.5], factor=30.0, quantile=1.0).limit_s == 45.0


def test_what_was_long_ago_is_forgotten():
    assert told([9.0] * 400 + [1.0] * 399).limit_s == pytest.approx(3.0)
    assert told([9.0] * 12 + [1.0] * 400).limit_s == pytest.approx(3.0)
    assert len(told([1.0] * 1000)._seen) == 400


@given(st.lists(st.floats(0.001, 1000.0), max_size=60))
def test_it_stays_within_its_bounds_whatever_the_order(seconds):
    limit_s = told(seconds).limit_s
    assert 1.0 <= limit_s <= 60.0
    assert told(sorted(seconds, reverse=True)).limit_s == limit_s
    # No more than a tenth of what went well would have been ended at it.
    if len(seconds) >= 12:
        assert sum(s > limit_s for s in seconds if s <= 60.0) <= 0.1 * len(seconds)
