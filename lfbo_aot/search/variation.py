"""Variations of a point: neighbours among which a classifier chooses.

The published neighbourhood (see `neighbourhood`) changes a block size and the warps each time. Near
a good point that is most often a step away from what made it good, and a single better choice of
another tunable can't be tried alone. Here one to three changes are made, each to a tunable drawn
anew; block sizes and warps are drawn twice as often as others, none is forced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.sampling import with_role
from lfbo_aot.search.values import pick

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.search.values import Tunable
    from lfbo_aot.search.values import Value

MOST_CHANGES = 3
_TWICE = 2.0


class Variation:
    """Draws variations of one point; only tunables that are active there change."""

    def __init__(
        self,
        tunables: Sequence[Tunable],
        point: tuple[Value, ...],
        active: Sequence[bool],
        radius: int,
    ) -> None:
        """`radius`: how many steps a block size or the warps go at once; others go one."""
        self._tunables = tunables
        self._point = point
        self._radius = radius
        self._far = {*with_role(tunables, "block"), *with_role(tunables, "warps")}
        self._movable = [
            at
            for at, (tunable, on) in enumerate(zip(tunables, active, strict=True))
            if on and tunable.size > 1
        ]
        weights = np.array([_TWICE if at in self._far else 1.0 for at in self._movable])
        self._upto = np.cumsum(weights) / weights.sum() if len(weights) else weights
        self._moves: dict[tuple[int, Value], tuple[Value, ...]] = {}

    def draw(self, rng: np.random.Generator, count: int) -> Iterator[tuple[Value, ...]]:
        """`count` variations, not all of them distinct or new; none where nothing can move."""
        if not self._movable:
            return
        changes = rng.integers(1, MOST_CHANGES + 1, size=count).tolist()
        shares = rng.random((count, MOST_CHANGES, 2))
        places = np.searchsorted(self._upto, shares[:, :, 0], side="right")
        places = np.minimum(places, len(self._movable) - 1).tolist()
        for number, at, share in zip(changes, places, shares[:, :, 1].tolist(), strict=True):
            values = list(self._point)
            for place, part in zip(at[:number], share, strict=False):
                where = self._movable[place]
                moves = self._moves_of(where, values[where])
                if moves:
                    values[where] = pick(moves, part)
            yield tuple(values)

    def _moves_of(self, at: int, value: Value) -> tuple[Value, ...]:
        found = self._moves.get((at, value))
        if found is None:
            found = self._tunables[at].moves(value, self._radius if at in self._far else 1)
            self._moves[at, value] = found
        return found
