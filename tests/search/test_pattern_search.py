from __future__ import annotations

import numpy as np
import pytest

from lfbo_aot.search import Choice
from lfbo_aot.search import Integer
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import PatternSearch
from lfbo_aot.search import RandomSearch
from lfbo_aot.search import Space
from lfbo_aot.search import Trial
from lfbo_aot.search.copies import Copy

STEP = {"min_delta": 0.01}


def test_a_copy_moves_to_what_is_faster_and_ends_after_patience():
    copy = Copy.at("a", 100.0)
    copy.told("b", 90.0, epoch=0, **STEP)
    assert (copy.point, copy.latency_us, copy.anchor_us, copy.epoch) == ("b", 90.0, 90.0, 1)
    copy.told("c", 95.0, epoch=1, **STEP)
    copy.told("d", None, epoch=1, **STEP)
    assert (copy.point, copy.stale) == ("b", 2)
    assert copy.live(3)
    assert not copy.live(2)


def test_results_of_a_point_left_behind_do_not_count():
    copy = Copy.at("a", 100.0)
    copy.told("b", 90.0, epoch=0, **STEP)
    copy.told("c", 95.0, epoch=0, **STEP)
    assert copy.stale == 0
    copy.told("d", 80.0, epoch=0, **STEP)  # but a gain is a gain
    assert (copy.point, copy.epoch) == ("d", 2)


def test_small_improvements_move_a_copy_and_add_up_to_a_gain():
    copy = Copy.at("a", 100.0)
    copy.told("b", 99.5, epoch=0, **STEP)
    assert (copy.point, copy.epoch, copy.stale) == ("b", 0, 1)
    copy.told("c", 98.9, epoch=0, **STEP)
    assert (copy.point, copy.epoch, copy.stale) == ("c", 1, 0)


def test_a_late_gain_revives_a_copy():
    copy = Copy.at("a", 100.0)
    copy.told("b", 101.0, epoch=0, **STEP)
    assert not copy.live(1)
    copy.told("c", 90.0, epoch=0, **STEP)
    assert copy.live(1)


def plain(width=6) -> Space:
    return Space(tuple(Integer(f"i{at}", 0, 15, 0) for at in range(width)), (0,) * width)


def far_us(point):
    return 10.0 + sum(abs(value - 11) for value in point)


def test_the_search_ends_when_every_copy_has():
    options = LFBOOptions(n_initial=10, copies=2, patience=6)
    search = PatternSearch(plain(), 0, options)
    start = search.ask(10)
    for point in start:
        search.tell(Trial(point, "ok", far_us(point)))
    given = []
    while not search.done:
        (point,) = search.ask(1)
        given.append(point)
        search.tell(Trial(point, "ok", 1000.0))
    assert len(given) == 2 * 6  # no gain anywhere: patience of each copy


def test_the_copies_take_turns_around_the_best_points():
    search = PatternSearch(plain(), 0, LFBOOptions(n_initial=30, copies=3))
    for point in search.ask(30):
        search.tell(Trial(point, "ok", far_us(point)))
    best = [trial.point for trial in search.top(3)]
    given = search.ask(9)
    for at, point in enumerate(given):
        moved = [abs(a - b) for a, b in zip(point, best[at % 3], strict=True)]
        assert sum(moved) <= 2
        assert max(moved) == 1


def test_a_fast_result_told_late_takes_over_the_slowest_copy():
    search = PatternSearch(plain(), 0, LFBOOptions(n_initial=10, copies=2))
    start = search.ask(10)
    for point in start[:8]:
        search.tell(Trial(point, "ok", far_us(point)))
    search.ask(4)
    search.tell(Trial(start[8], "ok", 1.0))
    search.tell(Trial(start[9], "ok", 1000.0))
    points = [copy.point for copy in search._copies]
    assert start[8] in points
    assert search.top(2)[1].point in points
    assert start[9] not in points


def test_copies_that_were_missing_are_added_as_points_succeed():
    search = PatternSearch(plain(), 0, LFBOOptions(n_initial=4, copies=3))
    start = search.ask(4)
    for point in start[:3]:
        search.tell(Trial(point, "crash"))
    search.tell(Trial(start[3], "ok", 50.0))
    search.ask(2)
    assert [copy.point for copy in search._copies] == [start[3]]
    (point,) = ((4, 4, 4, 4, 4, 4),)
    search.tell(Trial(point, "ok", 70.0))
    assert [copy.point for copy in search._copies] == [start[3], point]


def test_cut_readings_and_duplicates_are_no_gain():
    search = PatternSearch(plain(), 0, LFBOOptions(n_initial=5, copies=1))
    for point in search.ask(5):
        search.tell(Trial(point, "ok", 50.0 + far_us(point)))
    a, b = search.ask(2)
    before = search._copies[0].point
    search.tell(Trial(a, "ok", 1.0, cut=True))
    search.tell(Trial(b, "duplicate", 1.0))
    assert search._copies[0].point == before
    assert search._copies[0].stale == 2


def started(options, seed=0, count=100):
    search = LFBOPatternSearch(plain(), seed, options)
    for point in search.ask(count):
        search.tell(Trial(point, "ok", far_us(point)))
    return search


def spread(points):
    """The mean number of tunables in which two of the points differ."""
    grid = np.array(points)
    return (grid[:, None, :] != grid[None, :, :]).sum(axis=2).mean()


def test_a_batch_is_more_varied_with_diversity():
    varied, alike = (
        np.mean(
            [
                spread(started(LFBOOptions(copies=1, diversity=price), seed).ask(12))
                for seed in range(4)
            ]
        )
        for price in (1.0, 0.0)
    )
    assert varied > alike * 1.03


def test_proposals_are_likelier_to_be_good_than_their_neighbourhood():
    gains = []
    for seed in range(5):
        search = started(LFBOOptions(copies=1, diversity=0.0, n_initial=300), seed, 300)
        chosen = search.ask(20)
        generator = np.random.default_rng(0)
        around = search.space.neighbours(search.best.point, generator, 2, 300)
        gains.append(np.mean([far_us(p) for p in around]) - np.mean([far_us(p) for p in chosen]))
    assert min(gains) > 0.2
    assert np.mean(gains) > 0.6


def test_refits_happen_in_ask_and_only_after_enough_results():
    search = started(LFBOOptions(refit_every=8, refit_growth=0.0, trees=5))
    assert search._fits == 0
    search.ask(1)
    assert search._fits == 1
    waiting = search.ask(20)
    for count, point in enumerate(waiting, 1):
        search.tell(Trial(point, "ok", far_us(point)))
        assert search._fits == 1 + (count - 1) // 8
        search.ask(1)
    assert search._fits == 1 + 20 // 8


def test_a_long_search_refits_less_often():
    search = started(
        LFBOOptions(refit_every=1, refit_growth=0.1, trees=5, patience=10_000, agree=None)
    )
    fits = []
    for _ in range(300):
        (point,) = search.ask(1)
        fits.append(search._fits)
        search.tell(Trial(point, "ok", far_us(point)))
    assert fits[0] == 1
    assert 12 <= fits[-1] <= 16  # 100 x 1.1**15 = 418


class NoEvens:
    """A failure model that holds even first values for sure to fail."""

    def __init__(self):
        self.rows = 0

    def fit(self, features, failed, random_state):
        self.rows = len(features)
        assert failed.sum() == 3

    def probability(self, features):
        return (features[:, 0] % 2 == 0).astype(float)


def test_a_failure_model_can_be_put_in():
    model = NoEvens()
    search = LFBOPatternSearch(
        plain(), 0, LFBOOptions(copies=1, diversity=0.0), failure_model=model
    )
    for at, point in enumerate(search.ask(100)):
        failed = at in (5, 6, 7)
        search.tell(Trial(point, "crash") if failed else Trial(point, "ok", far_us(point)))
    chosen = search.ask(10)
    assert model.rows == 100
    assert all(point[0] % 2 == 1 for point in chosen)


def best_after(make, space, run, seed, trials=150):
    search = make(
        space, seed, LFBOOptions(max_trials=trials, patience=trials, agree=None, trees=40)
    )
    while not search.done:
        for point in search.ask(8):
            search.tell(run(point))
    return search.best.latency_us


def test_lfbo_beats_pattern_search_beats_random_search(space, run):
    found = {
        make: np.array([best_after(make, space, run, seed) for seed in range(6)])
        for make in (LFBOPatternSearch, PatternSearch, RandomSearch)
    }
    lfbo, pattern, random = (np.log(values / 10.0).mean() for values in found.values())
    assert lfbo < 0.7 * pattern
    assert pattern < 0.8 * random
    assert (found[LFBOPatternSearch] < found[RandomSearch]).all()


@pytest.mark.parametrize(
    "variant",
    [
        {"weights": "raw_gap"},
        {"weights": "none"},
        {"negatives": "all"},
        {"diversity": 0.0},
        {"max_training": 60},
        {"min_good": 15},
    ],
    ids=lambda variant: "-".join(f"{key}={value}" for key, value in variant.items()),
)
def test_every_variant_runs_and_chooses_otherwise(variant, space, run):
    def asked(**options):
        search = LFBOPatternSearch(space, 0, LFBOOptions(max_trials=120, trees=20, **options))
        points = []
        while not search.done:
            points += search.ask(4)
            for point in search.outstanding:
                search.tell(run(point))
        return points

    plainly, varied = asked(), asked(**variant)
    assert len(varied) == 120
    assert plainly[:15] == varied[:15]
    assert plainly != varied


def test_values_of_mixed_types_survive_a_search():
    space = Space(
        (Choice("a", (None, 32, "x", 0.5, True), None), Choice("b", ((1, 2), ()), ())), (None, ())
    )
    search = PatternSearch(space, 0)
    points = search.ask(20)
    assert len(points) == 10
    assert points[0] == (None, ())
