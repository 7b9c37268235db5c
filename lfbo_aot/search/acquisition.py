"""Which of a pool of candidates to try next: likely to be good, and unlike those already picked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lfbo_aot.search.space import Point
    from lfbo_aot.search.surrogate import Scores


class Pool:
    """Candidates in hand, picked one by one.

    The score of a candidate is its probability of being good, less `diversity` times the mean share
    of trees in which it falls into the same leaf as a point already picked.
    """

    def __init__(
        self,
        points: Sequence[Point],
        scores: Scores | None,
        *,
        diversity: float = 0.0,
        picked: NDArray[np.intp] | None = None,
    ) -> None:
        """Without `scores` the pool is picked in the order given; `picked`: (k, trees) leaves."""
        self._points = points
        self._scores = scores
        self._diversity = diversity
        self._left = np.ones(len(points), dtype=bool)
        self._likeness = np.zeros(len(points))
        self._picked = 0
        self.taken = 0
        if scores is not None and diversity > 0 and picked is not None:
            for leaves in picked:
                self._remember(leaves)

    def __len__(self) -> int:
        return int(self._left.sum())

    def _remember(self, leaves: NDArray[np.intp]) -> None:
        if self._scores is not None:
            self._likeness += (self._scores.leaves == leaves).mean(axis=1)
            self._picked += 1

    def pick(self) -> Point | None:
        """The best candidate left, which leaves the pool; None if it is empty."""
        if not self._left.any():
            return None
        if self._scores is None:
            at = int(np.argmax(self._left))
        else:
            value = self._scores.good.copy()
            if self._diversity > 0 and self._picked:
                value -= self._diversity * self._likeness / self._picked
            at = int(np.argmax(np.where(self._left, value, -np.inf)))
            if self._diversity > 0:
                self._remember(self._scores.leaves[at])
        self._left[at] = False
        self.taken += 1
        return self._points[at]
