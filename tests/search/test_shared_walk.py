from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lfbo_aot.search import Integer
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import Space
from lfbo_aot.search import Trial
from lfbo_aot.search import lfbo


def plain(width=6) -> Space:
    return Space(tuple(Integer(f"i{at}", 0, 15, 0) for at in range(width)), (0,) * width)


def far_us(point):
    return 10.0 + sum(abs(value - 11) for value in point)


def started(options, count):
    search = LFBOPatternSearch(plain(), 0, replace(options, n_initial=count))
    for point in search.ask(count):
        search.tell(Trial(point, "ok", far_us(point)))
    return search


def changes(a, b):
    return sum(x != y for x, y in zip(a, b, strict=True))


def test_variations_change_one_to_three_tunables_and_force_none(space):
    drawn = space.variations(space.default, np.random.default_rng(0), 2, 2000)
    assert len(drawn) == len(set(drawn))
    assert space.default not in drawn
    assert {changes(point, space.default) for point in drawn} == {1, 2, 3}
    blocks_and_warps = [point[:3] == space.default[:3] for point in drawn]
    assert 0.1 < np.mean(blocks_and_warps) < 0.6


def test_variations_leave_inactive_tunables_alone(space):
    assert space.default[4] == "flat"
    drawn = space.variations(space.default, np.random.default_rng(0), 2, 2000)
    # `multiplier` counts only where the grid is persistent.
    assert {point[5] for point in drawn if point[4] == "flat"} == {1}
    assert all(space.canonical(point) == point for point in drawn)


def test_variations_of_a_single_point_are_none():
    assert Space((), ()).variations((), np.random.default_rng(0), 2, 10) == []


def test_proposals_vary_the_best_points():
    search = started(LFBOOptions(copies=3, trees=10), 40)
    best = [trial.point for trial in search.top(3)]
    for point in search.ask(12):
        assert min(changes(point, near) for near in best) <= 3


def test_the_walk_ends_after_patience_for_each_copy_without_a_gain():
    search = started(LFBOOptions(copies=2, patience=7, trees=5), 20)
    given = 0
    while not search.done:
        for point in search.ask(1):
            given += 1
            search.tell(Trial(point, "ok", 1000.0))
    # The first of them sets the mark that gains are measured from.
    assert given == 1 + 2 * 7


def test_a_gain_renews_patience():
    search = started(LFBOOptions(copies=1, patience=5, trees=5), 20)
    for latency_us in (1000.0, 1000.0, 1000.0, 5.0, 1000.0, 1000.0, 1000.0, 1000.0):
        (point,) = search.ask(1)
        search.tell(Trial(point, "ok", latency_us))
    assert not search.done
    (point,) = search.ask(1)
    search.tell(Trial(point, "ok", 4.999))  # less than min_delta
    assert search.done


def proposed(search, latency_us, most=1000):
    """Points asked one by one and told this latency, until the search is done."""
    given = 0
    while not search.done and given < most:
        for point in search.ask(1):
            given += 1
            search.tell(Trial(point, "ok", latency_us))
    return given


@pytest.mark.parametrize("agree", [1, 9, 40])
def test_the_walk_ends_when_model_and_measurements_agree(agree):
    search = started(LFBOOptions(agree=agree, trees=5), 20)
    assert proposed(search, 1000.0) == 1 + agree  # the first sets the mark
    assert search.done
    assert search.ask(3) == []


def test_a_search_that_goes_on_for_all_its_patience_can_be_had():
    search = started(LFBOOptions(agree=None, copies=3, patience=40, trees=5), 20)
    assert proposed(search, 1000.0) == 1 + 3 * 40


def test_a_gain_renews_the_wait_for_agreement():
    search = started(LFBOOptions(agree=6, trees=5), 20)
    for latency_us in (1000.0, *[1000.0] * 5, 5.0, *[1000.0] * 5):
        (point,) = search.ask(1)
        search.tell(Trial(point, "ok", latency_us))
    assert not search.done
    (point,) = search.ask(1)
    search.tell(Trial(point, "ok", 4.99))  # less than min_delta
    assert search.done


def test_agreement_counts_only_what_the_model_proposed():
    # Without a good trial told apart from others there is no model: all variations are random.
    search = started(LFBOOptions(agree=5, copies=1, patience=30, min_trials=1000, trees=5), 20)
    assert proposed(search, 1000.0) == 1 + 30
    search = started(LFBOOptions(agree=5, copies=1, patience=30, trees=5), 20)
    rng = np.random.default_rng(0)
    for _ in range(10):
        search.tell(Trial(plain().sample(rng), "ok", 1000.0))  # never asked for
    assert not search.done
    assert len(search.ask(3)) == 3


def test_a_search_that_agrees_waits_for_what_is_outstanding_and_heeds_it():
    search = started(LFBOOptions(agree=4, trees=5), 20)
    points = search.ask(10)
    for point in points[:6]:
        search.tell(Trial(point, "ok", 1000.0))
    assert search.ask(1) == []
    assert not search.done
    search.tell(Trial(points[6], "ok", 5.0))  # a gain after all: the walk goes on from there
    assert len(search.ask(1)) == 1


def test_the_published_walk_can_be_had(space, run):
    def asked(walk):
        search = LFBOPatternSearch(space, 0, LFBOOptions(max_trials=80, trees=5, walk=walk))
        points = []
        while not search.done:
            points += search.ask(4)
            for point in search.outstanding:
                search.tell(run(point))
        return points

    shared, copies = asked("shared"), asked("copies")
    assert len(shared) == len(copies) == 80
    assert shared != copies
    with pytest.raises(ValueError, match="option walk="):
        LFBOOptions(walk="alone")


def test_what_is_known_does_not_depend_on_the_order_of_tells(space, run):
    rng = np.random.default_rng(0)
    trials = [run(point) for point in dict.fromkeys(space.sample(rng) for _ in range(80))]
    searches = []
    for order in (range(len(trials)), rng.permutation(len(trials))):
        search = LFBOPatternSearch(space, 0, LFBOOptions(n_initial=20, trees=10))
        for at in order:
            search.tell(trials[at])
        searches.append(search)
    first, second = searches
    assert first.best == second.best
    latencies = [[trial.latency_us for trial in search.top(20)] for search in searches]
    assert latencies[0] == latencies[1]
    for search in searches:
        parents = [trial.point for trial in search.top(5)]
        search.ask(2)  # the default and the seed
        near = [min(changes(p, parent) for parent in parents) for p in search.ask(10)]
        assert max(near) <= 3


class Counted:
    """Stands in for the surrogate and keeps count of its work."""

    rows: list[int] = []
    scored: list[int] = []

    def __init__(self, features, good, weight, *, trees, random_state):
        self.rows.append(len(features))

    def score(self, features):
        self.scored.append(len(features))
        return lfbo.Scores(features[:, 0].astype(float), np.zeros((len(features), 1), np.intp))


def test_ten_thousand_trials_do_not_make_it_slow(monkeypatch):
    """By what is done, not by the clock: fits get rarer and are of bounded size, so do pools."""
    monkeypatch.setattr(lfbo, "Surrogate", Counted)
    monkeypatch.setattr(Counted, "rows", [])
    monkeypatch.setattr(Counted, "scored", [])
    search = LFBOPatternSearch(
        plain(8),
        0,
        LFBOOptions(max_trials=10_000, patience=10_000, agree=None, neighbours=60, share=0.5),
    )
    for _ in range(10_000):
        (point,) = search.ask(1)
        search.tell(Trial(point, "ok", far_us(point)))
    assert len(search.top(1)) == 1
    assert max(Counted.rows) <= search.options.max_training
    assert len(Counted.rows) < 120  # of 1,000 if every tenth result led to one
    assert max(Counted.scored) <= search.options.neighbours
    assert len(Counted.scored) < 10_000 / 10
