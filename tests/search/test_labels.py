from __future__ import annotations

import math

import numpy as np
import pytest

from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import Trial
from lfbo_aot.search.labels import label
from lfbo_aot.search.labels import training_set

# 21 readings, 10 to 30 us; the 10 % quantile is the third one.
TWENTY_ONE = np.arange(10.0, 31.0)


def labels_of(latency_us, cut=(), **options):
    latency_us = np.asarray(latency_us, dtype=float)
    flags = np.zeros(len(latency_us), dtype=bool)
    flags[list(cut)] = True
    return label(latency_us, flags, LFBOOptions(**options))


def test_the_best_tenth_is_good():
    found = labels_of(TWENTY_ONE)
    assert found.threshold_us == 12.0
    assert found.good.nonzero()[0].tolist() == [0, 1, 2]


def test_log_gaps_are_scaled_to_mean_one():
    weight = labels_of(TWENTY_ONE).weight
    gaps = [math.log(12 / 10), math.log(12 / 11), 0.0]
    assert weight[:3] == pytest.approx([3 * gap / sum(gaps) for gap in gaps])
    assert weight[:3].mean() == pytest.approx(1.0)
    assert weight[3:].tolist() == [1.0] * 18


def test_raw_gaps_and_no_weights():
    assert labels_of(TWENTY_ONE, weights="raw_gap").weight[:3].tolist() == [2.0, 1.0, 0.0]
    assert labels_of(TWENTY_ONE, weights="none").weight.tolist() == [1.0] * 21


def test_weights_do_not_depend_on_the_unit():
    for weights in ("log_gap", "raw_gap"):
        micro = labels_of(TWENTY_ONE, weights=weights).weight
        milli = labels_of(TWENTY_ONE / 1000, weights=weights).weight
        assert micro == pytest.approx(milli)


def test_failures_are_never_good_and_do_not_move_the_threshold():
    failed = np.concatenate([[np.nan] * 30, TWENTY_ONE, [np.nan] * 9])
    found = labels_of(failed)
    assert found.threshold_us == 12.0
    assert found.good.nonzero()[0].tolist() == [30, 31, 32]
    assert found.weight[:30].tolist() == [1.0] * 30


def test_a_reading_cut_short_is_never_good():
    found = labels_of(TWENTY_ONE, cut=[0])
    assert found.good.nonzero()[0].tolist() == [1, 2]
    assert found.weight[:3] == pytest.approx([1.0, 2.0, 0.0])


@pytest.mark.parametrize("readings", [0, 1, 14])
def test_too_few_readings_give_no_labels(readings):
    assert labels_of([*np.arange(1.0, readings + 1), *[np.nan] * 50]) is None


def test_fifteen_readings_are_enough():
    found = labels_of(np.arange(1.0, 16.0))
    assert found.good.nonzero()[0].tolist() == [0, 1]  # the quantile lies between 2 and 3
    assert found.threshold_us == pytest.approx(2.4)


def test_at_least_so_many_are_good():
    assert labels_of(TWENTY_ONE, min_good=8).good.sum() == 8
    assert labels_of(TWENTY_ONE, min_good=2).good.sum() == 3
    assert labels_of(TWENTY_ONE, min_good=100) is None  # all good: nothing to tell apart


def test_equal_latencies_tell_nothing():
    assert labels_of([5.0] * 40) is None


def test_ties_at_the_threshold_weigh_one_each():
    found = labels_of([5.0] * 10 + [9.0] * 20)
    assert found.good.sum() == 10
    assert found.weight.tolist() == [1.0] * 30


def training(latency_us, **options):
    given = LFBOOptions(**options)
    latency_us = np.asarray(latency_us, dtype=float)
    labels = label(latency_us, np.zeros(len(latency_us), dtype=bool), given)
    return training_set(labels, latency_us, given, np.random.Generator(np.random.PCG64(0)))


def test_training_rows_are_the_trials():
    chosen = training(TWENTY_ONE)
    assert chosen.rows.tolist() == list(range(21))
    assert chosen.good.sum() == 3


def test_songs_loss_counts_the_good_among_the_negatives_too():
    chosen = training(TWENTY_ONE, negatives="all", weights="raw_gap")
    assert chosen.rows.tolist() == [*range(21), 0, 1, 2]
    assert chosen.good.tolist() == [True] * 3 + [False] * 21
    assert chosen.weight.tolist() == [2.0, 1.0, 0.0] + [1.0] * 21


def test_a_long_history_is_thinned_without_losing_weight():
    rng = np.random.default_rng(1)
    latency_us = rng.permutation(np.arange(1.0, 1001.0))
    chosen = training(latency_us, max_training=200, weights="none")
    assert len(chosen.rows) == len(set(chosen.rows.tolist())) == 200
    kept = set(chosen.rows.tolist())
    assert set(np.argsort(latency_us)[:100].tolist()) <= kept
    assert set(range(950, 1000)) <= kept
    assert chosen.good.sum() == 100
    assert chosen.weight.sum() == pytest.approx(1000.0)
    assert chosen.weight[chosen.good].tolist() == [1.0] * 100


def test_thinning_prefers_readings_to_failures():
    latency_us = np.full(400, np.nan)
    latency_us[:60] = np.arange(1.0, 61.0)
    chosen = training(latency_us, max_training=100)
    assert set(range(50)) <= set(chosen.rows.tolist())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"quantile": 0.0}, "quantile"),
        ({"quantile": 1.5}, "quantile"),
        ({"weights": "gap"}, "weights"),
        ({"negatives": "some"}, "negatives"),
        ({"copies": 0}, "copies"),
        ({"max_trials": 0}, "max_trials"),
        ({"max_trials": 1.5}, "max_trials"),
        ({"patience": True}, "patience"),
        ({"min_delta": -0.1}, "min_delta"),
        ({"diversity": float("nan")}, "diversity"),
    ],
)
def test_options_that_can_not_be_used_are_refused(options, name):
    with pytest.raises(ValueError, match=f"option {name}="):
        LFBOOptions(**options)


@pytest.mark.parametrize(
    ("options", "points"),
    [
        ({}, 15),
        ({"max_trials": 1000}, 15),
        ({"max_trials": 48}, 12),
        ({"max_trials": 12}, 10),
        ({"max_trials": 1000, "n_initial": 7}, 7),
    ],
)
def test_a_trial_limit_shortens_the_start(options, points):
    assert LFBOOptions(**options).start_points == points


@pytest.mark.parametrize(
    ("status", "latency_us"),
    [("ok", None), ("ok", 0.0), ("ok", -1.0), ("ok", math.inf), ("ok", math.nan), ("fine", 1.0)],
)
def test_trials_that_can_not_be_are_refused(status, latency_us):
    with pytest.raises(ValueError):
        Trial((1,), status, latency_us)


def test_only_an_own_full_reading_is_timed():
    assert Trial((1,), "ok", 2.0).timed
    assert not Trial((1,), "ok", 2.0, cut=True).timed
    assert not Trial((1,), "duplicate", 2.0).timed
    assert not Trial((1,), "crash", 2.0).timed
