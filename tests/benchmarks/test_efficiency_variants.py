"""The variants that options can't make: each runs a whole search, and twice the same one."""

import numpy as np
import pytest

from benchmarks.efficiency.contenders import OTHERS
from benchmarks.efficiency.variants import FailureForest
from lfbo_aot.search import Choice
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space
from lfbo_aot.search import Trial

SPACE = Space(
    (
        PowerOfTwo("block", 1, 512, 1, "block"),
        PowerOfTwo("warps", 1, 32, 1, "warps"),
        PowerOfTwo("stages", 1, 16, 1),
        Choice("order", ("a", "b", "c", "d"), "a"),
    ),
    (1, 1, 1, "a"),
)


def trial(point):
    block, warps, stages, order = point
    if block * stages > 2048:
        return Trial(point, "compile_error", compile_s=2.0)
    gaps = (np.log2(block) - 6) ** 2 + (np.log2(warps) - 2) ** 2 + (order != "c")
    return Trial(point, "ok", 10.0 + gaps, compile_s=0.1 * warps)


def searched(name, count=140):
    make, changed = OTHERS[name]
    options = LFBOOptions(**{"patience": 10, "trees": 20, **changed})
    search = make(SPACE, 3, options)
    points = []
    while len(points) < count and not search.done:
        for point in search.ask(4):
            points.append(point)
            search.tell(trial(point))
    return points


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_variant_asks_nothing_twice_finds_the_best_and_repeats_itself(name):
    points = searched(name)
    assert len(set(points)) == len(points) > 50
    assert min(trial(p).latency_us or np.inf for p in points) <= 10.0
    assert searched(name) == points


def test_a_failure_forest_is_certain_of_success_until_something_failed():
    forest = FailureForest()
    rows = np.eye(4, dtype=np.float32)
    forest.fit(rows, np.zeros(4, dtype=bool), 0)
    assert forest.probability(rows).tolist() == [0, 0, 0, 0]
    forest.fit(rows, np.array([True, False, False, False]), 0)
    assert forest.probability(rows).argmax() == 0
