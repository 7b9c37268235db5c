"""Two shapes of one kernel as each other's peers."""

from __future__ import annotations

import functools
import math

from benchmarks.efficiency import problems
from benchmarks.efficiency import simulate
from benchmarks.recorded import pair_name
from benchmarks.recorded import recordings
from lfbo_aot.search import LFBOOptions
from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search import Peer

TRIALS = 300  # that a peer was searched for


@functools.cache
def _pairs() -> dict[str, tuple[str, tuple[float, ...]]]:
    """The kernel and the logarithms of the sizes of each recorded pair."""
    return {
        pair_name(r.kernel, r.shape): (
            r.kernel,
            tuple(math.log2(size) for size in r.shape.values() if isinstance(size, int)),
        )
        for r in recordings()
    }


def context(name: str) -> tuple[float, ...]:
    """The shape of a problem as numbers: the logarithms of its sizes."""
    return _pairs()[name.partition("/")[0]][1]


def others(name: str) -> list[str]:
    """The problems of the same kernel and kind at other shapes."""
    pair, _, kind = name.partition("/")
    kernel = _pairs()[pair][0]
    return [
        f"{other}/{kind}" for other, (k, _) in _pairs().items() if k == kernel and other != pair
    ]


@functools.lru_cache(maxsize=64)
def peer(name: str, seed: int) -> Peer:
    """What a search of this problem that had no peers knows in the end."""
    of = problems.problem(name)
    bench = simulate.Bench(of, seed, TRIALS)
    options = LFBOOptions(max_trials=TRIALS + simulate.OUTSTANDING, agree=None, failure="off")
    simulate.run_search(LFBOPatternSearch(of.space, seed, options), bench)
    return Peer(context(name), tuple(bench.read.values()))


def peers(name: str, seed: int) -> tuple[Peer, ...]:
    """The peers of a problem; none where its kernel was recorded at one shape only."""
    return tuple(peer(other, seed) for other in others(name))
