from __future__ import annotations

import numpy as np
import pytest

from benchmarks.efficiency import problems
from benchmarks.efficiency import simulate
from benchmarks.efficiency import stopping
from lfbo_aot.search import Integer
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import Space


class Bowl:
    """Four integers; the nearer to 11, the faster; every seventh sum fails."""

    name = "bowl"
    kind = "gaussian"
    size = None
    optimum_us = 100.0

    def __init__(self):
        self.space = Space(tuple(Integer(f"i{at}", 0, 15, 0) for at in range(4)), (0,) * 4)

    def truth(self, points):
        return [
            problems.Truth(None, "compile_error", 1.0)
            if sum(point) % 7 == 5
            else problems.Truth(100.0 + sum(5.0 * abs(v - 11) for v in point), "ok", 1.0)
            for point in points
        ]


@pytest.mark.parametrize("seed", [2])
def test_the_end_of_a_recorded_run_is_that_of_a_search_with_this_setting(monkeypatch, seed):
    monkeypatch.setattr(stopping, "LIMIT", 200)
    bench = stopping.to_the_end(Bowl(), seed)
    assert len(bench.readings) == len(bench.by_model) == len(bench.best_us) == 200
    assert sum(bench.by_model) > 150
    record = {"readings_us": bench.readings, "by_model": "".join(map(str, bench.by_model))}
    ended = simulate.Bench(Bowl(), seed, 200)
    options = LFBOOptions(max_trials=220, agree=30)
    simulate.run_search(LFBOPatternSearch(ended.problem.space, seed, options), ended)
    said = stopping.end(record, 30)
    # At least those told by then; the record allows for a full house of outstanding ones.
    assert said - simulate.OUTSTANDING <= len(ended.best_us) <= said < 200


def record(readings_us, by_model, best_us, **rest):
    return {
        "readings_us": readings_us,
        "by_model": by_model,
        "best_us": best_us,
        "peers": False,
        "problem": "bowl/pool",
        **rest,
    }


def test_only_what_the_model_proposed_counts_and_a_gain_starts_anew(monkeypatch):
    monkeypatch.setattr(simulate, "OUTSTANDING", 1)
    readings = [10.0, 11.0, None, 10.0, 9.0, 8.999, None, 12.0, 13.0]
    known = record(readings, "000110111", readings)
    assert stopping.end(known, 1) == 5  # the fourth, and one outstanding
    assert stopping.end(known, 2) == 9  # the gain at the fifth; the seventh and the eighth
    assert stopping.end(known, 9) == 9
    assert stopping.end(known, None) == 9


def test_regret_is_against_the_whole_run():
    known = record([4.0] * 4, "1111", [None, 12.0, 11.0, 10.0])
    assert stopping.regret(known, 2) == pytest.approx(0.2)
    assert stopping.regret(known, 4) == 0.0


def test_the_table_holds_means_over_runs(monkeypatch):
    monkeypatch.setattr(simulate, "OUTSTANDING", 0)
    runs = [
        record([10.0, 10.0, 10.0, 5.0], "1111", [10.0, 10.0, 10.0, 5.0]),
        record([10.0, 10.0, 10.0, 10.0], "1011", [10.0] * 4),
    ]
    rows = {(row["kind"], row["agree"]): row for row in stopping.table(runs, (1, None))}
    assert set(rows) == {("all", 1), ("all", None), ("pool", 1), ("pool", None)}
    assert rows["all", 1]["trials"] == np.mean([2, 3])
    assert rows["all", 1]["regret"] == 0.5
    assert rows["all", None]["regret"] == 0.0


def test_what_peers_are_worth_is_a_ratio_of_trials():
    slow = [20.0] * 9 + [10.0]
    fast = [20.0] * 4 + [10.0]
    runs = [
        record([], "", slow, seed=0, optimum_us=10.0),
        record([], "", fast, seed=0, optimum_us=10.0) | {"peers": True},
    ]
    assert stopping.peers_worth(runs)["ratio"] == 0.5
