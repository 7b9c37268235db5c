from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import lfbo_aot.search
from lfbo_aot.search import Choice
from lfbo_aot.search import Condition
from lfbo_aot.search import Integer
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import Optimizer
from lfbo_aot.search import PatternSearch
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import RandomSearch
from lfbo_aot.search import Space
from lfbo_aot.search import Trial

SEARCHES = [LFBOPatternSearch, PatternSearch, RandomSearch]
QUICK = LFBOOptions(max_trials=120, trees=10, neighbours=60)
each_search = pytest.mark.parametrize("make", SEARCHES, ids=lambda make: make.__name__)


def drive(search, run, *, shuffle=None, most=10_000):
    """Ask and tell until done, at random times and in random order if `shuffle` is a generator."""
    asked, waiting = [], []
    while not search.done and len(asked) < most:
        wanted = 1 if shuffle is None else int(shuffle.integers(0, 6))
        points = search.ask(wanted)
        assert len(points) <= wanted
        asked += points
        waiting += points
        if not points and not waiting and wanted:
            assert search.done
            break
        for _ in range(len(waiting) if shuffle is None else int(shuffle.integers(0, 6))):
            if waiting:
                at = 0 if shuffle is None else int(shuffle.integers(len(waiting)))
                search.tell(run(waiting.pop(at)))
    return asked


def line(low=0, high=99) -> Space:
    return Space((Integer("i", low, high, low),), (low,))


@each_search
def test_every_search_is_an_optimizer(make, space):
    search = make(space, 0, QUICK)
    assert isinstance(search, Optimizer)
    assert search.best is None
    assert search.top(3) == []
    assert not search.done
    assert search.ask(0) == []


@each_search
def test_the_default_and_the_seeds_come_first(make, space):
    assert make(space, 0).ask(2) == [space.default, *space.seeds]


@each_search
@pytest.mark.parametrize("seed", range(3))
def test_no_point_is_asked_twice(make, seed, space, run):
    shuffle = np.random.default_rng(seed)
    asked = drive(make(space, seed, QUICK), run, shuffle=shuffle)
    assert len(asked) == len(set(asked))
    assert all(space.canonical(point) == point for point in asked)


@each_search
def test_points_that_differ_only_in_inactive_tunables_are_one(make):
    tunables = (Choice("mode", ("a", "b"), "a"), Integer("depth", 0, 9, 0))
    space = Space(tunables, ("a", 0), (Condition("depth", "mode", ("b",)),))
    asked = drive(make(space), lambda p: Trial(p, "ok", 5.0 + p[1]))
    assert len(asked) == len(set(asked))
    assert sum(point[0] == "a" for point in asked) == 1
    assert len(asked) <= 11


@each_search
def test_a_replay_gives_the_same_points(make, space, run):
    first = drive(make(space, 7, QUICK), run, shuffle=np.random.default_rng(1))
    again = drive(make(space, 7, QUICK), run, shuffle=np.random.default_rng(1))
    other = drive(make(space, 8, QUICK), run, shuffle=np.random.default_rng(1))
    assert first == again
    assert first != other


SCRIPT = """
import hashlib, runpy, sys
names = runpy.run_path(sys.argv[1])
from lfbo_aot.search import *
search = LFBOPatternSearch(names["tile_space"](), 3, LFBOOptions(max_trials=90, n_initial=30, trees=10))
asked = []
while not search.done:
    points = search.ask(4)
    asked += points
    for point in reversed(points):
        search.tell(names["run_tile"](point))
print(len(asked), hashlib.sha256(repr(asked).encode()).hexdigest())
"""


def test_a_replay_in_another_process_gives_the_same_points():
    root = Path(lfbo_aot.search.__file__).resolve().parents[2]
    conftest = Path(__file__).with_name("conftest.py")
    printed = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(conftest)],
            env={"PYTHONHASHSEED": hashseed, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashseed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert printed[0].startswith("90 ")


@each_search
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_tells_in_any_order_end_in_a_valid_state(make, seed):
    space = Space(
        (
            PowerOfTwo("b", 1, 64, 8, "block"),
            PowerOfTwo("w", 1, 8, 4, "warps"),
            Integer("s", 0, 9, 0),
        ),
        (8, 4, 0),
    )

    def run(point):
        if point[2] == 5:
            return Trial(point, "timeout")
        if point[2] == 6:
            return Trial(point, "duplicate", 1.0)
        return Trial(
            point, "ok", 10.0 + abs(point[0] - 16) + point[1] + point[2], cut=point[2] == 7
        )

    told = []

    def tell(point):
        told.append(run(point))
        return told[-1]

    options = LFBOOptions(n_initial=20, trees=5, patience=8, neighbours=40, refit_every=5)
    search = make(space, seed, options)
    asked = drive(search, tell, shuffle=np.random.default_rng(seed))
    assert search.done
    assert search.ask(5) == []
    assert search.outstanding == ()
    assert {trial.point for trial in told} == set(asked)
    timed = sorted((t for t in told if t.status == "ok" and not t.cut), key=lambda t: t.latency_us)
    assert search.best.latency_us == timed[0].latency_us
    assert [t.latency_us for t in search.top(7)] == [t.latency_us for t in timed[:7]]
    assert search.top(1) == [search.best]


@each_search
def test_points_outstanding_are_known_in_order(make, space, run):
    search = make(space, 0)
    points = search.ask(4)
    search.tell(run(points[1]))
    assert search.outstanding == (points[0], *points[2:])


@each_search
def test_asking_never_waits(make, space, run):
    search = make(space, 0, LFBOOptions(n_initial=20, trees=10, neighbours=60))
    asked = search.ask(50)
    assert len(asked) == 50  # nothing told yet: random ones go on
    for point in asked[:30]:
        search.tell(run(point))
    asked += search.ask(100)
    assert len(asked) == len(set(asked)) == 150


@each_search
def test_a_start_without_success_goes_on_at_random_until_one_succeeds(make, space, run):
    search = make(space, 0, LFBOOptions(max_trials=200, n_initial=20, trees=10))
    for _ in range(60):
        (point,) = search.ask(1)
        search.tell(Trial(point, "compile_error"))
    assert not search.done
    assert search.best is None
    (point,) = search.ask(1)
    search.tell(Trial(point, "ok", 100.0))
    assert search.best.point == point
    assert len(drive(search, run)) > 0
    assert search.done


@each_search
def test_a_search_where_nothing_works_gives_up(make, space):
    search = make(space, 0, LFBOOptions(max_failures=40))
    asked = drive(search, lambda point: Trial(point, "crash"))
    assert len(asked) == 40
    assert search.done
    assert search.best is None


@each_search
def test_a_space_of_one_point_ends_after_it(make):
    for space in (Space((), ()), Space((PowerOfTwo("b", 8, 8, 8, "block"),), (8,))):
        search = make(space)
        assert search.ask(5) == [space.default]
        assert not search.done
        assert search.ask(5) == []
        search.tell(Trial(space.default, "ok", 1.0))
        assert search.done
        assert search.ask(5) == []
        assert search.best == Trial(space.default, "ok", 1.0)


@each_search
def test_a_space_of_one_point_that_fails_ends_too(make):
    search = make(Space((), ()))
    search.ask(1)
    search.tell(Trial((), "invalid"))
    assert search.done


@each_search
def test_a_small_space_is_tried_whole_and_no_more(make):
    options = LFBOOptions(n_initial=100)  # pattern search by itself sees no further than its copies
    asked = drive(make(line(0, 30), 0, options), lambda p: Trial(p, "ok", 1.0 + p[0]))
    assert sorted(asked) == [(i,) for i in range(31)]


@each_search
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_the_budget_is_kept(make, at_once, space, run):
    search = make(space, 0, LFBOOptions(max_trials=25, trees=5))
    asked = []
    while not search.done:
        points = search.ask(at_once)
        asked += points
        for point in points:
            search.tell(run(point))
    assert len(asked) == 25


@each_search
def test_done_waits_for_what_is_outstanding(make, space, run):
    search = make(space, 0, LFBOOptions(max_trials=3))
    points = search.ask(5)
    assert len(points) == 3
    for point in points:
        assert not search.done
        assert search.ask(1) == []
        search.tell(run(point))
    assert search.done


@each_search
def test_points_told_unasked_count_as_known(make, space, run):
    generator = np.random.default_rng(0)
    warm = list({space.sample(generator): None for _ in range(40)})
    search = make(space, 0, LFBOOptions(n_initial=40, max_trials=60, trees=10))
    for point in [space.default, *warm]:
        search.tell(run(point))
    assert search.best is not None
    asked = drive(search, run)
    assert not {space.default, *warm} & set(asked)
    assert len(asked) == 60  # what was told unasked doesn't use up the budget
    assert asked[0] == space.seeds[0]


def test_points_told_unasked_spare_the_random_start(space, run):
    generator = np.random.default_rng(0)
    warm = {space.sample(generator): None for _ in range(60)}
    search = PatternSearch(space, 0, LFBOOptions(n_initial=40))
    for point in warm:
        search.tell(run(point))
    best = search.best.point
    search.ask(2)
    (near,) = search.ask(1)
    assert near in space.neighbours(best, np.random.default_rng(0), 2, 20_000)


@each_search
def test_points_are_told_in_any_spelling_but_must_fit(make, space):
    search = make(space)
    point = [*space.default[:-2], list(space.default[-2]), list(space.default[-1])]
    point[5] = 32  # inactive while pid is flat
    search.tell(Trial(tuple(point), "ok", 5.0))
    assert search.best.point == space.default
    with pytest.raises(ValueError, match="block_m"):
        search.tell(Trial((3, *space.default[1:]), "ok", 5.0))


@each_search
def test_a_later_reading_of_a_point_stands(make, space, run):
    search = make(space)
    a, b = search.ask(2)
    search.tell(Trial(a, "ok", 10.0))
    search.tell(Trial(b, "ok", 12.0))
    search.tell(Trial(a, "ok", 15.0))
    assert search.best == Trial(b, "ok", 12.0)
    assert [t.latency_us for t in search.top(5)] == [12.0, 15.0]
    search.tell(Trial(b, "wrong_result"))
    assert [t.latency_us for t in search.top(5)] == [15.0]


def test_cut_readings_and_duplicates_are_no_winners(space):
    search = RandomSearch(space)
    a, b, c = search.ask(3)
    search.tell(Trial(a, "ok", 1.0, cut=True))
    search.tell(Trial(b, "duplicate", 2.0))
    assert search.best is None
    search.tell(Trial(c, "ok", 9.0))
    assert search.top(3) == [Trial(c, "ok", 9.0)]
