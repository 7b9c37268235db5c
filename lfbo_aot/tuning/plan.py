"""What a run has to do: every declared bucket, and whether the database holds it already."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.database.frozen import thaw
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.buckets import part_contains
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.dims import Interval

if TYPE_CHECKING:
    from collections.abc import Collection
    from collections.abc import Iterable
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.database.database import Database
    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec


@dataclass(frozen=True, slots=True)
class Item:
    """One bucket of one kernel: held by the database, or why it is to be tuned."""

    spec: KernelSpec
    bucket: Bucket
    shape: Mapping[str, Value]
    held: Entry | None
    why: str
    """`missing`, `source changed`, `settings changed`, `asked for again`, or empty where held."""


def make_plan(
    specs: Sequence[KernelSpec],
    device: DeviceId,
    database: Database,
    *,
    where: Mapping[str, Sequence[Value]] | None = None,
    again: bool = False,
    only: Collection[tuple[str, Bucket]] | None = None,
) -> list[Item]:
    """Every bucket of these kernels that holds one of the values that `where` names for a dim.

    `only` restricts them to buckets named by kernel id; None: all. On the interpreter the buckets are the kernels' `small` shapes. Raises UnknownNameError for a dim
    in `where` that none of the kernels has.
    """
    where = where or {}
    for name in where:
        known = {dim for spec in specs for dim in spec.dims}
        if name not in known:
            kind = "dim"
            raise UnknownNameError(kind, name, known)
    items = []
    for spec in specs:
        for bucket in _buckets(spec, device):
            if only is not None and (spec.kernel_id, bucket) not in only:
                continue
            if all(_admits(bucket, name, values) for name, values in where.items()):
                held = _entry(database, spec.kernel_id, device, bucket)
                why = _why(held, spec, again=again)
                items.append(Item(spec, bucket, dict(bucket.point), held if not why else None, why))
    return items


def _buckets(spec: KernelSpec, device: DeviceId) -> Sequence[Bucket]:
    return tuple(dict.fromkeys(spec.small_buckets if device == INTERPRETER else spec.buckets))


def _admits(bucket: Bucket, name: str, values: Sequence[Value]) -> bool:
    part = dict(bucket.parts).get(name)
    return part is not None and any(part_contains(part, value) for value in values)


def _entry(database: Database, kernel_id: str, device: DeviceId, bucket: Bucket) -> Entry | None:
    """The entry of an equal box; None where there is none, or a damaged one."""
    try:
        shard = database.shard(kernel_id, device.arch)
        if shard is None:
            return None
        key = f"{device.name}|{bucket.key}"
        return shard.entry(key) if key in shard.keys else None
    except DatabaseError:
        return None


def _why(held: Entry | None, spec: KernelSpec, *, again: bool) -> str:
    if held is None:
        return "missing"
    if held.status != "measured":
        return f"{held.status}, not measured"
    if held.source != spec.source:
        return "source changed"
    if thaw(held.settings) != json.loads(json.dumps(dict(spec.settings))):
        return "settings changed"
    return "asked for again" if again else ""


def neighbours(
    bucket: Bucket, known: Iterable[tuple[Bucket, Entry]], count: int = 3
) -> list[Entry]:
    """The entries of the nearest other buckets of a kernel, the nearest first.

    Sizes count by their ratio; another value of anything else is further away than any size.
    """
    ranked = sorted(
        ((distance(bucket, other), i, entry) for i, (other, entry) in enumerate(known)),
        key=lambda row: row[:2],
    )
    return [entry for distance, _, entry in ranked if 0 < distance < math.inf][:count]


def distance(bucket: Bucket, other: Bucket) -> float:
    """How unlike two buckets of a kernel are; 0 for equal ones."""
    total = 0.0
    theirs = dict(other.parts)
    for name, part in bucket.parts:
        ours, his = _size(part), _size(theirs.get(name))
        if ours is not None and his is not None:
            total += abs(math.log2(max(ours, 1)) - math.log2(max(his, 1)))
        elif part != theirs.get(name):
            total += 100.0
    return total


def _size(part: object) -> int | None:
    if isinstance(part, Interval):
        return part.hi
    return part if type(part) is int else None
