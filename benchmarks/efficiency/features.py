"""A point as numbers for a model of the truth: the space's features, and some of their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search import PowerOfTwo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lfbo_aot.search import Point
    from lfbo_aot.search import Space


def features(space: Space, points: Sequence[Point]) -> NDArray[np.float64]:
    """The space's own features, the tile's size, and the tile's size for each warp, as logarithms.

    How many elements a thread holds decides over spills and failures; a model of a few hundred
    trials would not find that sum by itself.
    """
    plain = np.asarray(space.encode(points), dtype=np.float64)
    starts = np.cumsum([0, *(tunable.width for tunable in space.tunables)])
    blocks, warps = (
        [
            int(starts[at])
            for at, tunable in enumerate(space.tunables)
            if isinstance(tunable, PowerOfTwo) and tunable.role == role
        ]
        for role in ("block", "warps")
    )
    tile = plain[:, blocks].sum(axis=1)
    threads = plain[:, warps].sum(axis=1)
    sums = [tile, tile - threads]
    if len(blocks) > 2:
        sums += [plain[:, blocks[:2]].sum(axis=1), plain[:, blocks[:2]].sum(axis=1) - threads]
    return np.column_stack([plain, *sums])
