"""When a search should end: searches that go on to their limit, and what ending sooner would cost.

A run is recorded once, with no end of its own; each setting of `agree` is then applied to the
record. A search with this setting does the same but for what is outstanding in the end: that may be
a few points less, and a gain among them lets it go on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from benchmarks.efficiency import figures
from benchmarks.efficiency import neighbours
from benchmarks.efficiency import problems
from benchmarks.efficiency import simulate
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search.lfbo import BY_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence

    from lfbo_aot.search import Peer
    from lfbo_aot.search import Trial

LIMIT = 500
SETTINGS = (40, 60, 70, 80, 90, 100, 150, None)
MIN_DELTA = LFBOOptions().min_delta
Record = dict[str, Any]


class _Bench(simulate.Bench):
    """Goes on to its limit, and keeps the readings, and which points the model had proposed."""

    search: LFBOPatternSearch

    def __init__(self, problem: problems.Problem, seed: int, limit: int) -> None:
        super().__init__(problem, seed, limit)
        self.readings: list[float | None] = []
        self.by_model: list[int] = []

    @property
    def over(self) -> bool:
        return len(self.best_us) >= self.limit

    def record(self, trial: Trial, seconds: float) -> None:
        before = len(self.best_us)
        super().record(trial, seconds)
        if len(self.best_us) > before:
            owner = self.search._outstanding.get(trial.point)  # noqa: SLF001
            self.readings.append(round(trial.latency_us or 0.0, 3) if trial.timed else None)
            self.by_model.append(int(owner == BY_MODEL))


def run(name: str, seed: int, *, with_peers: bool) -> Record:
    """A search of this problem that ends at `LIMIT` trials only, trial by trial."""
    peers = neighbours.peers(name, seed) if with_peers else ()
    context = neighbours.context(name) if with_peers else ()
    bench = to_the_end(problems.problem(name), seed, context, peers)
    return {
        "problem": name,
        "seed": seed,
        "peers": with_peers,
        "optimum_us": round(bench.problem.optimum_us, 4),
        "readings_us": bench.readings,
        "by_model": "".join(map(str, bench.by_model)),
        "best_us": [round(us, 3) if math.isfinite(us) else None for us in bench.best_us],
    }


def to_the_end(
    problem: problems.Problem, seed: int, context: Sequence[float] = (), peers: Sequence[Peer] = ()
) -> _Bench:
    """The bench of a search that has no end of its own."""
    bench = _Bench(problem, seed, LIMIT)
    options = LFBOOptions(
        max_trials=LIMIT + simulate.OUTSTANDING, agree=None, patience=LIMIT, failure="off"
    )
    bench.search = LFBOPatternSearch(problem.space, seed, options, context=context, peers=peers)
    simulate.run_search(bench.search, bench)
    return bench


def end(record: Record, agree: int | None) -> int:
    """After how many trials the search ends, those outstanding then among them."""
    best = anchor = math.inf
    agreed = 0
    told = len(record["readings_us"])
    for at, (us, by_model) in enumerate(
        zip(record["readings_us"], record["by_model"], strict=True), 1
    ):
        best = min(best, us or math.inf)
        if best < anchor * (1.0 - MIN_DELTA):
            anchor, agreed = best, 0
        else:
            agreed += by_model == "1"
        if agree is not None and agreed >= agree:
            return min(at + simulate.OUTSTANDING, told)
    return told


def regret(record: Record, trials: int) -> float:
    """How far the best after so many trials is above the best of the whole run, as a share."""
    return float(record["best_us"][trials - 1] / record["best_us"][-1] - 1.0)


def table(records: Iterable[Record], settings: Sequence[int | None] = SETTINGS) -> list[Record]:
    """For each setting, with and without peers and by kind of problem: trials and regret."""
    known = list(records)
    rows = []
    for with_peers in (False, True):
        for kind in ("", *problems.KINDS):
            chosen = [r for r in known if r["peers"] == with_peers and r["problem"].endswith(kind)]
            for agree in settings:
                if chosen:
                    ends = [end(record, agree) for record in chosen]
                    lost = [regret(r, at) for r, at in zip(chosen, ends, strict=True)]
                    rows.append(
                        {
                            "peers": with_peers,
                            "kind": kind or "all",
                            "agree": agree,
                            "runs": len(chosen),
                            "trials": round(float(np.mean(ends)), 1),
                            "trials_quartiles": [float(np.quantile(ends, q)) for q in (0.25, 0.75)],
                            "regret": round(float(np.mean(lost)), 5),
                            "regret_90": round(float(np.quantile(lost, 0.9)), 5),
                            "regret_worst": round(float(max(lost)), 5),
                        }
                    )
    return rows


def peers_worth(records: Iterable[Record]) -> dict[str, Any] | None:
    """Trials until within 3 % of the optimum with peers, over those without; see `figures.ratio`."""
    runs: dict[bool, figures.Runs] = {True: {}, False: {}}
    for record in records:
        goal_us = record["optimum_us"] * simulate.WITHIN
        near = (at for at, us in enumerate(record["best_us"], 1) if us and us <= goal_us)
        row = {"limit": LIMIT, "reached": next(near, None)}
        runs[record["peers"]].setdefault(record["problem"], {})[record["seed"]] = row
    return figures.ratio(runs[True], runs[False], figures.trials)
