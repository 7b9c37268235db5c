from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lfbo_aot.search import Choice
from lfbo_aot.search import Integer
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import PatternSearch
from lfbo_aot.search import Peer
from lfbo_aot.search import RandomSearch
from lfbo_aot.search import Space
from lfbo_aot.search import Trial
from lfbo_aot.search import lfbo
from lfbo_aot.search.peers import NEAREST
from lfbo_aot.search.peers import experience

QUICK = LFBOOptions(max_trials=120, trees=20, neighbours=100)


def plain(high=15, width=6) -> Space:
    return Space(tuple(Integer(f"i{at}", 0, high, 0) for at in range(width)), (0,) * width)


def far_us(point, centre=11):
    return 10.0 + sum(abs(value - centre) for value in point)


def sampled(count, seed=0, space=None, centre=11):
    """Trials of random points of a space, fastest near the centre."""
    space = space or plain()
    rng = np.random.default_rng(seed)
    points = dict.fromkeys(space.sample(rng) for _ in range(count))
    return tuple(Trial(point, "ok", far_us(point, centre)) for point in points)


def searched(count=200, seed=0):
    """The trials of a search of the plain space."""
    search = LFBOPatternSearch(plain(), seed, replace(QUICK, max_trials=count))
    trials = []
    while not search.done:
        for point in search.ask(4):
            trials.append(Trial(point, "ok", far_us(point)))
            search.tell(trials[-1])
    return tuple(trials)


def of(peers, space=None, context=(), **options):
    return experience(
        space or plain(), context, peers, LFBOOptions(**options), np.random.default_rng(0)
    )


def asked(search, run, each=4):
    points = []
    while not search.done:
        found = search.ask(each)
        points += found
        for point in found:
            search.tell(run(point))
    return points


def test_the_start_tries_what_the_peers_make_look_good():
    peer = Peer((), searched())
    search = LFBOPatternSearch(plain(), 1, QUICK, peers=[peer])
    first = search.ask(15)
    assert first[0] == plain().default
    best = {trial.point for trial in sorted(peer.trials, key=lambda t: t.latency_us)[:5]}
    assert best & set(first)
    led = sorted(far_us(point) for point in first[1:])
    assert led[10] < 25.0  # all but a few random ones
    alone = sorted(far_us(point) for point in LFBOPatternSearch(plain(), 1, QUICK).ask(15)[1:])
    assert alone[0] > 25.0


def test_now_and_then_the_start_is_random():
    search = LFBOPatternSearch(plain(), 0, QUICK, peers=[Peer((), searched())])
    slow = sum(far_us(point) > 30.0 for point in search.ask(21)[1:])
    assert 2 <= slow <= 6


def test_the_default_and_the_seeds_still_come_first(space, run):
    rng = np.random.default_rng(0)
    trials = [run(point) for point in dict.fromkeys(space.sample(rng) for _ in range(60))]
    search = LFBOPatternSearch(space, 0, QUICK, peers=[Peer((), tuple(trials))])
    assert search.ask(2) == [space.default, *space.seeds]


def test_a_search_with_peers_gets_there_sooner():
    def trials_to(latency_us, search):
        made = 0
        while search.best is None or search.best.latency_us > latency_us:
            for point in search.ask(4):
                made += 1
                search.tell(Trial(point, "ok", far_us(point, centre=10)))
        return made

    options = replace(QUICK, max_trials=400, agree=None)
    peers = [Peer((1.0,), searched())]
    with_peers, alone = (
        [
            trials_to(13.0, LFBOPatternSearch(plain(), seed, options, context=(2.0,), peers=given))
            for seed in range(3)
        ]
        for given in (peers, [])
    )
    assert sum(with_peers) < 0.7 * sum(alone)


def test_misleading_peers_are_overcome():
    """The peers' best is this bucket's worst; its own trials win in the end."""
    peers = [Peer((float(at),), sampled(300, at, centre=2)) for at in range(4)]
    options = replace(QUICK, max_trials=250)
    search = LFBOPatternSearch(plain(), 0, options, context=(9.0,), peers=peers)
    asked(search, lambda point: Trial(point, "ok", far_us(point, centre=12)))
    assert search.best.latency_us <= 14.0


def test_the_same_calls_give_the_same_points_with_peers_too(space, run):
    rng = np.random.default_rng(3)
    trials = tuple(run(point) for point in dict.fromkeys(space.sample(rng) for _ in range(700)))

    def points(seed, *, peers):
        return asked(LFBOPatternSearch(space, seed, QUICK, context=(4.0, 1.0), peers=peers), run)

    peers = [Peer((5.0, 1.0), trials)]
    assert points(3, peers=peers) == points(3, peers=peers)
    assert points(3, peers=peers) != points(3, peers=[])
    assert points(3, peers=peers) != points(4, peers=peers)


def test_without_peers_a_context_changes_nothing(space, run):
    with_context = LFBOPatternSearch(space, 5, QUICK, context=(12.0, 11.0))
    assert asked(with_context, run) == asked(LFBOPatternSearch(space, 5, QUICK), run)


@pytest.mark.parametrize("make", [PatternSearch, RandomSearch], ids=lambda make: make.__name__)
def test_searches_that_can_not_learn_from_peers_ignore_them(make, space, run):
    peers = [Peer((1.0,), tuple(run(seed) for seed in space.seeds))]
    search = make(space, 2, QUICK, context=(3.0,), peers=peers)
    assert asked(search, run) == asked(make(space, 2, QUICK), run)


def test_points_that_the_space_does_not_have_are_left_out():
    wide = sampled(300, space=plain(high=17), centre=14)
    kept = [trial for trial in wide if max(trial.point) <= 15]
    found = of([Peer((), wide)])
    assert 100 < len(kept) == len(found.good) < len(wide)
    assert {max(point) for point in found.best} <= set(range(16))
    assert found.features.max() <= 15
    # The best tenth of those that are left is good.
    fastest = sorted(kept, key=lambda trial: trial.latency_us)[: int(found.good.sum())]
    good = {tuple(map(int, row)) for row in found.features[found.good]}
    assert {trial.point for trial in fastest} == good


def test_a_peer_of_other_tunables_says_nothing():
    other = Space((Choice("c", ("x", "y"), "x"),), ("x",))
    trials = tuple(Trial((value,), "ok", 5.0) for value in ("x", "y"))
    assert of([Peer((), trials)]) is None
    assert of([Peer((), sampled(100))], space=other) is None
    search = LFBOPatternSearch(other, 0, QUICK, peers=[Peer((), sampled(100))])
    assert asked(search, lambda point: Trial(point, "ok", 1.0)) == [("x",), ("y",)]


def test_good_is_relative_to_each_bucket():
    slow = tuple(replace(t, latency_us=1000.0 * t.latency_us) for t in sampled(100, 1))
    found = of([Peer((1.0,), sampled(100, 0)), Peer((2.0,), slow)], context=(0.0,))
    for context in (1.0, 2.0):
        assert 10 <= found.good[found.features[:, -1] == context].sum() <= 13


def test_each_peer_weighs_the_same_and_all_together_one():
    found = of([Peer((1.0,), sampled(100, 0)), Peer((2.0,), sampled(400, 1))], context=(0.0,))
    shares = [found.weight[found.features[:, -1] == context].sum() for context in (1.0, 2.0)]
    assert shares == pytest.approx([0.5, 0.5])


def test_the_best_points_of_each_peer_go_first_nearer_peers_before_others():
    peers = [Peer((5.0,), sampled(50, 1)), Peer((1.0,), sampled(50, 2))]
    found = of(peers, context=(0.0,), copies=2)
    best = [sorted(peer.trials, key=lambda t: t.latency_us)[:2] for peer in peers]
    (far, far2), (near, near2) = best
    assert found.best == (near.point, far.point, near2.point, far2.point)


def test_failures_and_cut_readings_of_peers_are_not_good_and_lead_nowhere():
    trials = list(sampled(60))
    fastest = sorted(range(60), key=lambda at: trials[at].latency_us)
    trials[fastest[0]] = Trial(trials[fastest[0]].point, "crash")
    trials[fastest[1]] = replace(trials[fastest[1]], cut=True)
    trials[fastest[2]] = Trial(trials[fastest[2]].point, "duplicate", 1.0)
    found = of([Peer((), tuple(trials))])
    good = {tuple(map(int, row)) for row in found.features[found.good]}
    spoilt = {trials[at].point for at in fastest[:3]}
    assert not spoilt & good
    assert not spoilt & set(found.best)
    assert len(found.good) == 59  # a duplicate says nothing new


def test_only_the_nearest_peers_are_looked_at_and_rows_are_bounded():
    peers = [Peer((float(at),), sampled(100, at)) for at in range(NEAREST + 4)]
    found = of(peers, context=(0.0,), max_training=800)
    assert set(found.features[:, -1]) == set(range(NEAREST))
    assert len(found.good) == 200  # a quarter
    assert len(found.best) == 5 * NEAREST


def test_the_fit_stays_bounded_and_own_trials_are_not_drowned(monkeypatch):
    fits = []

    class Seen(lfbo.Surrogate):
        def __init__(self, features, good, weight, **rest):
            fits.append((features, good, weight))
            super().__init__(features, good, weight, **rest)

    monkeypatch.setattr(lfbo, "Surrogate", Seen)
    options = LFBOOptions(
        max_training=200, trees=3, max_trials=400, agree=None, patience=400, neighbours=40
    )
    peers = [Peer((float(at),), sampled(300, at)) for at in range(1, 5)]
    search = LFBOPatternSearch(plain(), 0, options, context=(0.0,), peers=peers)
    assert len(asked(search, lambda point: Trial(point, "ok", far_us(point)))) == 400
    assert max(len(good) for _, good, _ in fits) == 200
    assert {features.shape[1] for features, _, _ in fits} == {7}
    for features, _, weight in fits:
        own = features[:, -1] == 0.0
        assert weight[~own].sum() == pytest.approx(options.peer_weight)
    assert weight[own].sum() == pytest.approx(400, rel=0.05)


def test_before_own_trials_can_be_labelled_their_failures_count(monkeypatch):
    fits = []

    class Seen(lfbo.Surrogate):
        def __init__(self, features, good, weight, **rest):
            fits.append((features, good))
            super().__init__(features, good, weight, **rest)

    monkeypatch.setattr(lfbo, "Surrogate", Seen)
    options = replace(QUICK, refit_every=2)
    search = LFBOPatternSearch(
        plain(), 0, options, context=(0.0,), peers=[Peer((1.0,), searched())]
    )
    points = search.ask(6)
    for point in points[:4]:
        search.tell(Trial(point, "compile_timeout"))
    search.tell(Trial(points[4], "ok", 50.0))
    search.ask(2)
    features, good = fits[-1]
    own = features[:, -1] == 0.0
    assert {tuple(map(int, row[:-1])) for row in features[own]} == set(points[:4])
    assert not good[own].any()


@pytest.mark.parametrize("context", [(math.nan,), (math.inf, 1.0)])
def test_a_context_is_finite(context):
    with pytest.raises(ValueError, match="finite"):
        Peer(context, ())
    with pytest.raises(ValueError, match="finite"):
        RandomSearch(plain(), 0, context=context)


def test_contexts_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="2 numbers, that of the search 1"):
        LFBOPatternSearch(plain(), 0, context=(1.0,), peers=[Peer((1.0, 2.0), ())])


def test_peers_without_a_trial_are_as_none(space, run):
    search = LFBOPatternSearch(space, 5, QUICK, peers=[Peer((), ())])
    assert asked(search, run) == asked(LFBOPatternSearch(space, 5, QUICK), run)
