"""The look-up itself: a pure function of the store, the request and the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import NamedTuple

from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import known
from lfbo_aot.registry.layout import layout_text
from lfbo_aot.registry.layout import same_layout
from lfbo_aot.runtime.environment import check
from lfbo_aot.runtime.nearest import miss_reason
from lfbo_aot.runtime.resolution import EXACT
from lfbo_aot.runtime.resolution import IMPORTED
from lfbo_aot.runtime.resolution import SAME_ARCH
from lfbo_aot.runtime.resolution import SERVED_BY
from lfbo_aot.runtime.resolution import TRANSFERRED
from lfbo_aot.runtime.resolution import Resolution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.database.store import Layer
    from lfbo_aot.database.store import Store
    from lfbo_aot.runtime.request import Request

_STATUS = {"measured": EXACT, "imported": IMPORTED, "transferred": TRANSFERRED}
_RANK = {status: rank for rank, status in enumerate(SERVED_BY)}
_FRESHNESS = {True: 0, None: 1, False: 2}
_FRESH = {True: "fresh", None: "not checked", False: "stale"}


class Answer(NamedTuple):
    """A resolution, and the damage that was met on the way to it."""

    resolution: Resolution
    damage: tuple[DatabaseError, ...]
    misfits: tuple[str, ...] = ()
    """What installed data packages hold for another source or other settings of the kernel."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entry whose box holds the shape, and how it may be served."""

    key: str
    entry: Entry
    layer: str
    status: str
    fresh: bool | None
    obstacles: tuple[str, ...]
    """Why it isn't served; empty where it is."""
    reasons: tuple[str, ...]
    """What is to be said of it where it is served."""
    misfit: tuple[str, ...] = ()
    """Those of the obstacles that are the kernel's: another source, other settings."""
    soft: tuple[str, ...] = ()
    """What makes it stale."""

    def rank(self) -> tuple[int, int]:
        return _RANK[self.status], _FRESHNESS[self.fresh]


def look_up(store: Store, request: Request, policy: str) -> Answer:
    """The answer to `request`: by status, then freshness, then layer, then latency.

    In each layer only the smallest box counts of those that hold the shape and can be served. Reads
    files where they haven't been read yet, and nothing else.
    """
    damage = list(request.damage)
    best: _Candidate | None = None
    best_rank: tuple[int, int, int, float] | None = None
    served: list[tuple[int, _Candidate]] = []
    refused: list[str] = []
    misfits: list[str] = []
    for index, layer in enumerate(store.layers):
        for found in _in_layer(layer, request, policy, damage):
            if found.obstacles:
                refused += [f"{text} ({layer.name}: {found.key})" for text in found.obstacles]
                if layer.package and found.misfit:
                    misfits += [f"{layer.name} is passed over: {text}" for text in found.misfit]
                continue
            served.append((index, found))
            rank = (*found.rank(), index, found.entry.latency_us)
            if best_rank is None or rank < best_rank:
                best, best_rank = found, rank
        if best is not None and best.status == EXACT and best.fresh is not False:
            break  # nothing below can come before it
    broken = tuple(f"damaged: {error}" for error in damage)
    if best is None or best_rank is None:
        reasons = (*broken, *(refused or [miss_reason(store, request)]))
        missed = Resolution(reasons=reasons, key=request.key)
        return Answer(missed, tuple(damage), tuple(misfits))
    found_it = Resolution(
        config=best.entry.config,
        status=best.status,
        fresh=best.fresh,
        entry=best.entry,
        layer=best.layer,
        reasons=(*best.reasons, *_outranked(served, best, best_rank[2]), *refused, *broken),
        key=best.key,
    )
    return Answer(found_it, tuple(damage), tuple(misfits))


def _outranked(
    served: list[tuple[int, _Candidate]], best: _Candidate, best_index: int
) -> Iterator[str]:
    """Which entries of the layers above could have been served, and gave way to a better one."""
    for index, other in served:
        if index < best_index:
            mine, its = other.rank(), best.rank()
            if mine[0] != its[0]:
                text = f"status: {other.status} comes after {best.status}"
            else:
                text = f"freshness: {_FRESH[other.fresh]} comes after {_FRESH[best.fresh]}"
                text += "".join(f"; {reason}" for reason in other.soft)
            yield f"{text} ({other.layer}: {other.key})"


def _in_layer(
    layer: Layer, request: Request, policy: str, damage: list[DatabaseError]
) -> Iterator[_Candidate]:
    """What one layer holds for `request`; what is broken is added to `damage`.

    Of each device that is the smallest box that can be served, after those smaller ones that can't:
    an outdated entry doesn't hide a valid one. Damage does, as what is in it can't be known.
    """
    arch, device = request.target
    damage += layer.database.unreadable(arch)
    shard = layer.database.shard(request.kernel_id, arch)
    if shard is None:
        return
    try:
        # A later issue adds the arch's other devices, as `same_arch`, where a device is named.
        held = (*shard.device_names, *shard.suspected_names)
        names = held if device is None else (device.name,)
    except DatabaseError as error:
        damage.append(error)
        return
    for name in names:
        measured_on = DeviceId(arch, name)
        try:
            for key in shard.matching(name, request.shape):
                found = _candidate(
                    layer.name,
                    key,
                    shard.entry(key),
                    request,
                    measured_on=measured_on,
                    policy=policy,
                )
                yield found
                if not found.obstacles:
                    break
        except DatabaseError as error:
            if str(error) not in map(str, damage):
                damage.append(error)


def _candidate(
    layer: str, key: str, entry: Entry, request: Request, *, measured_on: DeviceId, policy: str
) -> _Candidate:
    asked = request.target.device
    status = _STATUS[entry.status]
    reasons: list[str] = []
    if asked is None and status == EXACT:
        status = SAME_ARCH
        reasons.append(f"same_arch: measured on {measured_on}")
    verdict = check(entry, request.environment)
    obstacles = list(verdict.hard)
    if policy not in SERVED_BY[status]:
        obstacles.append(f"policy: {policy} doesn't serve {status}")
    elif policy == "exact" and verdict.fresh is False:
        obstacles.append(f"policy: exact doesn't serve stale entries; {', '.join(verdict.soft)}")
    obstacles += _layout_obstacles(entry, request)
    if asked is not None:
        obstacles += _resource_obstacles(entry, asked)
    return _Candidate(
        key=key,
        entry=entry,
        layer=layer,
        status=status,
        fresh=verdict.fresh,
        obstacles=tuple(obstacles),
        reasons=(*reasons, *verdict.soft, *verdict.unchecked),
        misfit=verdict.hard,
        soft=verdict.soft,
    )


def _layout_obstacles(entry: Entry, request: Request) -> list[str]:
    live = request.layout
    if live is None or same_layout(entry.layout, live):
        return []
    return [f"layout: entry={layout_text(entry.layout)} here={layout_text(live)}"]


def _resource_obstacles(entry: Entry, device: DeviceId) -> list[str]:
    """What of the entry's resources the device asked about doesn't have."""
    limits = known(device)
    if limits is None:
        return []
    threads = entry.resources.get("threads", 0)
    needs = [
        ("shared", entry.resources.get("shared", 0), limits.shared_per_block),
        ("threads", threads, limits.threads_per_block),
    ]
    if device.arch.startswith("sm"):
        # Elsewhere a thread's registers aren't drawn from one file for the block.
        registers = entry.resources.get("regs", 0) * threads
        needs.append(("registers", registers, limits.registers_per_block))
    return [
        f"resources: {name} entry={needed} limit={limit} of {device}"
        for name, needed, limit in needs
        if needed > limit
    ]
