from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.ensemble import RandomForestClassifier

from lfbo_aot.search.acquisition import Pool
from lfbo_aot.search.surrogate import Scores
from lfbo_aot.search.surrogate import Surrogate


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    features = rng.integers(0, 5, (200, 6)).astype(np.float32)
    good = features[:, 0] + features[:, 1] > 6
    weight = np.where(good, rng.random(200) * 2, 1.0)
    return features, good, weight


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9),
    reason="before 1.9 the forest drew its rows without regard to their weights",
)
def test_scores_equal_the_forests_own(data):
    features, good, weight = data
    model = Surrogate(features, good, weight, trees=20, random_state=3)
    forest = RandomForestClassifier(20, criterion="log_loss", n_jobs=1, random_state=3)
    forest.fit(features, good, sample_weight=weight)
    candidates = np.random.default_rng(1).integers(0, 5, (50, 6)).astype(np.float32)
    scores = model.score(candidates)
    assert scores.good == pytest.approx(forest.predict_proba(candidates)[:, 1])
    assert (scores.leaves == forest.apply(candidates)).all()


def test_the_model_learns(data):
    features, good, weight = data
    model = Surrogate(features, good, weight, trees=50, random_state=0)
    best, worst = model.score(np.array([[4, 4, 2, 2, 2, 2], [0, 0, 2, 2, 2, 2]], np.float32)).good
    assert best > 0.8
    assert worst < 0.1


def test_a_model_is_a_function_of_its_seed(data):
    a, b, c = (Surrogate(*data, trees=10, random_state=seed).score(data[0]) for seed in (1, 1, 2))
    assert (a.good == b.good).all()
    assert (a.good != c.good).any()


POINTS = [("a",), ("b",), ("c",), ("d",)]
# a and b share all leaves, c shares one of four with them, d shares none.
LEAVES = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 2, 2, 2], [3, 3, 3, 3]])
GOOD = np.array([0.9, 0.8, 0.5, 0.1])


def drain(pool):
    return [pool.pick()[0] for _ in range(len(pool))]


def test_without_diversity_the_likeliest_go_first():
    pool = Pool(POINTS, Scores(GOOD, LEAVES), diversity=0.0)
    assert drain(pool) == ["a", "b", "c", "d"]
    assert pool.pick() is None


def test_likeness_to_those_picked_costs():
    # After a: b 0.8-1, c 0.5-0.25, d 0.1-0. After c: b 0.8-(1+0.25)/2, d 0.1-0.
    assert drain(Pool(POINTS, Scores(GOOD, LEAVES), diversity=1.0)) == ["a", "c", "b", "d"]
    # After a, with twice the price: c 0.5-0.5, d 0.1; then b 0.8-1, c 0.5-0.25.
    assert drain(Pool(POINTS, Scores(GOOD, LEAVES), diversity=2.0)) == ["a", "d", "c", "b"]


def test_likeness_to_points_picked_earlier_costs():
    picked = np.array([[1, 1, 1, 1]])
    pool = Pool(POINTS, Scores(GOOD, LEAVES), diversity=1.0, picked=picked)
    assert pool.pick() == ("c",)


def test_without_scores_the_order_given_stands():
    pool = Pool(POINTS, None, diversity=1.0)
    assert drain(pool) == ["a", "b", "c", "d"]
    assert pool.taken == 4
