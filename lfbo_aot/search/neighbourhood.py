"""The neighbours of a point: what a pattern search tries next.

As in Helion's LFBO Pattern Search, each neighbour changes a block size and the warps by up to
`radius` steps each, and up to `radius` other tunables by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lfbo_aot.search.sampling import with_role
from lfbo_aot.search.values import pick

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence

    import numpy as np

    from lfbo_aot.search.values import Tunable
    from lfbo_aot.search.values import Value


class Neighbourhood:
    """Draws neighbours of one point; only tunables that are active there change."""

    def __init__(
        self,
        tunables: Sequence[Tunable],
        point: tuple[Value, ...],
        active: Sequence[bool],
        radius: int,
    ) -> None:
        if radius < 1:
            msg = f"a radius is at least 1, not {radius}"
            raise ValueError(msg)
        self._point = point
        self._radius = radius
        blocks = with_role(tunables, "block")
        warps = with_role(tunables, "warps")
        far = {*blocks, *warps}
        self._moves = [
            tunable.moves(value, radius if at in far else 1) if on else ()
            for at, (tunable, value, on) in enumerate(zip(tunables, point, active, strict=True))
        ]
        self._near = [
            tunable.moves(value, 1) if at in far and on else self._moves[at]
            for at, (tunable, value, on) in enumerate(zip(tunables, point, active, strict=True))
        ]
        movable = [at for at, moves in enumerate(self._moves) if moves]
        self._blocks = [at for at in blocks if self._moves[at]]
        self._warps = [at for at in warps if self._moves[at]]
        self._others = [at for at in movable if at not in self._warps]

    def draw(self, rng: np.random.Generator, count: int) -> Iterator[tuple[Value, ...]]:
        """`count` neighbours, not all of them distinct; none where nothing can move."""
        if not self._others and not self._warps:
            return
        fixed = 2 + len(self._warps) + 1
        for row in rng.random((count, fixed + 2 * self._radius)).tolist():
            yield self._one(row[:fixed], row[fixed:])

    def _one(self, fixed: list[float], free: list[float]) -> tuple[Value, ...]:
        values = list(self._point)
        others = list(self._others)
        if self._blocks:
            at = pick(self._blocks, fixed[0])
            values[at] = pick(self._moves[at], fixed[1])
            others.remove(at)
        for at, share in zip(self._warps, fixed[2:], strict=False):
            values[at] = pick(self._moves[at], share)
        # With neither block sizes nor warps to change, something else must.
        least = 0 if self._blocks or self._warps else 1
        most = min(self._radius, len(others))
        changes = least + int(fixed[-1] * (most - least + 1))
        for step in range(changes):
            at = others.pop(int(free[2 * step] * len(others)))
            values[at] = pick(self._near[at], free[2 * step + 1])
        return tuple(values)
