"""How alike two devices of one arch are: which of several others a config is best taken from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lfbo_aot.registry.devices import known

if TYPE_CHECKING:
    from lfbo_aot.registry.devices import DeviceId

Unlikeness = tuple[float, float, str]


def unlikeness(other: DeviceId, device: DeviceId) -> Unlikeness:
    """How little `other` is like `device`: the least comes first, equals by name.

    In doublings of multiprocessors, which decide how a grid fills the device, then of L2. Where
    either of the two isn't known, they are taken to be as unlike as can be.
    """
    mine, its = known(device), known(other)
    if mine is None or its is None:
        return math.inf, math.inf, other.name
    return _doublings(mine.sms, its.sms), _doublings(mine.l2_bytes, its.l2_bytes), other.name


def _doublings(one: int | None, other: int | None) -> float:
    if not one or not other:
        return math.inf
    return abs(math.log2(one) - math.log2(other))
