"""Pattern search: several copies walk from neighbour to neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lfbo_aot.search.acquisition import Pool
from lfbo_aot.search.ask_tell import Search
from lfbo_aot.search.copies import Copy

if TYPE_CHECKING:
    from lfbo_aot.search.space import Point
    from lfbo_aot.search.trial import Trial


class PatternSearch(Search):
    """Copies start at the best points of the start and try random neighbours of where they are.

    A copy moves to a better point as soon as it hears of it, and ends when `patience` results in a
    row brought no gain. The next point always goes to the copy with the fewest outstanding. A
    result that is no copy's own (of the start, told late, or of a point that was never asked)
    takes over the slowest copy if it is faster, so that nothing is lost by not waiting.
    """

    _copies: list[Copy] | None = None

    def _propose(self) -> tuple[Point, tuple[int, int]] | None:
        if self._copies is None:
            starts = self._history.top(self.options.copies)
            self._copies = [Copy.at(t.point, t.latency_us or 0.0) for t in starts]
        self._refresh()
        copies = self._copies
        while True:
            live = [at for at, copy in enumerate(copies) if copy.live(self.options.patience)]
            if not live:
                return None
            at = min(live, key=lambda at: (copies[at].outstanding, copies[at].asked, at))
            point = self._pick(copies[at])
            if point is not None:
                return point, (at, copies[at].epoch)
            copies[at].exhausted = True

    def _pick(self, copy: Copy) -> Point | None:
        """The copy's next point; None if no neighbour is left that wasn't seen."""
        point = None
        if copy.pool is not None and copy.pool.taken < self._per_pool():
            point = self._unseen(copy.pool)
        if point is None:
            copy.pool = self._new_pool(copy)
            point = self._unseen(copy.pool)
        if point is not None:
            copy.asked += 1
            copy.outstanding += 1
        return point

    def _unseen(self, pool: Pool) -> Point | None:
        while True:
            point = pool.pick()
            if point is None or point not in self._seen:
                return point

    def _per_pool(self) -> int:
        return max(1, int(self.options.neighbours * self.options.share))

    def _candidates(self, copy: Copy, count: int) -> list[Point]:
        drawn = self.space.neighbours(copy.point, self._rng, self.options.radius, count)
        return [point for point in drawn if point not in self._seen]

    def _new_pool(self, copy: Copy) -> Pool:
        """Random neighbours; as many as are tried, since none is preferred."""
        found = self._candidates(copy, self._per_pool())
        return Pool(found or self._candidates(copy, self.options.neighbours), None)

    def _refresh(self) -> None:
        """A place for what must be brought up to date before a proposal."""

    def _told(self, trial: Trial, owner: tuple[int, int] | None) -> None:
        latency_us = trial.latency_us if trial.timed else None
        if owner is not None and owner[0] >= 0 and self._copies is not None:
            copy = self._copies[owner[0]]
            copy.outstanding -= 1
            copy.told(trial.point, latency_us, epoch=owner[1], min_delta=self.options.min_delta)
        elif latency_us is not None and self._copies is not None:
            self._adopt(trial.point, latency_us)

    def _adopt(self, point: Point, latency_us: float) -> None:
        """Start a copy at a point that no copy found, in place of the slowest if all are there."""
        copies = self._copies or []
        if any(copy.point == point for copy in copies):
            return
        if len(copies) < self.options.copies:
            copies.append(Copy.at(point, latency_us))
            return
        slowest = max(copies, key=lambda copy: copy.latency_us)
        if latency_us < slowest.latency_us * (1.0 - self.options.min_delta):
            slowest.restart(point, latency_us)

    def _ended(self) -> bool:
        copies = self._copies
        return copies is not None and not any(c.live(self.options.patience) for c in copies)
