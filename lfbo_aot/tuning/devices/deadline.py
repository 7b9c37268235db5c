"""How long something may take, learnt from what it took before."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from dataclasses import field

_ENOUGH = 12  # successes that a limit is learnt from
_KEPT = 400


@dataclass(slots=True)
class Deadline:
    """A limit in seconds: `most` until enough has been seen, then a multiple of the slow ones.

    `factor` times the `quantile` of the seconds that successes took, within `least` and `most`. What
    was ended at the limit isn't told: else the limit would hold itself up.
    """

    most_s: float
    least_s: float
    factor: float = 3.0
    quantile: float = 0.9
    _seen: list[float] = field(default_factory=list)
    _order: list[float] = field(default_factory=list)

    def tell(self, seconds: float) -> None:
        """Something went well in this time."""
        bisect.insort(self._seen, seconds)
        self._order.append(seconds)
        if len(self._order) > _KEPT:
            self._seen.remove(self._order.pop(0))

    @property
    def limit_s(self) -> float:
        if len(self._seen) < _ENOUGH:
            return self.most_s
        at = min(len(self._seen) - 1, int(self.quantile * len(self._seen)))
        return min(self.most_s, max(self.least_s, self.factor * self._seen[at]))
