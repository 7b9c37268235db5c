from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.efficiency import models
from benchmarks.efficiency import problems
from benchmarks.efficiency import simulate
from benchmarks.recorded import recordings
from lfbo_aot.search import Integer
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import RandomSearch
from lfbo_aot.search import Space


class Line:
    """A problem in one dimension: 100 at 0 down to 10 at 90 and above; 5, 15, ... fail."""

    name = "line"
    kind = "gaussian"
    size = None
    optimum_us = 10.0

    def __init__(self):
        self.space = Space((Integer("i", 0, 99, 0),), (0,))

    def truth(self, points):
        return [
            problems.Truth(None, "compile_error", 1.0)
            if i % 10 == 5
            else problems.Truth(float(max(10, 100 - i)), "ok", 1.0)
            for (i,) in points
        ]


def test_the_best_is_the_true_best_of_the_ten_best_readings():
    bench = simulate.Bench(Line(), 0, 50)
    for i in range(30):
        trial, _ = bench.measure((i,))
        bench.record(trial, float(i))
    readings = sorted((t.latency_us, 100.0 - t.point[0]) for t in bench.read.values() if t.timed)
    assert bench.best_us[-1] == min(truth for _, truth in readings[:10])
    assert len(bench.best_us) == 30  # failures are trials too


def test_a_point_read_again_costs_no_trial():
    bench = simulate.Bench(Line(), 0, 50)
    for _ in range(3):
        bench.record(bench.measure((1,))[0], 0.0)
    assert len(bench.best_us) == 1


def test_all_contenders_read_the_same_of_one_point():
    first, second = (simulate.Bench(Line(), 3, 50).measure((7,))[0] for _ in range(2))
    other = simulate.Bench(Line(), 4, 50).measure((7,))[0]
    assert first == second
    assert first != other
    assert abs(math.log(first.latency_us / 93.0)) < 4 * models.FULL_NOISE


def test_a_slow_point_is_cut_after_a_quick_look():
    bench = simulate.Bench(Line(), 0, 50)
    fast, seconds = bench.measure((90,))
    bench.record(fast, 0.0)
    slow, quick_s = bench.measure((0,))
    assert not fast.cut
    assert slow.cut
    assert quick_s < seconds


def test_the_record_tells_when_the_goal_was_reached():
    bench = simulate.Bench(Line(), 0, 50)
    for at, i in enumerate((0, 40, 95, 91)):
        bench.record(bench.measure((i,))[0], at * 2.0)
    # 95 fails; 91 is the optimum.
    found = bench.summary()
    assert (found["reached"], found["reached_s"], found["failures"]) == (4, 6.0, 1)
    assert found["curve"] == [[1, 100.0], [2, 60.0], [4, 10.0]]


@pytest.mark.parametrize("make", [RandomSearch, LFBOPatternSearch])
def test_a_search_runs_asynchronously_until_the_limit(make):
    bench = simulate.Bench(Line(), 0, 40)
    simulate.run_search(make(bench.problem.space, 0, LFBOOptions(n_initial=10)), bench)
    assert len(bench.best_us) == 40
    # A second for each compile, 15 at once; 40 take three rounds, and the GPU little.
    assert 3.0 < bench.seconds[-1] < 3.7
    assert bench.seconds == sorted(bench.seconds)


def test_a_batch_is_compiled_by_fifteen_workers():
    bench = simulate.Bench(Line(), 0, 40)
    assert simulate.batch_seconds(bench, [(i,) for i in range(15)]) == 1.0
    assert simulate.batch_seconds(bench, [(i,) for i in range(16)]) == 2.0


def test_roots_of_gaps_go_there_and_back():
    logs = np.log(np.array([10.0, 10.3, 200.0, np.nan]))
    root = models.to_gap_root(logs)
    assert np.allclose(models.from_gap_root(root, np.log(10.0))[:3], logs[:3])
    assert np.isnan(root[3])
    assert models.from_gap_root(np.array([-0.2]), 1.5) == [1.5]  # the fastest is a floor


def test_a_pool_answers_with_the_nearest_that_is_left():
    recording = next(r for r in recordings() if r.kernel == "softmax")
    space = problems.conditional("softmax", recording.space)
    data = models.known(type(recording)("softmax", recording.shape, space, recording.trials))
    pool = problems.Problem("softmax/pool", "pool", "softmax", space, data)
    assert pool.size == len(set(data.points)) == 234
    point = data.points[7]
    assert pool.nearest(point, set()) == point
    other = pool.nearest(point, {point})
    assert other in data.points
    assert other != point
    assert pool.nearest(point, set(data.points)) is None
    assert pool.optimum_us == pytest.approx(14.368, abs=1e-3)


def test_inactive_tunables_are_those_that_a_flat_grid_ignores():
    for recording in recordings():
        space = problems.conditional(recording.kernel, recording.space)
        parents = {condition.parent for condition in space.conditions}
        assert len(parents) == 1
        assert len(space.conditions) == 6
