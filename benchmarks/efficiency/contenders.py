"""Who competes: our searches with their variants, by name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from benchmarks.efficiency import simulate
from benchmarks.efficiency import variants
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import PatternSearch
from lfbo_aot.search import RandomSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.efficiency.problems import Problem
    from lfbo_aot.search.ask_tell import Search

# As published: a random start of 100, copies that walk alone, a block size and the warps always
# changed.
PUBLISHED: dict[str, object] = {"walk": "copies", "n_initial": 100}
# Each changes the defaults of LFBOOptions as named.
VARIANTS: dict[str, dict[str, object]] = {
    "lfbo": {},
    "lfbo:published": PUBLISHED,
    "lfbo:copies": {"walk": "copies"},
    "lfbo:n_initial=10": {"n_initial": 10, "min_trials": 10},
    "lfbo:n_initial=30": {"n_initial": 30},
    "lfbo:n_initial=100": {"n_initial": 100},
    "lfbo:min_good=5": {"min_good": 5},
    "lfbo:min_good=10": {"min_good": 10},
    "lfbo:diversity=0": {"diversity": 0.0},
    "lfbo:diversity=0.3": {"diversity": 0.3},
    "lfbo:raw_gap": {"weights": "raw_gap"},
    "lfbo:no_weights": {"weights": "none"},
    "lfbo:song": {"negatives": "all"},
    "lfbo:quantile=0.05": {"quantile": 0.05},
    "lfbo:quantile=0.2": {"quantile": 0.2},
    "lfbo:copies=10": {"copies": 10, "patience": 30},
    "lfbo:refit_every=5": {"refit_every": 5},
    "lfbo:launch_share=0.2": {"launch_share": 0.2},
    "lfbo:failure=timeouts": {"failure": "timeouts"},
    "lfbo:failure=all": {"failure": "all"},
    "lfbo:cost=ties": {"cost": "ties"},
    "lfbo:cost=rate": {"cost": "rate"},
}
BASELINES: dict[str, tuple[type[Search], dict[str, object]]] = {
    "random": (RandomSearch, {}),
    "pattern": (PatternSearch, {}),
    "pattern:n_initial=100": (PatternSearch, {"n_initial": 100}),
}
# What options can't make, with the options it changes besides.
OTHERS: dict[str, tuple[Callable[..., Search], dict[str, object]]] = {
    "lfbo:failures": (variants.with_failures, {}),
    "lfbo:cost": (variants.Cost, {}),
    "lfbo:cost=1": (variants.CostInFull, {}),
    "lfbo:thompson=1": (variants.Thompson, {}),
    "lfbo:thompson=10": (variants.ThompsonTen, {}),
    "lfbo:thompson=10:diversity=0": (variants.ThompsonTen, {"diversity": 0.0}),
    "lfbo:ranking": (variants.Ranking, {}),
    "lfbo:ranking:diversity=0.3": (variants.Ranking, {"diversity": 0.3}),
    "lfbo:neighbours": (variants.Neighbours, {}),
    "lfbo:process": (variants.Process, {}),
    "lfbo:crossover": (variants.Crossover, {}),
    "lfbo:restarts": (variants.Restarts, {}),
    "lfbo:restarts=100": (variants.Restarts, {"patience": 20}),
}


def ours(name: str, problem: Problem, seed: int, limit: int) -> dict[str, object]:
    """Run one of ours; the record, as `Bench.summary` gives it."""
    bench = simulate.Bench(problem, seed, limit)
    simulate.run_search(_search(name, problem, seed, bench.limit), bench)
    return bench.summary()


def _search(name: str, problem: Problem, seed: int, limit: int) -> Search:
    make: Callable[..., Search]
    if name in BASELINES:
        make, changed = BASELINES[name]
    elif name in OTHERS:
        make, changed = OTHERS[name]
    elif name in VARIANTS:
        make, changed = LFBOPatternSearch, VARIANTS[name]
    else:
        msg = f"no contender is named {name!r}"
        raise ValueError(msg)
    # Asked for more than the limit, so that those outstanding at its end are not missing from it.
    # How soon a search ends by itself is another question: see `stopping`. Most records are older
    # than the model of failure.
    options = LFBOOptions(max_trials=limit + simulate.OUTSTANDING, agree=None, failure="off")
    return make(problem.space, seed, dataclasses.replace(options, **changed))  # type: ignore[arg-type]
