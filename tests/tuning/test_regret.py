from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.tuning.devices.device import FinalReading
from lfbo_aot.tuning.regret import PointReadings
from lfbo_aot.tuning.regret import Ratio
from lfbo_aot.tuning.regret import contestants
from lfbo_aot.tuning.regret import over_own
from lfbo_aot.tuning.regret import paired
from lfbo_aot.tuning.regret import together
from lfbo_aot.tuning.regret import usable

D, E, A, B = ({"num_warps": n} for n in (4, 8, 1, 2))


def reading(config, *samples):
    return FinalReading(config, samples, {}, "" if samples else "crash: dead")


def point(default, *readings, m=1):
    return PointReadings({"m": m}, default, readings)


def test_a_ratio_is_taken_within_rounds():
    """Ratios 1.1, 1.2, 1.3, 1.2, 1.2 while the rounds drift twofold."""
    base = reading(D, 10.0, 12.0, 14.0, 16.0, 20.0)
    ratio = paired(reading(A, 11.0, 14.4, 18.2, 19.2, 24.0), base)
    assert ratio.middle == pytest.approx(1.2)
    assert ratio.error == pytest.approx(0.0, abs=1e-12)
    # Median deviation 0.1 of 1.0, 1.1, 1.2, 1.3, 1.4 from 1.2.
    ratio = paired(reading(A, 10.0, 13.2, 16.8, 20.8, 28.0), base)
    assert ratio.error == pytest.approx(1.4826 * 1.2533 * 0.1 / math.sqrt(5))
    assert paired(base, base) == Ratio(1.0, 0.0)


def test_rounds_must_match():
    with pytest.raises(ValueError, match=r"longer|shorter"):
        paired(reading(A, 1.0, 1.0), reading(D, 1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("ratio", "slower", "even"),
    [
        (Ratio(1.0, 0.0), False, True),
        (Ratio(1.0019, 0.0), False, True),
        (Ratio(1.0021, 0.0), True, False),
        (Ratio(0.9979, 0.0), False, False),
        (Ratio(1.019, 0.01), False, True),
        (Ratio(1.021, 0.01), True, False),
        (Ratio(0.979, 0.01), False, False),
    ],
)
def test_what_counts_is_beyond_two_errors_and_the_clock(ratio, slower, even):
    assert (ratio.slower, ratio.even) == (slower, even)


def test_the_mean_of_ratios_and_its_error():
    mean = together([Ratio(0.9, 0.03), Ratio(1.0, 0.04)])
    assert mean.middle == pytest.approx(0.95)
    assert mean.error == pytest.approx(0.025)
    assert together([Ratio(0.9, 0.03)]) == Ratio(0.9, 0.03)


def test_what_is_no_reading():
    assert usable(reading(A, 1.0))
    assert not usable(reading(A))
    assert not any(usable(reading(A, 1.0, bad)) for bad in (0.0, -1.0, math.inf, math.nan))


def test_regret_is_against_the_best_at_each_point():
    """At the second point the default fails, and B has the best reading."""
    points = [
        point(D, reading(D, 20.0), reading(A, 11.0), reading(B, 10.0)),
        point(E, reading(E), reading(D), reading(A, 30.0), reading(B, 24.0)),
        point(D, reading(D, 4.0), reading(A, 5.0), reading(B, 8.0)),
    ]
    found = {str(c.config): c for c in contestants(points)}
    assert found[str(A)].regret == pytest.approx((0.1, 0.25, 0.25))
    assert found[str(B)].regret == pytest.approx((0.0, 0.0, 1.0))
    assert found["None"].regret == pytest.approx((1.0, math.inf, 0.0))
    assert found[str(D)].regret == pytest.approx((1.0, math.inf, 0.0))
    assert [c.config for c in contestants(points)][:2] == [A, B]
    assert [found[k].runs for k in (str(A), str(B), "None")] == [True, True, False]
    assert found["None"].at[1] is None


def test_the_best_there_counts_even_if_it_fails_elsewhere():
    points = [
        point(D, reading(D, 20.0), reading(A, 20.0), reading(B, 10.0)),
        point(D, reading(D, 20.0), reading(A, 10.0), reading(B)),
    ]
    found = {str(c.config): c for c in contestants(points)}
    assert found[str(A)].regret == pytest.approx((1.0, 0.0))
    assert found["None"].regret == pytest.approx((1.0, 1.0))
    assert found[str(B)].regret == (0.0, math.inf)


def test_the_worst_comes_before_the_mean():
    points = [
        point(D, reading(D, 9.0), reading(A, 10.0), reading(B, 8.0)),
        point(D, reading(D, 9.0), reading(A, 10.0), reading(B, 8.0)),
        point(D, reading(D, 16.0), reading(A, 10.0), reading(B, 14.0)),
    ]
    assert [(c.config, c.rank) for c in contestants(points)] == [
        (A, pytest.approx((0.25, 0.5 / 3))),
        (B, pytest.approx((0.4, 0.4 / 3))),
        (None, pytest.approx((0.6, 0.85 / 3))),
    ]


def test_the_best_there_counts_even_if_it_does_not_compete():
    points = [
        point(D, reading(D, 10.0), reading(A)),
        point(D, reading(D, 10.0), reading(A, 8.0)),
    ]
    assert [c.regret for c in contestants(points)] == [pytest.approx((0.0, 0.25))]


def test_one_default_for_all_points_is_one_contestant():
    points = [
        point(D, reading(D, 2.0), reading(A, 1.0)),
        point(D, reading(D, 2.0), reading(A, 1.0)),
    ]
    assert [c.config for c in contestants(points)] == [A, None]


def test_defaults_that_differ_also_stand_for_themselves():
    """Helion's default is E at the probe; D, its default at the tuning point, is slower there."""
    points = [
        point(D, reading(D, 10.0), reading(E, 11.0)),
        point(E, reading(E, 10.0), reading(D, 15.0)),
    ]
    assert [(c.config, c.regret) for c in contestants(points)] == [
        (None, pytest.approx((0.0, 0.0))),
        (E, pytest.approx((0.1, 0.0))),
        (D, pytest.approx((0.0, 0.5))),
    ]


def test_what_never_ran_at_the_tuning_point_does_not_compete():
    points = [point(D, reading(D, 1.0), reading(A)), point(E, reading(E, 1.0), reading(A, 0.5))]
    assert [c.config for c in contestants(points)] == [None, D]


US = st.floats(1.0, 100.0)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.lists(US, min_size=5, max_size=5), min_size=3, max_size=3),
        min_size=1,
        max_size=3,
    )
)
def test_regrets_are_never_negative_and_someone_is_best_everywhere(table):
    points = [
        point(D, *(reading(c, *row) for c, row in zip((D, A, B), rows, strict=True)))
        for rows in table
    ]
    found = contestants(points)
    assert len(found) == 3
    for i in range(len(points)):
        assert min(c.regret[i] for c in found) == 0.0
    ranks = [c.rank for c in found]
    assert ranks == sorted(ranks)


def test_a_bucket_with_anothers_config_is_as_bad_as_at_its_worst_point():
    points = [
        point(D, reading(D, 12.0), reading(A, 10.0), reading(B, 11.0)),
        point(E, reading(E, 9.0), reading(A, 8.0), reading(B, 10.0)),
    ]
    assert over_own(points, B, A).middle == pytest.approx(1.25)
    assert over_own(points, None, A).middle == pytest.approx(1.2)
    assert over_own(points, A, None).middle == pytest.approx(8 / 9)
    assert over_own(points, A, A) == Ratio(1.0, 0.0)


def test_where_a_config_fails_and_where_nothing_is_to_be_compared():
    points = [
        point(D, reading(D, 2.0), reading(A, 1.0), reading(B)),
        point(D, reading(D, 3.0), reading(A), reading(B, 1.0)),
    ]
    assert over_own(points, B, A) is None
    assert over_own(points, None, A).middle == 2.0
    assert over_own(points, A, None) is None
    assert over_own(points, None, E) is None
