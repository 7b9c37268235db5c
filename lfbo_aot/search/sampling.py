"""Random points that have a chance to compile.

Block sizes drawn alone multiply to tiles that no kernel can hold; such configs fail, or take minutes
to compile. So a ceiling on the elements of a tile is drawn with each point, as Helion's own sampler
does, and the block sizes are halved together until they fit under it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lfbo_aot.search.scalars import PowerOfTwo

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lfbo_aot.search.values import Tunable
    from lfbo_aot.search.values import Value

THREADS_PER_WARP = 32
MAX_ELEMENTS_PER_THREAD = 2048
MAX_ELEMENTS = 1 << 20  # Triton refuses larger tensors


def sample_values(tunables: Sequence[Tunable], rng: np.random.Generator) -> tuple[Value, ...]:
    """A value for each tunable, uniform, block sizes then halved to a tile that threads can hold.

    The tile has at most (32 x warps) times a random power of two up to 2048 elements. A space
    without warps or block sizes is left as drawn.
    """
    values = [tunable.sample(rng) for tunable in tunables]
    per_thread = 1 << int(rng.integers(MAX_ELEMENTS_PER_THREAD.bit_length()))
    blocks = with_role(tunables, "block")
    warps = with_role(tunables, "warps")
    if not blocks or not warps:
        return tuple(values)
    threads = THREADS_PER_WARP * math.prod(_int(values[at]) for at in warps)
    ceiling = min(threads * per_thread, MAX_ELEMENTS)
    sizes = {at: _int(values[at]) for at in blocks}
    while math.prod(sizes.values()) > ceiling:
        halved = {at: max(size // 2, _low(tunables[at])) for at, size in sizes.items()}
        if halved == sizes:
            break
        sizes = halved
    for at, size in sizes.items():
        values[at] = size
    return tuple(values)


def with_role(tunables: Sequence[Tunable], role: str) -> list[int]:
    """The places of the tunables that have this role."""
    return [at for at, tunable in enumerate(tunables) if getattr(tunable, "role", "") == role]


def _low(tunable: Tunable) -> int:
    return tunable.low if isinstance(tunable, PowerOfTwo) else 1


def _int(value: Value) -> int:
    return value if isinstance(value, int) else 1
