from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lfbo_aot.search import Integer
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import Space
from lfbo_aot.search import Trial
from lfbo_aot.search.expense import CompileTimes
from lfbo_aot.search.expense import FailureForest
from lfbo_aot.search.expense import weigh_by_time


@pytest.fixture
def features():
    return np.random.default_rng(0).integers(0, 8, (200, 4)).astype(np.float32)


def plain(width=5) -> Space:
    return Space(tuple(Integer(f"i{at}", 0, 15, 0) for at in range(width)), (0,) * width)


def test_the_forest_tells_what_fails(features):
    forest = FailureForest()
    forest.fit(features, features[:, 0] >= 6, 0)
    probability = forest.probability(np.array([[7, 2, 2, 2], [1, 2, 2, 2]], np.float32))
    assert probability[0] > 0.9
    assert probability[1] < 0.1


@pytest.mark.parametrize("failed", [0, 2, 200])
def test_too_few_failures_and_nothing_but_failures_tell_nothing(features, failed):
    forest = FailureForest()
    forest.fit(features, features[:, 0] >= 6, 0)
    forest.fit(features, np.arange(200) < failed, 0)  # what was learnt before is gone
    assert forest.probability(features).tolist() == [0.0] * 200


def test_compile_times_are_relative_to_the_median(features):
    compile_s = np.where(features[:, 1] >= 6, 4.0, 0.5)
    compile_s[:20] = np.nan
    times = CompileTimes(features, compile_s, 0)
    relative = times.relative(np.array([[3, 7, 2, 2], [3, 1, 2, 2]], np.float32))
    assert relative == pytest.approx([8.0, 1.0], rel=0.15)
    again = CompileTimes(features, compile_s, 0)
    assert (again.relative(features) == times.relative(features)).all()


def test_ties_are_decided_by_time_and_nothing_else_is():
    score = np.array([0.50, 0.495, 0.40])
    weighed = weigh_by_time(score, np.array([4.0, 1.0, 0.5]), "ties")
    assert weighed == pytest.approx([0.48, 0.495, 0.41])


def test_the_rate_concerns_only_what_is_dear():
    weighed = weigh_by_time(np.array([0.5, 0.5, 0.5]), np.array([0.1, 2.0, 8.0]), "rate")
    assert weighed == pytest.approx([0.5, 0.5, 0.125])


def run(point):
    """The fast end fails where the first value is odd: a compile that never ends."""
    if point[0] % 2:
        return Trial(point, "compile_timeout", compile_s=8.0)
    if point[1] % 2:
        return Trial(point, "compile_error", compile_s=0.3)
    return Trial(point, "ok", 10.0 + sum(15 - v for v in point), compile_s=0.3)


QUICK = LFBOOptions(max_trials=120, agree=None, trees=15, neighbours=100)


def proposed(**options):
    search = LFBOPatternSearch(plain(), 0, replace(QUICK, **options))
    points = []
    while not search.done:
        for point in search.ask(2):
            points.append(point)
            search.tell(run(point))
    return points[60:]


def share(points, at):
    return np.mean([point[at] % 2 for point in points])


def test_timeouts_are_avoided():
    off, timeouts = proposed(failure="off"), proposed()
    assert share(timeouts, 0) < 0.6 * share(off, 0)


def test_all_failures_are_avoided():
    off, every = proposed(failure="off"), proposed(failure="all")
    for at in (0, 1):
        assert share(every, at) < 0.7 * share(off, at)


def test_what_takes_long_to_compile_is_tried_less():
    def seconds(cost):
        search = LFBOPatternSearch(plain(), 1, replace(QUICK, cost=cost))
        spent = []
        while not search.done:
            for point in search.ask(2):
                spent.append(0.2 if point[0] % 2 else 2.0)
                latency_us = 10.0 + sum(15 - v for v in point[1:])
                search.tell(Trial(point, "ok", latency_us, compile_s=spent[-1]))
        return sum(spent[60:])

    assert seconds("rate") < 0.8 * seconds("off")


@pytest.mark.parametrize("cost", ["ties", "rate"])
def test_without_compile_times_cost_changes_nothing(space, run, cost):
    def asked(**options):
        search = LFBOPatternSearch(space, 0, replace(QUICK, max_trials=60, trees=5, **options))
        points = []
        while not search.done:
            for point in search.ask(4):
                points.append(point)
                search.tell(run(point))
        return points

    assert asked(cost=cost) == asked()


@pytest.mark.parametrize("option", [{"failure": "some"}, {"cost": "time"}])
def test_other_words_are_refused(option):
    (name,) = option
    with pytest.raises(ValueError, match=f"option {name}="):
        LFBOOptions(**option)
