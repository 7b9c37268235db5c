"""The look-up itself: a pure function of the store, the request and the policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from typing import NamedTuple

from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime.likeness import unlikeness
from lfbo_aot.runtime.nearest import miss_reason
from lfbo_aot.runtime.resolution import DAMAGED
from lfbo_aot.runtime.resolution import EXACT
from lfbo_aot.runtime.resolution import NOTHING
from lfbo_aot.runtime.resolution import OUTRANKED
from lfbo_aot.runtime.resolution import SERVED
from lfbo_aot.runtime.resolution import Considered
from lfbo_aot.runtime.resolution import Resolution
from lfbo_aot.runtime.weigh import weigh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.database.shard import Shard
    from lfbo_aot.database.store import Layer
    from lfbo_aot.database.store import Store
    from lfbo_aot.runtime.request import Request
    from lfbo_aot.runtime.weigh import Rank
    from lfbo_aot.runtime.weigh import Weighed


class Answer(NamedTuple):
    """A resolution, and the damage that was met on the way to it."""

    resolution: Resolution
    damage: tuple[DatabaseError, ...]
    misfits: tuple[str, ...] = ()
    """What installed data packages hold for another source or other settings of the kernel."""


class _Found(NamedTuple):
    """One layer's part: the entries whose box holds the shape, and what is broken."""

    layer: Layer
    weighed: tuple[Weighed, ...]
    damage: tuple[DatabaseError, ...]


def look_up(store: Store, request: Request, policy: str) -> Answer:
    """The answer to `request`: a pinned entry, else by status, then freshness, then layer.

    Of equal ones in a layer the smallest box answers of those that hold the shape. Where no device is named, the least latency decides at last; where another device of the arch answers,
    the one most like the device asked about. Reads files where they haven't been read yet, and
    nothing else.
    """
    found = [_in_layer(layer, request, policy) for layer in store.layers]
    usable = [(w, i) for i, part in enumerate(found) for w in part.weighed if not w.obstacles]
    # The first of equals: of the layer that comes first, and there of the device most alike.
    best = min(usable, key=lambda item: _rank(item, request), default=None)
    damage = _once((*request.damage, *(error for part in found for error in part.damage)))
    broken = tuple(f"damaged: {error}" for error in damage)
    misfits = tuple(
        f"{part.layer.name} is passed over: {text}"
        for part in found
        if part.layer.package
        for weighed in part.weighed
        for text in weighed.misfit
    )
    if best is None:
        considered = tuple(_considered(found, None))
        refused = [_placed(text, w) for p in found for w in p.weighed for text in w.obstacles]
        reasons = (*broken, *(refused or [miss_reason(store, request)]))
        missed = Resolution(reasons=reasons, key=request.key, considered=considered)
        return Answer(missed, damage, misfits)
    winner, index = best
    chosen = winner.considered
    passed_over = _passed_over(found, index, winner)
    served = Resolution(
        config=winner.entry.config,
        status=chosen.status,
        fresh=chosen.fresh,
        entry=winner.entry,
        layer=chosen.layer,
        reasons=(*winner.reasons, *passed_over, *broken),
        key=chosen.key,
        considered=tuple(_considered(found, winner)),
    )
    return Answer(served, damage, misfits)


def _rank(item: tuple[Weighed, int], request: Request) -> tuple[Rank, int, float]:
    """Where no device is named, the least latency decides among those of a layer."""
    weighed, index = item
    latency_us = weighed.entry.latency_us if request.target.device is None else 0.0
    return weighed.rank, index, latency_us


def _passed_over(found: Sequence[_Found], index: int, winner: Weighed) -> Iterator[str]:
    """Why entries were passed over that would have answered otherwise.

    After an answer that nothing comes before, what lower layers hold is of no account.
    """
    chosen = winner.considered
    final = chosen.status == EXACT and chosen.fresh is not False
    for part in found[: index + 1]:
        for weighed in part.weighed:
            if not weighed.obstacles and weighed.rank > winner.rank:
                yield _placed(weighed.gives_way_to(winner), weighed)
    for part in found[: index + 1] if final else found:
        for weighed in part.weighed:
            for text in weighed.obstacles:
                yield _placed(text, weighed)


def _placed(text: str, weighed: Weighed) -> str:
    return f"{text} ({weighed.considered.layer}: {weighed.considered.key})"


def _considered(found: Sequence[_Found], winner: Weighed | None) -> Iterator[Considered]:
    """The trace of the look-up: every layer, and every entry that was weighed."""
    for layer, weighed, damage in found:
        path = str(layer.database.path)
        if damage:
            yield Considered(layer.name, path, DAMAGED, why=tuple(map(str, damage)))
        elif not weighed:
            yield Considered(layer.name, path, NOTHING)
        for one in weighed:
            considered = one.considered
            if winner is not None and one is not winner and considered.outcome == SERVED:
                why = (one.gives_way_to(winner),)
                considered = replace(considered, outcome=OUTRANKED, why=why)
            yield considered


def _in_layer(layer: Layer, request: Request, policy: str) -> _Found:
    """What one layer holds for `request`.

    Of each device that is the smallest box that can be served, after those smaller ones that can't:
    an outdated entry doesn't hide a valid one. Damage does, as what is in it can't be known: of the
    device asked about or, where another one would answer, of any.
    """
    arch, device = request.target
    damage = list(layer.database.unreadable(arch))
    shard = layer.database.shard(request.kernel_id, arch)
    if shard is None:
        return _Found(layer, (), tuple(damage))
    weighed: list[Weighed] = []
    try:
        if device is not None:
            weighed += _of_device(layer, shard, device, request, policy)
        if not any(one.considered.status == EXACT and not one.obstacles for one in weighed):
            for other in _others(shard, arch, device):
                weighed += _of_device(layer, shard, other, request, policy)
    except DatabaseError as error:
        damage.append(error)
        # What was weighed before may have been outranked by what is damaged.
        weighed = [one for one in weighed if one.obstacles]
    return _Found(layer, tuple(weighed), tuple(damage))


def _of_device(
    layer: Layer, shard: Shard, device: DeviceId, request: Request, policy: str
) -> Iterator[Weighed]:
    """The device's entries, smallest box first, up to one that no larger box's can come before.

    Then those pinned.
    """
    final = False
    for bucket, key in shard.holding(device.name, request.shape):
        if not final:
            shard.check_smaller(device.name, request.shape, bucket)
        elif not shard.is_pinned(key):
            continue
        one = weigh(layer, key, shard.entry(key), request, measured_on=device, policy=policy)
        yield one
        final = final or one.is_final
    if not final:
        shard.check_smaller(device.name, request.shape, None)


def _others(shard: Shard, arch: str, device: DeviceId | None) -> list[DeviceId]:
    """The other devices of the arch, the one most like `device` first."""
    names = (*shard.device_names, *shard.suspected_names)
    others = [DeviceId(arch, name) for name in names if device is None or name != device.name]
    return others if device is None else sorted(others, key=lambda d: unlikeness(d, device))


def _once(errors: Sequence[DatabaseError]) -> tuple[DatabaseError, ...]:
    return tuple({str(error): error for error in errors}.values())
