"""One search on one problem: readings, clock and record, the same for every contender.

Readings are what the tuner makes of a launch: a first look of three launches, and a full reading
unless the first was slower than 1.3 times the best so far. Both carry noise that depends only on
the seed and the point, so all contenders read the same of one point. The clock is simulated: 15
compile workers, one GPU, recorded times.
"""

from __future__ import annotations

import heapq
import math
import zlib
from bisect import insort
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.efficiency.models import FULL_NOISE
from benchmarks.efficiency.models import QUICK_NOISE
from lfbo_aot.search import Trial

if TYPE_CHECKING:
    from benchmarks.efficiency.problems import Problem
    from lfbo_aot.search import Point
    from lfbo_aot.search.ask_tell import Search

WORKERS = 15
OUTSTANDING = WORKERS + 5  # as the tuner does: a few compiled ones wait for the GPU
QUICK_LAUNCHES = 4  # with the one that warms up
FULL_LAUNCHES = 25
FLUSH_S = 3e-4  # per launch, the cache emptied before it
OVERHEAD_S = 0.01  # per config measured: loading, checking
SLACK = 1.3
FINALISTS = 10
WITHIN = 1.03
SHOWN = 300  # trials that every curve has, if the search goes on for so long


class Bench:
    """Answers with readings and keeps the record. A point read again costs no trial.

    The record's best is what the tuner would end with: the true best among the ten best readings,
    which it measures again at the end.
    """

    def __init__(self, problem: Problem, seed: int, limit: int) -> None:
        self.problem = problem
        self.limit = min(limit, problem.size or limit)
        self.goal_us = problem.optimum_us * WITHIN
        self._seed = seed
        self._finalists: list[tuple[float, float]] = []  # reading, truth
        self._best_reading_us = math.inf
        self._reached = False
        self.read: dict[Point, Trial] = {}
        self.best_us: list[float] = []  # after each trial
        self.seconds: list[float] = []

    @property
    def over(self) -> bool:
        """Whether all trials are used up, or the goal is reached and no figure needs any more."""
        made = len(self.best_us)
        return made >= self.limit or (self._reached and made >= SHOWN)

    def stand_in(self, point: Point, taken: set[Point]) -> Point | None:
        """The point that is tried when this one is proposed: itself, or a pool's nearest untaken."""
        if self.problem.kind != "pool":
            return point
        return self.problem.nearest(point, taken)

    def _noise(self, point: Point, launches: int) -> float:
        key = [self._seed, launches, zlib.crc32(repr(point).encode())]
        sigma = QUICK_NOISE if launches <= QUICK_LAUNCHES else FULL_NOISE
        return math.exp(sigma * float(np.random.default_rng(key).standard_normal()))

    def measure(self, point: Point) -> tuple[Trial, float]:
        """A reading of a point and the GPU's seconds for it; not yet in the record."""
        truth = self.problem.truth([point])[0]
        if truth.latency_us is None:
            return Trial(point, truth.status, compile_s=truth.compile_s), 0.0
        launch_s = truth.latency_us * 1e-6 + FLUSH_S
        seconds = OVERHEAD_S + QUICK_LAUNCHES * launch_s
        quick = truth.latency_us * self._noise(point, QUICK_LAUNCHES)
        if quick > SLACK * self._best_reading_us:
            return Trial(point, "ok", quick, cut=True, compile_s=truth.compile_s), seconds
        full = truth.latency_us * self._noise(point, FULL_LAUNCHES)
        seconds += (FULL_LAUNCHES - QUICK_LAUNCHES) * launch_s
        return Trial(point, "ok", full, compile_s=truth.compile_s), seconds

    def again(self, point: Point, reading: int) -> float:
        """One more full reading of a point, in microseconds; `reading` tells them apart."""
        truth = self.problem.truth([point])[0]
        return (truth.latency_us or math.inf) * self._noise(point, FULL_LAUNCHES + reading)

    def record(self, trial: Trial, seconds: float) -> None:
        """Put a trial into the record, at this simulated time."""
        if trial.point in self.read or self.over:
            return
        self.read[trial.point] = trial
        if trial.timed and trial.latency_us is not None:
            self._best_reading_us = min(self._best_reading_us, trial.latency_us)
            truth = self.problem.truth([trial.point])[0].latency_us or math.inf
            insort(self._finalists, (trial.latency_us, truth))
            del self._finalists[FINALISTS:]
        self.best_us.append(min((truth for _, truth in self._finalists), default=math.inf))
        self._reached |= self.best_us[-1] <= self.goal_us
        self.seconds.append(seconds)

    def summary(self) -> dict[str, object]:
        """The record of a search, its curve as the trials where it fell."""
        curve: list[list[float]] = []
        for number, best in enumerate(self.best_us, 1):
            shown = round(best, 4) if math.isfinite(best) else None
            if shown is not None and (not curve or shown != curve[-1][1]):
                curve.append([number, shown])
        reached = next((at for at, best in enumerate(self.best_us) if best <= self.goal_us), None)
        return {
            "limit": self.limit,
            "optimum_us": round(self.problem.optimum_us, 4),
            "trials": len(self.best_us),
            "reached": None if reached is None else reached + 1,
            "reached_s": None if reached is None else round(self.seconds[reached], 3),
            "seconds": round(self.seconds[-1], 3) if self.seconds else 0.0,
            "failures": sum(t.status not in ("ok", "duplicate") for t in self.read.values()),
            "curve": curve,
        }


def run_search(search: Search, bench: Bench) -> None:
    """Run one of our searches, asynchronously: results come in one by one, as they are ready."""
    now = gpu_free = 0.0
    taken: set[Point] = set()
    events: list[tuple[float, int, str, Trial]] = []
    ready: list[tuple[int, Point]] = []
    number = compiling = outstanding = 0
    while True:
        while compiling < WORKERS and outstanding < OUTSTANDING and not search.done:
            point = _asked(search, bench, taken)
            if point is None:
                break
            number += 1
            compiling += 1
            outstanding += 1
            compile_s = bench.problem.truth([point])[0].compile_s
            heapq.heappush(events, (now + compile_s, number, "compiled", Trial(point, "invalid")))
        if not events or bench.over:
            return
        now, at, what, trial = heapq.heappop(events)
        if what == "compiled":
            compiling -= 1
            ready.append((at, trial.point))
        else:
            outstanding -= 1
            bench.record(trial, now)
            search.tell(trial)
        while ready and (
            gpu_free <= now or bench.problem.truth([ready[0][1]])[0].latency_us is None
        ):
            at, point = ready.pop(0)
            trial, seconds = bench.measure(point)
            if seconds:
                gpu_free = now + seconds
            heapq.heappush(events, (now + seconds, at, "measured", trial))


def _asked(search: Search, bench: Bench, taken: set[Point]) -> Point | None:
    """The next point to try; in a pool the search is made to have asked for the stand-in itself."""
    points = search.ask(1)
    if not points:
        return None
    instead = bench.stand_in(points[0], taken)
    if instead is None:
        return None
    taken.add(instead)
    if instead != points[0]:
        search._outstanding[instead] = search._outstanding.pop(points[0])  # noqa: SLF001
        search._seen.add(instead)  # noqa: SLF001
    return instead


def batch_seconds(bench: Bench, points: list[Point]) -> float:
    """How long a batch takes that is compiled as a whole before it is measured."""
    free = [0.0] * WORKERS
    for truth in bench.problem.truth(points):
        heapq.heappush(free, heapq.heappop(free) + truth.compile_s)
    return max(free)
