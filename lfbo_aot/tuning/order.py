"""In which order buckets are tuned: so that each learns from one that is like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lfbo_aot.tuning.plan import distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.tuning.plan import Item


def ordered(todo: Sequence[Item], plan: Sequence[Item]) -> list[Item]:
    """The buckets to tune, kernel by kernel as planned; within a kernel each next to one before.

    The first of a kernel is the nearest to one that is held, or the first in the plan where none
    is; then always the one that is nearest to any that is held or was taken.
    """
    found: list[Item] = []
    for kernel_id in dict.fromkeys(item.spec.kernel_id for item in todo):
        known = [i.bucket for i in plan if i.spec.kernel_id == kernel_id and not i.why]
        found += _chain([item for item in todo if item.spec.kernel_id == kernel_id], known)
    return found


def _chain(items: list[Item], known: list[Bucket]) -> list[Item]:
    left = dict(enumerate(items))
    # Of each bucket that is left how near it is to those taken; kept up to date as they are taken.
    near = {at: _nearest(item.bucket, known) for at, item in left.items()}
    chain: list[Item] = []
    while left:
        at = min(left, key=lambda at: (near[at], at))
        item = left.pop(at)
        chain.append(item)
        for other, waiting in left.items():
            near[other] = min(near[other], distance(waiting.bucket, item.bucket))
    return chain


def _nearest(bucket: Bucket, known: Sequence[Bucket]) -> float:
    return min((distance(bucket, other) for other in known), default=float("inf"))
