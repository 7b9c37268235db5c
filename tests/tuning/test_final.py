from __future__ import annotations

import math
import random

import pytest

from lfbo_aot.tuning.devices.device import FinalReading
from lfbo_aot.tuning.final import choose

DEFAULT, A, B, C, D = ({"num_warps": n} for n in (4, 1, 2, 8, 16))
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
