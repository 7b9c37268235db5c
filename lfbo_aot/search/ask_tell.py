"""What all searches share: the start, the budget, and what is known so far."""

from __future__ import annotations

import time
from abc import ABC
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.history import History
from lfbo_aot.search.options import LFBOOptions
from lfbo_aot.search.peers import checked_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.search.peers import Peer
    from lfbo_aot.search.space import Point
    from lfbo_aot.search.space import Space
    from lfbo_aot.search.trial import Trial

_DRAWS = 200  # attempts at a new random point, or rounds of new neighbours, before looking closer
_SMALL = 4096  # spaces up to this size are listed


class Search(ABC):
    """The common part of the searches: a subclass says what comes after the start.

    `context` is the bucket's shape as numbers, `peers` are other buckets of the kernel. A search
    that can't learn from peers takes no notice of them.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: LFBOOptions | None = None,
        *,
        context: Sequence[float] = (),
        peers: Sequence[Peer] = (),
    ) -> None:
        self.space = space
        self.context = checked_context(context)
        self.peers = tuple(peers)
        self.seed = seed
        self.options = options or LFBOOptions()
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._history = History(space)
        self._start = [space.default, *space.seeds]
        self._outstanding: dict[Point, tuple[int, int]] = {}  # copy and epoch; -1 for no copy
        self._seen: set[Point] = set()  # membership only: its order differs between processes
        self._given = 0
        self._drained = False  # no new random point can be found
        self._launched = False  # the start is over
        self._done = False
        self._thinking_s = 0.0

    @property
    def thinking_s(self) -> float:
        """Seconds spent in `ask` so far: in fitting and proposing. Nothing is decided by it."""
        return self._thinking_s

    @property
    def done(self) -> bool:
        """Whether nothing is outstanding and `ask` won't give a point again."""
        return self._done

    @property
    def best(self) -> Trial | None:
        """The fastest trial that was timed in full."""
        return self._history.best

    @property
    def outstanding(self) -> tuple[Point, ...]:
        """The points asked and not told yet, in the order they were asked."""
        return tuple(self._outstanding)

    def top(self, k: int) -> list[Trial]:
        """The fastest `k` trials that were timed in full, fastest first; duplicates left out."""
        return self._history.top(k)

    def ask(self, n: int = 1) -> list[Point]:
        """Up to `n` points never asked or told before."""
        begin = time.perf_counter()
        points: list[Point] = []
        while len(points) < n and not self._done and not self._spent():
            found = self._next()
            if found is None:
                break
            point, owner = found
            self._seen.add(point)
            self._outstanding[point] = owner
            self._given += 1
            points.append(point)
        self._settle()
        self._thinking_s += time.perf_counter() - begin
        return points

    def tell(self, trial: Trial) -> None:
        """Take in a result. ValueError if its point isn't one of the space."""
        trial = replace(trial, point=self.space.canonical(trial.point))
        owner = self._outstanding.pop(trial.point, None)
        self._seen.add(trial.point)
        self._history.add(trial)
        self._told(trial, owner)
        self._settle()

    def _next(self) -> tuple[Point, tuple[int, int]] | None:
        while self._start:
            point = self._start.pop(0)
            if point not in self._seen:
                return point, (-1, 0)
        if len(self._seen) >= self.options.start_points and self._ready():
            return self._propose()
        opening = self._opening()
        if opening is not None:
            return opening
        return self._propose() if self._ready() else None

    def _opening(self) -> tuple[Point, tuple[int, int]] | None:
        """A point of the start, once the default and the seeds were given."""
        drawn = self._random()
        return None if drawn is None else (drawn, (-1, 0))

    def _ready(self) -> bool:
        """Whether enough is known to go on from: a success, and a share of what was given."""
        if not self._launched and self._history.timed:
            told = len(self._seen) - len(self._outstanding)
            self._launched = self._drained or told >= self.options.launch_share * len(self._seen)
        return self._launched

    def _random(self) -> Point | None:
        """A random point never seen; None if there is none, as far as can be told."""
        if not self._drained and len(self._seen) < self.space.size:
            for _ in range(_DRAWS):
                point = self.space.sample(self._rng)
                if point not in self._seen:
                    return point
            if self.space.size <= _SMALL:
                left = [point for point in self.space.points() if point not in self._seen]
                if left:
                    return left[int(self._rng.integers(len(left)))]
        self._drained = True
        return None

    def _spent(self) -> bool:
        """Whether the trials are used up, or failed so often that no more are worth it."""
        limit = self.options.max_trials
        if limit is not None and self._given >= limit:
            return True
        return not self._history.timed and len(self._history) >= self.options.max_failures

    def _settle(self) -> None:
        if not self._outstanding and not self._done:
            full = not self._start and self._is_full()
            self._done = self._spent() or full or self._ended()

    def _is_full(self) -> bool:
        """Whether every point of the space was seen; of a conditional space known only if small."""
        if len(self._seen) >= self.space.size:
            return True
        if self._drained and not self._history.timed:
            return True
        if not self.space.conditions or self.space.size > _SMALL:
            return False
        return len(self._seen) >= self.space.count

    @abstractmethod
    def _propose(self) -> tuple[Point, tuple[int, int]] | None:
        """A point after the start, with its copy and epoch; None if there is none now."""

    @abstractmethod
    def _told(self, trial: Trial, owner: tuple[int, int] | None) -> None:
        """React to a trial; `owner` is None for a point that was never asked."""

    @abstractmethod
    def _ended(self) -> bool:
        """Whether nothing is left to propose, asked only while nothing is outstanding."""
