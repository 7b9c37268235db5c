"""How long `ask` takes where it fits and proposes, by trials told and by peers."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.recorded import pair_name
from benchmarks.recorded import recordings
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import Peer
from lfbo_aot.search import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.recorded import Recording

TRIALS = (100, 300, 600)
PEERS = (0, 4)
PEER_TRIALS = 300
REPEATS = 3


def trials(recording: Recording, count: int, seed: int) -> tuple[Trial, ...]:
    """`count` trials: recorded ones, then random neighbours of theirs with latencies like theirs."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(recording.trials))[:count]
    found = {recording.trials[at].point: recording.trials[at] for at in drawn}
    timed = [trial for trial in recording.trials if trial.latency_us is not None]
    while len(found) < count:
        like = timed[int(rng.integers(len(timed)))]
        for point in recording.space.neighbours(like.point, rng, 2):
            latency_us = (like.latency_us or 1.0) * float(np.exp(rng.normal(0.1, 0.1)))
            found.setdefault(point, Trial(point, "ok", latency_us, like.cut, like.compile_s))
    return tuple(found.values())


def measured(recording: Recording, count: int, peers: int, seed: int) -> float:
    """Seconds of CPU for one `ask` that fits to `count` own trials, and proposes."""
    shapes = tuple(float(at) for at in range(3))
    others = [
        Peer((*shapes[:2], float(at + 3)), trials(recording, PEER_TRIALS, 100 * seed + at + 1))
        for at in range(peers)
    ]
    options = LFBOOptions(n_initial=1, refit_every=1, refit_growth=0.0)
    search = LFBOPatternSearch(recording.space, seed, options, context=shapes, peers=others)
    told = trials(recording, count, 100 * seed)
    for trial in told[:-1]:
        search.tell(trial)
    search.ask(2)  # the default, then the first model
    search.tell(told[-1])
    begin = time.process_time()
    search.ask(1)
    return time.process_time() - begin


def figures() -> Iterator[dict[str, object]]:
    """The median and the worst of `REPEATS` for each recording, number of trials and of peers."""
    for recording in recordings():
        for count in TRIALS:
            for peers in PEERS:
                seconds = [measured(recording, count, peers, seed) for seed in range(REPEATS)]
                yield {
                    "recording": pair_name(recording.kernel, recording.shape),
                    "trials": count,
                    "peers": peers,
                    "median_s": round(statistics.median(seconds), 4),
                    "worst_s": round(max(seconds), 4),
                }
