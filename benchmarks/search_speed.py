"""How long the search thinks: one refit and proposal at 1,000 trials, and a search of 10,000.

    python benchmarks/search_speed.py [--record] [--repeats 5]

Prints JSON: medians in seconds, on one core. The spaces are recorded ones (see data/README.md). So
are the trials, filled up to 1,000 with made-up neighbours of recorded ones; the long search's
latencies are made up altogether.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is loaded

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import sklearn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.recorded import Recording
from benchmarks.recorded import recordings
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import Point
from lfbo_aot.search import Trial

RESULTS = Path(__file__).parent / "results" / "search_speed.json"
TRIALS = 1000
CANDIDATES = 300
LONG = 10_000


def one_core() -> bool:
    """Whether this process could be tied to a single core."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return True


def filled(recording: Recording, count: int, seed: int) -> list[Trial]:
    """`count` trials: the recorded ones, then their random neighbours with latencies near theirs."""
    rng = np.random.default_rng(seed)
    trials = {trial.point: trial for trial in recording.trials[:count]}
    timed = [trial for trial in recording.trials if trial.latency_us is not None]
    while len(trials) < count:
        like = timed[int(rng.integers(len(timed)))]
        for point in recording.space.neighbours(like.point, rng, 2):
            latency_us = (like.latency_us or 1.0) * float(np.exp(rng.normal(0.1, 0.1)))
            trials.setdefault(point, Trial(point, "ok", latency_us, like.cut))
    return list(trials.values())


def refit_and_propose(recording: Recording, seed: int) -> dict[str, float]:
    """Seconds for one tell, for a refit with one proposal, and for each further proposal."""
    options = LFBOOptions(neighbours=CANDIDATES, n_initial=1, refit_every=1, refit_growth=0.0)
    search = LFBOPatternSearch(recording.space, seed, options)
    trials = filled(recording, TRIALS, seed)
    begin = time.perf_counter()
    for trial in trials[:-1]:
        search.tell(trial)
    told = time.perf_counter()
    search.ask(2)  # the default, then the first model
    search.tell(trials[-1])
    refit, cpu = time.perf_counter(), time.process_time()
    search.ask(1)
    proposed, cpu = time.perf_counter(), time.process_time() - cpu
    search.ask(29)
    batch = time.perf_counter()
    return {
        "tell_s": (told - begin) / (TRIALS - 1),
        "refit_and_propose_s": proposed - refit,
        "refit_and_propose_cpu_s": cpu,  # what it costs on a machine that has other things to do
        "further_proposals_s": (batch - proposed) / 29,
    }


def long_search(recording: Recording, seed: int) -> list[dict[str, float]]:
    """Seconds by thousand trials of a search that never tires; latencies are made up."""
    options = LFBOOptions(patience=LONG, agree=None, max_trials=LONG)
    search = LFBOPatternSearch(recording.space, seed, options)
    rows = []
    begin = time.perf_counter()
    for count in range(1, LONG + 1):
        for point in search.ask(1):
            search.tell(Trial(point, "ok", made_up_us(recording, point)))
        if count % 1000 == 0:
            rows.append({"trials": count, "seconds": time.perf_counter() - begin})
    return rows


def made_up_us(recording: Recording, point: Point) -> float:
    """A latency that depends on every feature a little."""
    features = recording.space.encode([point])[0]
    weights = np.sin(np.arange(1, len(features) + 1))
    return float(100.0 + np.square(features - 3.0) @ np.abs(weights))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--record", action="store_true", help=f"also write {RESULTS.name}")
    parser.add_argument("--long", action="store_true", help="also search for 10,000 trials")
    given = parser.parse_args()
    pinned = one_core()
    recorded = recordings()
    timed = [(r, refit_and_propose(r, seed)) for r in recorded for seed in range(given.repeats)]
    numbers = [run for _, run in timed]
    medians = {name: statistics.median(run[name] for run in numbers) for name in numbers[0]}
    worst = max(run["refit_and_propose_s"] for run in numbers)
    summary: dict[str, object] = {
        "trials": TRIALS,
        "candidates": CANDIDATES,
        **medians,
        "refit_and_propose_worst_s": worst,
        "one_core": pinned,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scikit_learn": sklearn.__version__,
        "machine": platform.machine(),
    }
    if given.long:
        summary["long"] = long_search(recorded[0], 0)
    print(json.dumps(summary, indent=2))
    if given.record:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        runs = [{"kernel": r.kernel, "shape": r.shape, **run} for r, run in timed]
        text = json.dumps({"summary": summary, "runs": runs}, indent=1)
        RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
