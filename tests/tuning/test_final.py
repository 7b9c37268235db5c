from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from lfbo_aot.database.entry import Entry
from lfbo_aot.tuning.devices.device import FinalReading
from lfbo_aot.tuning.final import PROBE_SLACK
from lfbo_aot.tuning.final import choose
from lfbo_aot.tuning.final import choose_for_bucket
from lfbo_aot.tuning.regret import LEAST
from lfbo_aot.tuning.regret import PointReadings

DEFAULT, A, B, C, D, OTHER = ({"num_warps": n} for n in (4, 1, 2, 8, 16, 32))
USES = {"shared": 1, "regs": 2, "spills": 0, "threads": 128}


def reading(config, *samples, error=""):
    return FinalReading(config, samples, USES, error)


def drifting(*pairs, noise=0.01, rounds=60, drift=0.3):
    """Readings whose rounds all drift alike, each with noise of its own."""
    rng = random.Random(7)
    rounds_us = [1.0 + drift * i / rounds for i in range(rounds)]
    return [
        reading(config, *[us * scale * rng.gauss(1.0, noise) for scale in rounds_us])
        for config, us in pairs
    ]


def test_the_fastest_wins_and_the_others_follow():
    choice = choose(drifting((DEFAULT, 20.0), (A, 15.0), (B, 10.0), (C, 12.0), (D, 30.0)), DEFAULT)
    assert choice.config == B
    assert not choice.is_default
    assert choice.alternates == (C, A, DEFAULT)
    assert choice.resources == USES
    assert choice.latency_us == pytest.approx(11.5, rel=0.02)
    assert choice.default_us == pytest.approx(23.0, rel=0.02)
    assert not choice.near_tie
    assert choice.note == ""


def test_a_gain_within_the_noise_leaves_the_default():
    choice = choose(drifting((DEFAULT, 20.0), (A, 19.99), noise=0.05), DEFAULT)
    assert choice.config == DEFAULT
    assert choice.is_default
    assert choice.latency_us == choice.default_us
    assert choice.near_tie
    assert choice.alternates == (A,)


def test_pairs_see_a_small_gain_through_a_large_drift():
    """One per cent of gain, thirty per cent of drift."""
    choice = choose(drifting((DEFAULT, 20.0), (A, 19.8), noise=0.005), DEFAULT)
    assert choice.config == A
    assert choice.spread > 0.1


def test_a_tie_below_the_clocks_resolution():
    same = [10.0] * 9
    choice = choose([reading(DEFAULT, *same), reading(A, *[9.99] * 9)], DEFAULT)
    assert choice.is_default
    choice = choose([reading(DEFAULT, *same), reading(A, *[9.9] * 9)], DEFAULT)
    assert choice.config == A
    assert choice.spread == 0.0


def test_near_ties_among_others_are_told():
    choice = choose(drifting((DEFAULT, 20.0), (A, 10.0), (B, 10.01), noise=0.02), DEFAULT)
    assert not choice.is_default
    assert choice.near_tie
    assert len(choice.alternates) == 2


def test_a_default_that_does_not_run():
    failed = reading(DEFAULT, error="compile_error: OutOfResources: shared memory")
    choice = choose([failed, *drifting((A, 12.0), (B, 10.0))], DEFAULT)
    assert choice.config == B
    assert choice.default_us is None
    assert not choice.is_default
    assert choice.alternates == (A,)
    assert choice.note == (
        "the default config doesn't run: compile_error: OutOfResources: shared memory"
    )


def test_only_the_default_runs():
    choice = choose([reading(DEFAULT, 5.0, 5.0, 5.0), reading(A, error="crash: dead")], DEFAULT)
    assert choice.is_default
    assert choice.alternates == ()
    assert not choice.near_tie
    assert choice.spread == 0.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_readings_that_are_none_do_not_count(bad):
    choice = choose([reading(DEFAULT, 5.0, 5.0), reading(A, 1.0, bad)], DEFAULT)
    assert choice.config == DEFAULT
    assert choose([reading(DEFAULT, bad)], DEFAULT) is None


def test_nothing_ran():
    assert choose([reading(DEFAULT, error="a"), reading(A, error="b")], DEFAULT) is None
    assert choose([], DEFAULT) is None


# Several points. `m` tells them apart; the first is the tuning point.


def at(m, latencies, default=DEFAULT, noise=0.0):
    """What was measured at one point: a number is a latency, a text the error."""
    timed = [(c, us) for c, us in latencies if not isinstance(us, str)]
    failed = [reading(c, error=error) for c, error in latencies if isinstance(error, str)]
    return PointReadings({"m": m}, default, drifting(*timed, noise=noise) + failed)


def probe(m, latency_us, default_us, regret):
    return {
        "shape": {"m": m},
        "latency_us": latency_us if latency_us is None else pytest.approx(1.1475 * latency_us),
        "default_us": default_us if default_us is None else pytest.approx(1.1475 * default_us),
        "regret": regret if regret is None else pytest.approx(regret, abs=1e-5),
    }


def test_the_least_worst_case_regret_wins():
    """A is the best at the tuning point, and 25 % from the best at the probe; B is 10 % at worst."""
    tuning = at(64, [(DEFAULT, 20.0), (A, 10.0), (B, 11.0), (C, 10.5)])
    low = at(1, [(DEFAULT, 20.0), (A, 15.0), (B, 12.0), (C, 14.0)])
    choice = choose_for_bucket([tuning, low])
    assert choice.config == B
    assert not choice.is_default
    assert choice.latency_us == pytest.approx(1.1475 * 11.0)
    assert choice.default_us == pytest.approx(1.1475 * 20.0)
    assert choice.probes == (probe(1, 12.0, 20.0, 0.0),)
    assert choice.alternates == (C, A, DEFAULT)
    assert choice.note == ""
    assert choose_for_bucket([tuning]).config == A
    assert choose_for_bucket([tuning]) == choose(tuning.readings, DEFAULT)


def test_what_is_slower_than_the_default_somewhere_gives_way_to_the_next_best():
    """A has the least worst regret, 12 %, and is 10 % slower than the default at the probe."""
    choice = choose_for_bucket(
        [
            at(64, [(DEFAULT, 20.0), (A, 10.0), (B, 19.0)], noise=0.005),
            at(1, [(DEFAULT, 10.0), (A, 11.0), (B, 9.8)], noise=0.005),
        ]
    )
    assert choice.config == B
    assert choice.alternates == (A, DEFAULT)


def test_the_default_wins_where_all_else_is_slower_somewhere():
    choice = choose_for_bucket(
        [
            at(64, [(DEFAULT, 20.0), (A, 10.0)]),
            at(8, [(DEFAULT, 8.0), (A, 8.0)]),
            at(1, [(DEFAULT, 5.0), (A, 5.5)]),
        ]
    )
    assert choice.is_default
    assert choice.config == DEFAULT
    assert choice.probes == (probe(8, 8.0, 8.0, 0.0), probe(1, 5.0, 5.0, 0.0))
    assert choice.alternates == (A,)


def test_slower_within_the_noise_or_five_percent_at_a_probe_is_no_reason_against():
    tuning = at(64, [(DEFAULT, 20.0), (A, 14.0)])
    assert choose_for_bucket([tuning, at(1, [(DEFAULT, 5.0), (A, 5.025)])]).config == A
    assert choose_for_bucket([tuning, at(1, [(DEFAULT, 5.0), (A, 5.249)])]).config == A
    assert choose_for_bucket([tuning, at(1, [(DEFAULT, 5.0), (A, 5.251)])]).is_default
    noisy = at(1, [(DEFAULT, 5.0), (A, 5.255)], noise=0.5)
    assert choose_for_bucket([tuning, noisy]).config == A


def test_of_default_and_config_the_one_of_less_regret_wins():
    """The default is the best at the lower end, the config elsewhere, and by more."""
    tuning = at(64, [(DEFAULT, 21.0), (A, 20.0)])
    assert choose_for_bucket([tuning, at(1, [(DEFAULT, 5.0), (A, 5.15)])]).config == A
    # No less regret, and no gain in the mean.
    assert choose_for_bucket([tuning, at(1, [(DEFAULT, 5.0), (A, 5.24)])]).is_default


def test_at_the_tuning_point_slower_beyond_the_noise_counts():
    low = at(1, [(DEFAULT, 20.0), (A, 14.0)])
    assert choose_for_bucket([at(64, [(DEFAULT, 5.0), (A, 5.009)]), low]).config == A
    assert choose_for_bucket([at(64, [(DEFAULT, 5.0), (A, 5.011)]), low]).is_default


def test_a_gain_at_one_point_is_enough():
    tuning = at(64, [(DEFAULT, 20.0), (A, 20.0)], noise=0.002)
    low = at(1, [(DEFAULT, 5.0), (A, 4.5)], noise=0.002)
    assert choose_for_bucket([tuning, low]).config == A


def test_a_mean_gain_within_the_noise_leaves_the_default():
    """A third of 0.5 % is less than the clock tells; half of it is more."""
    even = [(DEFAULT, 20.0), (A, 20.0)]
    gain = at(1, [(DEFAULT, 20.0), (A, 19.9)])
    assert choose_for_bucket([at(64, even), at(8, even), gain]).is_default
    assert choose_for_bucket([at(64, even), gain]).config == A


def test_each_point_has_a_default_of_its_own():
    """A beats the tuning point's default everywhere, but not what Helion has at the probe."""
    tuning = at(64, [(DEFAULT, 20.0), (A, 18.0)])
    low = at(1, [(OTHER, 5.0), (DEFAULT, 9.0), (A, 6.0)], default=OTHER)
    choice = choose_for_bucket([tuning, low])
    assert choice.is_default
    assert choice.config == DEFAULT
    assert choice.probes == (probe(1, 5.0, 5.0, 0.0),)
    assert choice.alternates == (A,)


def test_the_tuning_points_default_may_beat_helions_choice_elsewhere():
    """As a config for all shapes; then the entry doesn't say that it is the default."""
    tuning = at(64, [(DEFAULT, 10.0), (A, 12.0)])
    low = at(1, [(OTHER, 20.0), (DEFAULT, 12.0), (A, 11.0)], default=OTHER)
    choice = choose_for_bucket([tuning, low])
    assert choice.config == DEFAULT
    assert not choice.is_default
    assert choice.latency_us == choice.default_us
    assert choice.probes == (probe(1, 12.0, 20.0, 1 / 11),)
    assert choice.alternates == (A,)


def test_the_default_is_no_alternate_where_it_is_several_configs():
    tuning = at(64, [(DEFAULT, 20.0), (A, 10.0)])
    low = at(1, [(OTHER, 20.0), (A, 10.0)], default=OTHER)
    assert choose_for_bucket([tuning, low]).alternates == ()
    same = at(1, [(DEFAULT, 20.0), (A, 10.0)])
    assert choose_for_bucket([tuning, same]).alternates == (DEFAULT,)


def test_a_finalist_that_fails_at_a_point_is_out():
    choice = choose_for_bucket(
        [
            at(64, [(DEFAULT, 20.0), (A, 10.0), (B, 15.0)]),
            at(1, [(DEFAULT, 5.0), (A, "wrong_result: 3 of 4"), (B, 4.0)]),
        ]
    )
    assert choice.config == B
    assert choice.alternates == (DEFAULT,)
    assert choice.note == ""


def test_a_finalist_that_was_not_measured_at_a_point_is_out():
    tuning = at(64, [(DEFAULT, 20.0), (A, 10.0)])
    assert choose_for_bucket([tuning, at(1, [(DEFAULT, 5.0)])]).is_default


def test_a_default_that_fails_at_a_probe_can_not_win():
    """B is slower than the default at the tuning point, but it is the only one that runs at both."""
    tuning = at(64, [(DEFAULT, 10.0), (A, 9.0), (B, 12.0), (C, 9.5)])
    low = at(1, [(DEFAULT, "compile_error: shared memory"), (A, "crash: dead"), (B, 4.0)])
    choice = choose_for_bucket([tuning, low])
    assert choice.config == B
    assert choice.default_us == pytest.approx(1.1475 * 10.0)
    assert choice.probes == (probe(1, 4.0, None, 0.0),)
    assert choice.alternates == ()
    assert choice.note == "the default config doesn't run at m=1: compile_error: shared memory"
    # One that isn't slower where the default runs is preferred, whatever its regret elsewhere.
    low = at(1, [(DEFAULT, "compile_error: shared memory"), (B, 4.0), (C, 8.0)])
    assert choose_for_bucket([tuning, low]).config == C


def test_the_default_stays_where_everything_fails_somewhere():
    choice = choose_for_bucket(
        [
            at(64, [(DEFAULT, 20.0), (A, 10.0), (B, 10.0)]),
            at(8, [(DEFAULT, "crash: dead"), (A, 3.0), (B, "crash: dead")]),
            at(1, [(DEFAULT, 5.0), (A, "wrong_result: 3 of 4"), (B, 4.0)]),
        ]
    )
    assert choice.is_default
    assert choice.probes == (probe(8, None, None, None), probe(1, 5.0, 5.0, 0.25))
    assert choice.alternates == ()
    assert choice.note == "the default config doesn't run at m=8: crash: dead"


def test_nothing_is_chosen_where_the_default_runs_nowhere_and_all_else_fails_somewhere():
    tuning = at(64, [(DEFAULT, "compile_error: x"), (A, 10.0), (B, 11.0)])
    low = at(1, [(DEFAULT, "compile_error: x"), (A, "wrong_result: y"), (C, 3.0)])
    assert choose_for_bucket([tuning, low]) is None
    choice = choose_for_bucket([tuning, at(1, [(DEFAULT, "crash: y"), (B, 3.0)])])
    assert choice.config == B
    assert choice.default_us is None
    assert choice.note == (
        "the default config doesn't run at m=64: compile_error: x; "
        "the default config doesn't run at m=1: crash: y"
    )


def test_a_point_where_nothing_runs_tells_nothing():
    tuning = at(64, [(DEFAULT, 20.0), (A, 10.0)])
    dead = at(1, [(A, "crash: first"), (DEFAULT, "crash: dead")])
    choice = choose_for_bucket([tuning, dead, at(8, [(DEFAULT, 5.0), (A, 4.0)])])
    assert choice.config == A
    assert choice.probes == (probe(1, None, None, None), probe(8, 4.0, 5.0, 0.0))
    assert choice.note == "nothing runs at m=1: crash: dead"
    choice = choose_for_bucket([tuning, PointReadings({"m": 1, "causal": True}, DEFAULT, [])])
    assert choice.note == "nothing runs at m=1 causal=true: no reading"
    assert choose_for_bucket([dead, tuning]) is None
    assert choose_for_bucket([]) is None


def test_a_tie_is_one_at_all_points():
    tuning = at(64, [(DEFAULT, 20.0), (A, 10.0), (B, 10.01)], noise=0.005)
    apart = at(1, [(DEFAULT, 20.0), (A, 10.0), (B, 12.0)], noise=0.005)
    close = at(1, [(DEFAULT, 20.0), (A, 10.0), (B, 10.01)], noise=0.005)
    assert choose_for_bucket([tuning, close]).near_tie
    assert not choose_for_bucket([tuning, apart]).near_tie


def test_an_entry_takes_the_probes():
    points = [at(64, [(DEFAULT, 20.0), (A, 10.0)]), at(1, [(DEFAULT, "x"), (A, 10.0)]), at(2, [])]
    choice = choose_for_bucket(points)
    entry = Entry(
        config=choice.config,
        latency_us=choice.latency_us,
        default_us=choice.default_us,
        source="sha256:0",
        space="sha256:0",
        measured="2026-12-01",
        probes=choice.probes,
    )
    assert Entry.from_json(entry.to_json()).to_json()["probes"] == [
        {"shape": {"m": 1}, "latency_us": 11.475, "default_us": None, "regret": 0.0},
        {"shape": {"m": 2}, "latency_us": None, "default_us": None, "regret": None},
    ]


LATENCY_US = st.floats(1.0, 4.0) | st.sampled_from([1.0, 2.0, 2.002])


@settings(deadline=None)
@given(st.lists(st.tuples(LATENCY_US, LATENCY_US, LATENCY_US), min_size=1, max_size=3))
def test_not_slower_than_the_default_and_of_those_the_least_regret(table):
    """Without noise, and with a default that runs everywhere."""
    configs = (DEFAULT, A, B)
    points = [
        PointReadings(
            {"m": m}, DEFAULT, [reading(c, us) for c, us in zip(configs, row, strict=True)]
        )
        for m, row in enumerate(table)
    ]
    choice = choose_for_bucket(points)
    columns = list(zip(*table, strict=True))
    worst = [max(us / min(row) for us, row in zip(ours, table, strict=True)) for ours in columns]
    allowed = [LEAST] + [PROBE_SLACK] * (len(table) - 1)
    slower = [
        any(us / d - 1.0 > most for us, d, most in zip(ours, columns[0], allowed, strict=True))
        for ours in columns
    ]
    won = configs.index(choice.config)
    assert not slower[won]
    least = min(w for w, s in zip(worst, slower, strict=True) if not s)
    if choice.is_default:
        best = columns[worst.index(least)]
        gains = [1.0 - us / default for us, default in zip(best, columns[0], strict=True)]
        assert worst[0] == pytest.approx(least) or sum(gains) / len(gains) <= LEAST + 1e-9
    else:
        assert worst[won] == pytest.approx(least)
