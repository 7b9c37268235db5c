"""All that a search was told, kept as arrays that grow."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.trial import FAILURES
from lfbo_aot.search.trial import TIMEOUTS
from lfbo_aot.search.trial import Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lfbo_aot.search.space import Point
    from lfbo_aot.search.space import Space


class History:
    """Trials by point. A point told twice keeps its place; the later reading stands."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._trials: list[Trial] = []
        self._at: dict[Point, int] = {}
        self._rows = 0
        self._features = np.zeros((64, space.width), dtype=np.float32)
        self._latency_us = np.zeros(64)
        self._cut = np.zeros(64, dtype=bool)
        self._timeout = np.zeros(64, dtype=bool)
        self._compile_s = np.zeros(64)
        self._row_of: dict[Point, int] = {}
        self._best: Trial | None = None
        self.timed = 0

    def __len__(self) -> int:
        return len(self._trials)

    def __contains__(self, point: Point) -> bool:
        return point in self._at

    @property
    def best(self) -> Trial | None:
        """The fastest trial that was timed in full."""
        return self._best

    @property
    def features(self) -> NDArray[np.float32]:
        """The trials' features, (rows, width); duplicates have no row."""
        return self._features[: self._rows]

    @property
    def latency_us(self) -> NDArray[np.float64]:
        """The trials' latencies, NaN for failures."""
        return self._latency_us[: self._rows]

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Which readings were cut short."""
        return self._cut[: self._rows]

    @property
    def timeout(self) -> NDArray[np.bool_]:
        """Which trials were killed at a deadline."""
        return self._timeout[: self._rows]

    @property
    def compile_s(self) -> NDArray[np.float64]:
        """The trials' compile times, NaN where unknown."""
        return self._compile_s[: self._rows]

    def add(self, trial: Trial) -> None:
        """Keep a trial, whose point is in canonical form."""
        known = self._at.get(trial.point)
        if known is None:
            self._at[trial.point] = len(self._trials)
            self._trials.append(trial)
        else:
            self.timed -= self._trials[known].timed
            self._trials[known] = trial
        self.timed += trial.timed
        if trial.status != "duplicate":
            self._write(trial)
        if known is not None:
            self._best = next(iter(self.top(1)), None)
        elif trial.timed and (self._best is None or _latency(trial) < _latency(self._best)):
            self._best = trial

    def _write(self, trial: Trial) -> None:
        row = self._row_of.setdefault(trial.point, self._rows)
        if row == self._rows:
            if row == len(self._latency_us):
                self._grow()
            self._features[row] = self._space.encode([trial.point])[0]
            self._rows += 1
        failed = trial.status in FAILURES
        self._latency_us[row] = np.nan if failed else _latency(trial)
        self._cut[row] = trial.cut and not failed
        self._timeout[row] = trial.status in TIMEOUTS
        self._compile_s[row] = np.nan if trial.compile_s is None else trial.compile_s

    def _grow(self) -> None:
        self._features, self._latency_us, self._cut, self._timeout, self._compile_s = (
            np.concatenate([array, np.zeros_like(array)])
            for array in (
                self._features,
                self._latency_us,
                self._cut,
                self._timeout,
                self._compile_s,
            )
        )

    def top(self, count: int) -> list[Trial]:
        """The fastest `count` trials that were timed in full, distinct points, fastest first."""
        timed = [trial for trial in self._trials if trial.timed]
        return heapq.nsmallest(count, timed, key=_latency)


def _latency(trial: Trial) -> float:
    return float("inf") if trial.latency_us is None else trial.latency_us
