from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.tuning import cover
from lfbo_aot.tuning.cover import smallest_set

# Buckets in rows. The first three columns are each the best of a bucket or two; 3 never is, and is
# never more than 10 % from it; 4 fails in a bucket. Their regrets, in per cent:
TABLE = [
    [10.0, 12.0, 15.0, 11.0, 10.5],  # .   0  20  50  10    5
    [20.0, 24.0, 21.0, 21.0, None],  # .   0  20   5   5    -
    [60.0, 40.0, 50.0, 43.0, 42.0],  # .  50   0  25   7.5  5
    [9.0, 12.0, 8.0, 8.4, 16.0],  # .     12.5 50  0   5  100
]


def answer(found):
    return found.configs, found.assignment, found.reached


@pytest.mark.parametrize(
    ("regret", "configs", "assignment", "worst"),
    [
        (0.10, (3,), (3, 3, 3, 3), 0.1),
        # 3 with 4 is within 5 % too, and on average further from the best than 2 with 4.
        (0.08, (2, 4), (4, 2, 4, 2), 0.05),
        (0.05, (2, 4), (4, 2, 4, 2), 0.05),
        (0.04, (0, 1, 2), (0, 0, 1, 2), 0.0),
        (0.0, (0, 1, 2), (0, 0, 1, 2), 0.0),
    ],
)
def test_the_fewest_within_a_regret(regret, configs, assignment, worst):
    found = smallest_set(TABLE, regret=regret)
    assert answer(found) == (configs, assignment, True)
    assert found.worst_regret == pytest.approx(worst)


@pytest.mark.parametrize(
    ("most", "configs", "regrets"),
    [
        (1, (3,), (0.1, 0.05, 0.075, 0.05)),
        (2, (2, 4), (0.05, 0.05, 0.05, 0.0)),
        (3, (0, 1, 2), (0.0, 0.0, 0.0, 0.0)),
        (5, (0, 1, 2), (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_at_most_so_many(most, configs, regrets):
    found = smallest_set(TABLE, most=most)
    assert found.configs == configs
    assert found.reached
    assert found.regrets == pytest.approx(regrets)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_exchanges_find_the_same_here(most, monkeypatch):
    exact = smallest_set(TABLE, most=most)
    monkeypatch.setattr(cover, "EXACT", 0)
    assert smallest_set(TABLE, most=most) == exact


def covering(*sets):
    """A table in which each config is within 10 % of the best in the buckets of its set."""
    return [
        [1.0 if b in held else 2.0 + c / 100 for c, held in enumerate(sets)]
        for b in range(1 + max(b for held in sets for b in held))
    ]


@pytest.mark.parametrize(
    ("sets", "configs"),
    [
        # The largest comes first, and is of no use once the others are there.
        (({0, 1, 3, 4}, {0, 1, 2}, {3, 4, 5}), (1, 2)),
        # The first and the third, for 7 alone, do together what the last does.
        (({0, 1, 2, 3, 8, 9}, {0, 1, 4, 5, 6}, {7}, {2, 3, 7, 8, 9}), (1, 3)),
    ],
)
def test_where_one_after_the_other_is_not_the_fewest(sets, configs, monkeypatch):
    assert smallest_set(covering(*sets), regret=0.1).configs == configs
    monkeypatch.setattr(cover, "EXACT", 0)
    assert smallest_set(covering(*sets), regret=0.1).configs == configs


def test_of_the_fewest_the_nearest_to_the_best(monkeypatch):
    """Either alone is within 10 %: column 0 by 8 %, column 1 by 4 %."""
    table = [[1.0, 1.04], [1.08, 1.0]]
    assert smallest_set(table, regret=0.1).configs == (1,)
    monkeypatch.setattr(cover, "EXACT", 0)
    assert smallest_set(table, regret=0.1).configs == (1,)


def test_a_further_config_may_lower_the_mean_alone():
    """The first bucket costs 10 % with any but the last, which is the worst elsewhere."""
    table = [[1.1, 1.1, 1.0], [1.0, 1.1, 2.0], [1.1, 1.0, 2.0]]
    assert smallest_set(table, own=[2, 0, 1], most=1).configs == (0,)
    found = smallest_set(table, most=2)
    assert found.configs == (0, 1)
    assert found.regrets == pytest.approx((0.1, 0.0, 0.0))


def test_an_idle_config_is_left_out():
    rows = np.array([[0.0, 0.1, 0.2], [0.3, 0.4, 0.0]])
    assert cover._exchanged(rows, [1, 0, 2]) == [0, 2]


def test_what_is_beaten_everywhere_or_repeated_is_not_tried(monkeypatch):
    monkeypatch.setattr(cover, "_greedy", None)
    beaten = [(1.2 + i / 100, 1.4 - i / 100) for i in range(20)]
    table = list(zip(*beaten, *[(1.0, 1.1), (1.1, 1.0)] * 20, strict=True))
    assert smallest_set(table, regret=0.0).configs == (20, 21)


def test_both_limits():
    """Two are within 8 %; one can't be, and is then the one of least worst regret."""
    assert answer(smallest_set(TABLE, regret=0.08, most=3)) == ((2, 4), (4, 2, 4, 2), True)
    assert answer(smallest_set(TABLE, regret=0.08, most=1)) == ((3,), (3, 3, 3, 3), False)
    assert answer(smallest_set(TABLE, regret=0.10, most=1)) == ((3,), (3, 3, 3, 3), True)


def test_failures_are_avoided_before_all_else():
    table = [[1.0, None, 9.0], [math.inf, 1.0, 9.0], [math.nan, 1.0, 9.0]]
    assert answer(smallest_set(table, most=1)) == ((2,), (2, 2, 2), True)
    assert smallest_set(table, most=1).worst_regret == pytest.approx(8.0)


def test_too_few_to_serve_all_serve_as_many_as_they_can():
    table = [[1.0, None], [None, 1.0], [None, 2.0]]
    for limits in ({"most": 1}, {"most": 1, "regret": 0.5}):
        found = smallest_set(table, **limits)
        assert answer(found) == ((1,), (None, 1, 1), False)
        assert found.regrets == (math.inf, 0.0, 0.0)
        assert found.worst_regret == math.inf


def test_a_bucket_may_name_its_own_best():
    """Against column 0, chosen for reasons of its own, the faster one has no regret."""
    table = [[10.0, 9.0, 11.0]]
    assert smallest_set(table, most=1).configs == (1,)
    assert smallest_set(table, own=[0], most=1).configs == (0,)
    assert smallest_set(table, own=[0], regret=0.0).regrets == (0.0,)


def test_what_is_poorly_measured_must_be_clearly_within():
    """Column 1 costs 2 % in the second bucket, give or take."""
    table = [[1.0, 1.0], [1.05, 1.02], [1.04, 1.0]]
    own = [0, 1, 1]
    assert smallest_set(table, regret=0.02, own=own).configs == (1,)
    sure, poor = [[0.0, 0.002]] * 3, [[0.0, 0.02]] * 3
    found = smallest_set(table, regret=0.02, own=own, error=sure)
    assert found.configs == (1,)
    assert found.regrets == pytest.approx((0.004, 0.0, 0.0))
    found = smallest_set(table, regret=0.02, own=own, error=poor)
    assert answer(found) == ((0, 1), (0, 1, 1), True)
    assert found.regrets == (0.0, 0.0, 0.0)


def test_a_regret_on_the_limit_is_within_it():
    """1.02 / 1.0 - 1.0 is a little more than 0.02."""
    assert smallest_set([[1.0, 1.02], [9.0, 1.0]], regret=0.02).configs == (1,)
    assert smallest_set([[1.0, 1.0201], [9.0, 1.0]], regret=0.02).configs == (0, 1)


def test_of_equal_configs_the_first_is_taken():
    assert smallest_set([[2.0, 1.0, 1.0], [1.0, 3.0, 3.0]], regret=0.0).configs == (0, 1)
    assert smallest_set([[1.0, 1.0], [1.0, 1.0]], most=1).assignment == (0, 0)


def test_no_buckets_need_no_config():
    found = smallest_set([], regret=0.0)
    assert answer(found) == ((), (), True)
    assert found.worst_regret == 0.0


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ([[1.0]], {}, "needs regret= or most="),
        ([[1.0]], {"regret": -0.1}, "regret is -0.1"),
        ([[1.0]], {"regret": math.nan}, "regret is nan"),
        ([[1.0]], {"most": 0}, "most is 0"),
        ([[1.0], [1.0, 2.0]], {"most": 1}, "latency_us must have 2 rows of 1 cells"),
        ([[1.0]], {"most": 1, "error": [[0.0, 0.0]]}, "error must have 1 rows of 1 cells"),
        ([[1.0]], {"most": 1, "own": [0, 0]}, "own has 2 columns"),
        ([[1.0], [None]], {"most": 1}, "bucket 1: "),
        ([[1.0, 0.0]], {"most": 1}, "bucket 0: "),
        ([[1.0, None]], {"most": 1, "own": [1]}, "bucket 0: "),
        ([[1.0]], {"most": 1, "own": [-1]}, "bucket 0: "),
        ([[]], {"most": 1}, "bucket 0: "),
    ],
)
def test_what_makes_no_sense_is_refused(table, options, message):
    with pytest.raises(ValueError, match=message):
        smallest_set(table, **options)


def tables(columns, rows=6):
    """Few distinct latencies, so that there are ties; every bucket has a config that runs."""
    cell = st.sampled_from([1.0, 1.01, 1.03, 1.1, 1.5, 3.0, None])
    width = st.integers(1, columns)
    made = width.flatmap(
        lambda n: st.lists(st.lists(cell, min_size=n, max_size=n), min_size=1, max_size=rows)
    )
    return made.filter(lambda table: all(any(row) for row in table))


def costs(table, chosen):
    """(buckets that none serves, worst regret, mean regret), by brute force."""
    found = []
    for row in table:
        best = min(us for us in row if us)
        found.append(min((row[c] / best - 1.0 for c in chosen if row[c]), default=math.inf))
    served = [r for r in found if r < math.inf]
    return len(found) - len(served), max(found), sum(found) / len(found)


LIMITS = st.fixed_dictionaries(
    {}, optional={"regret": st.sampled_from([0.0, 0.02, 0.05, 0.2]), "most": st.integers(1, 4)}
).filter(bool)


@settings(deadline=None)
@given(tables(5), LIMITS)
def test_no_other_set_is_better(table, limits):
    found = smallest_set(table, **limits)
    unserved, worst, mean = costs(table, found.configs)
    assert found.worst_regret == worst
    regret = limits.get("regret", math.inf)
    assert found.reached == (unserved == 0 and worst <= regret + 1e-9)
    count = len(table[0])
    sets = [s for k in range(1, count + 1) for s in itertools.combinations(range(count), k)]
    for other in sets:
        theirs = costs(table, other)
        if len(other) > limits.get("most", count):
            continue
        if "regret" in limits and theirs[1] <= regret + 1e-9:
            assert found.reached
            assert (len(found.configs), worst, mean) <= (len(other), theirs[1], theirs[2] + 1e-12)
        if not found.reached or "regret" not in limits:
            assert unserved <= theirs[0]
            if unserved == theirs[0] == 0:
                assert (worst, mean) <= (theirs[1], theirs[2] + 1e-12)


@settings(deadline=None)
@given(tables(9, rows=8), LIMITS)
def test_each_bucket_has_the_best_of_the_chosen_and_none_is_idle(table, limits):
    found = smallest_set(table, **limits)
    assert len(found.configs) <= limits.get("most", 9)
    for row, config, regret in zip(table, found.assignment, found.regrets, strict=True):
        if config is None:
            assert [row[c] for c in found.configs] == [None] * len(found.configs)
            assert not found.reached
        else:
            assert row[config] == min(row[c] for c in found.configs if row[c])
            assert not found.reached or regret <= limits.get("regret", math.inf) + 1e-9
    assert set(found.configs) == set(found.assignment) - {None}


@settings(max_examples=60, deadline=None)
@given(tables(12, rows=12), LIMITS)
def test_exchanges_hold_the_limits_and_all_sets_are_never_worse(table, limits):
    exact = smallest_set(table, **limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover, "EXACT", 0)
        found = smallest_set(table, **limits)
    assert len(found.configs) <= limits.get("most", 12)
    assert list(found.configs) == sorted(set(found.configs))
    assert set(found.configs) == set(found.assignment) - {None}
    if limits.get("regret") is not None and found.reached:
        assert exact.reached
        assert max(found.regrets) <= limits["regret"] + 1e-9
        assert len(exact.configs) <= len(found.configs)
    elif "regret" not in limits:
        assert exact.worst_regret <= found.worst_regret
        assert exact.reached or not found.reached


def test_more_configs_than_can_be_tried_in_all_sets():
    """Twenty-four buckets in four families: within one a config costs up to 3 %, elsewhere 40 %."""
    count, families = 24, 4
    table = [
        [
            1.0 if b == c else 1.01 + (b * c % 3) / 100 if (b - c) % families == 0 else 1.4
            for c in range(count)
        ]
        for b in range(count)
    ]
    assert count > cover.EXACT
    found = smallest_set(table, regret=0.03)
    assert found.reached
    assert sorted(c % families for c in found.configs) == [0, 1, 2, 3]
    assert all((b - c) % families == 0 for b, c in enumerate(found.assignment))
    assert smallest_set(table, most=4).worst_regret <= 0.03 + 1e-9
    three = smallest_set(table, regret=0.03, most=3)
    assert not three.reached
    assert three.worst_regret == pytest.approx(0.4)
    assert smallest_set(table, regret=0.0).configs == tuple(range(count))
    assert smallest_set(table, regret=0.4).configs == smallest_set(table, most=1).configs
    assert smallest_set(table, regret=0.03) == found
