"""What the raw records come to: ratios between contenders, paired over seeds, with intervals.

Everything is a geometric mean over problems of the mean over seeds; an interval is the middle 95 %
of bootstrap resamples of the seeds, the same seeds drawn for both sides of a ratio and for every
problem. A search that doesn't get within 3 % of the optimum counts as having used all trials.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterable
    from collections.abc import Mapping
    from collections.abc import Sequence

    from numpy.typing import NDArray

OURS = "lfbo"
PATTERN = "pattern"
TREE = "helion:LFBOTreeSearch"
AT = 200
RESAMPLES = 2000

Record = dict[str, Any]
# problem -> seed -> record, of one contender
Runs = dict[str, dict[int, Record]]


def by_contender(records: Iterable[Record]) -> dict[str, Runs]:
    """The records by contender, problem and seed; a later record of the same run stands."""
    found: dict[str, Runs] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        found[record["contender"]][record["problem"]][record["seed"]] = record
    return {name: dict(runs) for name, runs in found.items()}


def trials(record: Record) -> float:
    """Trials until within 3 % of the optimum; the limit for a search that didn't get there."""
    return float(record["limit"] if record["reached"] is None else record["reached"])


def seconds(record: Record) -> float:
    """Simulated seconds until then; those of the whole search for one that didn't get there."""
    reached = record["reached_s"]
    return float(record["seconds"] if reached is None else reached)


def seconds_a_trial(record: Record) -> float:
    """Simulated seconds of the whole search over its trials."""
    return float(record["seconds"]) / float(record["trials"])


def best_at(record: Record, trial: int) -> float:
    """The best latency after so many trials; infinite before the first success."""
    best = math.inf
    for number, latency in record["curve"]:
        if number > trial:
            break
        best = latency
    return best


def at_200(record: Record) -> float:
    """The best latency after 200 trials."""
    return best_at(record, AT)


def _table(
    runs: Mapping[str, Mapping[int, Record]],
    problems: Sequence[str],
    seeds: Sequence[int],
    measure: Callable[[Record], float],
) -> NDArray[np.float64]:
    return np.array([[measure(runs[name][seed]) for seed in seeds] for name in problems])


def shared(a: Runs, b: Runs) -> tuple[list[str], list[int]]:
    """The problems that both ran, and the seeds that both ran on all of those problems."""
    problems = sorted(set(a) & set(b))
    seeds = [set(runs[name]) for runs in (a, b) for name in problems]
    return problems, sorted(set.intersection(*seeds)) if seeds else []


def ratio(a: Runs, b: Runs, measure: Callable[[Record], float]) -> dict[str, Any] | None:
    """How a's measure relates to b's, with its interval; None where they share no runs."""
    problems, seeds = shared(a, b)
    if not seeds:
        return None
    of_a, of_b = (_table(runs, problems, seeds, measure) for runs in (a, b))
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(seeds), size=(RESAMPLES, len(seeds)))
    spread = [_ratio(of_a[:, pick], of_b[:, pick]) for pick in drawn]
    low, high = np.quantile(spread, [0.025, 0.975])
    return {
        "ratio": round(_ratio(of_a, of_b), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "problems": len(problems),
        "seeds": len(seeds),
    }


def _ratio(of_a: NDArray[np.float64], of_b: NDArray[np.float64]) -> float:
    return float(np.exp(np.mean(np.log(of_a.mean(axis=1)) - np.log(of_b.mean(axis=1)))))


def fewer_trials(a: Runs, b: Runs) -> dict[str, Any] | None:
    """On which problems a needed fewer trials than b, significantly or not, paired over seeds."""
    problems, seeds = shared(a, b)
    if not seeds:
        return None
    gaps = _table(a, problems, seeds, trials) - _table(b, problems, seeds, trials)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(seeds), size=(RESAMPLES, len(seeds)))
    found = {"fewer": [], "more": [], "undecided": []}  # type: dict[str, list[str]]
    for name, gap in zip(problems, gaps, strict=True):
        low, high = np.quantile(gap[drawn].mean(axis=1), [0.025, 0.975])
        found["fewer" if high < 0 else "more" if low > 0 else "undecided"].append(name)
    return found


def summary(records: Iterable[Record]) -> dict[str, Any]:
    """The figures of every contender."""
    found = by_contender(records)
    nobody: Runs = {}
    pattern, tree, ours = (found.get(name, nobody) for name in (PATTERN, TREE, OURS))
    table = {}
    for name, runs in sorted(found.items()):
        all_records = [record for by_seed in runs.values() for record in by_seed.values()]
        table[name] = {
            "runs": len(all_records),
            "reached_share": round(
                sum(r["reached"] is not None for r in all_records) / len(all_records), 3
            ),
            "trials_ratio_vs_pattern": ratio(runs, pattern, trials),
            "latency_ratio_vs_pattern_at_200": ratio(runs, pattern, at_200),
            "trials_ratio_vs_helion_lfbo_tree": ratio(runs, tree, trials),
            "latency_ratio_vs_helion_lfbo_tree_at_200": ratio(runs, tree, at_200),
            "seconds_ratio_vs_pattern": ratio(runs, pattern, seconds),
            "seconds_ratio_vs_helion_lfbo_tree": ratio(runs, tree, seconds),
            "trials_ratio_vs_default": ratio(runs, ours, trials),
            "latency_ratio_vs_default_at_200": ratio(runs, ours, at_200),
            "seconds_ratio_vs_default": ratio(runs, ours, seconds),
            "seconds_a_trial_ratio_vs_default": ratio(runs, ours, seconds_a_trial),
            "gap_to_optimum": {str(at): round(_gap(runs, at), 4) for at in (50, 100, 200, 300)},
            "against_helion_lfbo_tree": fewer_trials(runs, tree),
        }
    return table


def _gap(runs: Runs, at: int) -> float:
    """How far the best is above the optimum after so many trials: geometric mean, less one."""
    logs = [
        np.log(np.mean([best_at(r, at) / r["optimum_us"] for r in by_seed.values()]))
        for by_seed in runs.values()
    ]
    return float(np.exp(np.mean(logs)) - 1)
