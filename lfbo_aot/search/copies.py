"""The copies of a pattern search: each walks from a good point of its own until it stops gaining."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lfbo_aot.search.acquisition import Pool
    from lfbo_aot.search.space import Point


@dataclass(slots=True)
class Copy:
    """One copy's state. `anchor_us` is what the next gain is measured from.

    Results trickle in while newer points are out, so a result counts against patience only if its
    point was given since the last gain (`epoch`): neighbours of a point that the copy has left
    behind say nothing of where it is now. Improvements less than `min_delta` move the copy without
    a gain, and add up towards one.
    """

    point: Point
    latency_us: float
    anchor_us: float
    epoch: int = 0
    stale: int = 0
    asked: int = 0
    outstanding: int = 0
    exhausted: bool = False
    pool: Pool | None = None
    picked: list[tuple[Point, int]] = field(default_factory=list)  # with the fit that picked it

    @classmethod
    def at(cls, point: Point, latency_us: float) -> Copy:
        """A copy that starts at a point of this latency."""
        return cls(point, latency_us, latency_us)

    def live(self, patience: int) -> bool:
        """Whether it still wants points."""
        return self.stale < patience and not self.exhausted

    def told(self, point: Point, latency_us: float | None, *, epoch: int, min_delta: float) -> None:
        """Take in a result for one of its own points; None for a failure or a reading cut short."""
        if latency_us is not None and latency_us < self.latency_us:
            self._move(point, latency_us)
            if latency_us < self.anchor_us * (1.0 - min_delta):
                self._gain()
                return
        if epoch == self.epoch:
            self.stale += 1

    def restart(self, point: Point, latency_us: float) -> None:
        """Go on from a point that the copy didn't find itself."""
        self._move(point, latency_us)
        self._gain()

    def _move(self, point: Point, latency_us: float) -> None:
        self.point = point
        self.latency_us = latency_us
        self.pool = None
        self.exhausted = False

    def _gain(self) -> None:
        self.anchor_us = self.latency_us
        self.epoch += 1
        self.stale = 0
