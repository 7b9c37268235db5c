from __future__ import annotations

import math

import pytest

from benchmarks.efficiency import figures


def record(contender, problem, seed, reached, curve):
    return {
        "contender": contender,
        "problem": problem,
        "seed": seed,
        "limit": 500,
        "optimum_us": 10.0,
        "trials": 300,
        "reached": reached,
        "reached_s": None if reached is None else reached / 10,
        "seconds": 60.0,
        "curve": curve,
    }


CURVE = [[3, 40.0], [50, 20.0], [201, 11.0]]


def test_a_search_that_does_not_get_there_counts_as_the_limit():
    assert figures.trials(record("a", "p", 0, None, CURVE)) == 500
    assert figures.trials(record("a", "p", 0, 70, CURVE)) == 70
    assert figures.seconds(record("a", "p", 0, None, CURVE)) == 60.0
    assert figures.seconds_a_trial(record("a", "p", 0, 70, CURVE)) == 0.2
    assert figures.seconds(record("a", "p", 0, 70, CURVE)) == 7.0


@pytest.mark.parametrize(
    ("trial", "best"), [(2, math.inf), (3, 40.0), (49, 40.0), (50, 20.0), (200, 20.0), (900, 11.0)]
)
def test_the_best_after_so_many_trials(trial, best):
    assert figures.best_at(record("a", "p", 0, None, CURVE), trial) == best


def runs(name, table):
    """Runs of a contender from {problem: [trials by seed]}."""
    return [
        record(name, problem, seed, reached, [[1, latency or 10.0]])
        for problem, row in table.items()
        for seed, (reached, latency) in enumerate(row)
    ]


def contenders(*records):
    return figures.by_contender([r for group in records for r in group])


def test_a_ratio_is_the_geometric_mean_over_problems_of_means_over_seeds():
    found = contenders(
        runs("a", {"p": [(10, 0), (30, 0)], "q": [(200, 0), (None, 0)]}),
        runs("b", {"p": [(40, 0), (40, 0)], "q": [(175, 0), (175, 0)]}),
    )
    ratio = figures.ratio(found["a"], found["b"], figures.trials)
    # 20/40 and 350/175
    assert ratio["ratio"] == pytest.approx(1.0)
    assert (ratio["problems"], ratio["seeds"]) == (2, 2)
    assert ratio["low"] <= 1.0 <= ratio["high"]


def test_without_spread_the_interval_is_the_ratio():
    found = contenders(
        runs("a", {"p": [(10, 12.0)] * 5}),
        runs("b", {"p": [(40, 16.0)] * 5}),
    )
    for measure, value in ((figures.trials, 0.25), (figures.at_200, 0.75)):
        ratio = figures.ratio(found["a"], found["b"], measure)
        assert (ratio["ratio"], ratio["low"], ratio["high"]) == (value, value, value)


def test_seeds_are_paired():
    # Seeds differ much, contenders by a constant factor: paired, the ratio has no spread.
    found = contenders(
        runs("a", {"p": [(10, 0), (100, 0), (200, 0)]}),
        runs("b", {"p": [(20, 0), (200, 0), (400, 0)]}),
    )
    ratio = figures.ratio(found["a"], found["b"], figures.trials)
    assert (ratio["low"], ratio["high"]) == (0.5, 0.5)


def test_only_shared_problems_and_seeds_count():
    found = contenders(
        runs("a", {"p": [(10, 0)] * 3, "q": [(10, 0)] * 3}),
        runs("b", {"p": [(20, 0)] * 2}),
    )
    assert figures.shared(found["a"], found["b"]) == (["p"], [0, 1])
    assert figures.ratio(found["a"], {}, figures.trials) is None


def test_fewer_trials_are_told_from_noise():
    found = contenders(
        runs(
            "a",
            {
                "p": [(10, 0), (12, 0), (11, 0)],
                "q": [(90, 0), (95, 0), (92, 0)],
                "r": [(10, 0), (30, 0), (10, 0)],
            },
        ),
        runs("b", {name: [(20, 0), (20, 0), (20, 0)] for name in "pqr"}),
    )
    assert figures.fewer_trials(found["a"], found["b"]) == {
        "fewer": ["p"],
        "more": ["q"],
        "undecided": ["r"],
    }


def test_the_summary_has_the_figures_of_every_contender():
    records = [
        *runs("lfbo", {"p": [(10, 9.0), (10, 9.0)]}),
        *runs(figures.PATTERN, {"p": [(20, 10.0), (20, 10.0)]}),
        *runs(figures.TREE, {"p": [(40, 10.0), (40, 10.0)]}),
    ]
    row = figures.summary(records)["lfbo"]
    assert row["trials_ratio_vs_pattern"]["ratio"] == 0.5
    assert row["latency_ratio_vs_pattern_at_200"]["ratio"] == 0.9
    assert row["trials_ratio_vs_helion_lfbo_tree"]["ratio"] == 0.25
    assert row["reached_share"] == 1.0
    assert row["against_helion_lfbo_tree"]["fewer"] == ["p"]
