"""What to say of a miss: the nearest key that is held, and the command that would tune."""

from __future__ import annotations

import functools
import math
import shlex
from typing import TYPE_CHECKING

from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import part_contains
from lfbo_aot.registry.buckets import part_text
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import KNOWN
from lfbo_aot.registry.dims import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lfbo_aot.database.database import Database
    from lfbo_aot.database.store import Store
    from lfbo_aot.registry.dims import Part
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.runtime.request import Request

_MOST_COMPARED = 1000
"""Keys; of a larger database the nearest of the first ones is named. A miss must not cost seconds."""

Distance = tuple[bool, bool, int, float]


def miss_reason(store: Store, request: Request) -> str:
    """Why nothing is held for `request`: the key looked up, the nearest one held, what to do."""
    held = nearest_key(store, request)
    parts = [
        f"miss: nothing is held for {request.target.arch}/{request.key}",
        f"nearest held: {held or 'none, this kernel has no entries'}",
    ]
    device = request.target.device
    if device is not None and device not in KNOWN:
        parts.append(f"{device} isn't among the known devices")
    if request.declared is not None and request.shape and not _declared(request):
        if device == INTERPRETER:
            parts.append("the shape isn't among the kernel's small= shapes, so add it there first")
        else:
            text = "the shape is outside every declared bucket, so widen the kernel's dims first"
            parts.append(text)
    parts.append(f"tune it: {tune_command(request)}")
    return "; ".join(parts)


def tune_command(request: Request) -> str:
    """The command line that tunes what was asked, to be run on the device that it is for."""
    dims = (f"{name}={part_text(value)}" for name, value in request.shape.items())
    where = ["--device", "interpreter"] if request.target.device == INTERPRETER else []
    command = shlex.join(["lfbo-aot", "tune", request.kernel_id, *dims, *where])
    # Whether a package announces its kernels can't be told here without looking at all of them.
    own = request.kernel_id.startswith("lfbo_aot.")
    return command if own else f"{command} (with --module where no package announces it)"


def nearest_key(store: Store, request: Request) -> str | None:
    """The key held that is most like the one asked, as `arch/device|bucket`; None without any.

    The same device comes before the same arch, then the fewest dims that differ in kind, then the
    least distance of sizes in powers of two.
    """
    best: tuple[Distance, str] | None = None
    seen = 0
    for layer in store.layers:
        for arch, device_name, bucket, key in _held(layer.database, request):
            seen += 1
            if seen > _MOST_COMPARED:
                break
            found = _distance(request, arch, device_name, bucket), f"{arch}/{key}"
            if best is None or found < best:
                best = found
    return best[1] if best else None


def _declared(request: Request) -> bool:
    return any(bucket.contains(request.shape) for bucket in _buckets(tuple(request.declared or ())))


@functools.lru_cache(maxsize=64)
def _buckets(declared: tuple[Bucket | str, ...]) -> tuple[Bucket, ...]:
    """The buckets declared; kept, as a serving loop may miss at one shape after the other."""
    return tuple(Bucket.parse(item) if isinstance(item, str) else item for item in declared)


def _held(database: Database, request: Request) -> Iterator[tuple[str, str, Bucket, str]]:
    """What is held of the kernel: of the arch asked about first, and of the device there."""
    mine, device = request.target
    for arch in sorted(database.archs(), key=lambda arch: (arch != mine, arch)):
        shard = database.shard(request.kernel_id, arch)
        if shard is None:
            continue
        try:
            names = shard.device_names
        except DatabaseError:
            continue
        for name in sorted(names, key=lambda name: (device is None or name != device.name, name)):
            for bucket, key in shard.boxes(name):
                yield arch, name, bucket, key


def _distance(request: Request, arch: str, device_name: str, bucket: Bucket) -> Distance:
    device = request.target.device
    differing, steps = 0, 0.0
    parts = dict(bucket.parts)
    for name, value in request.shape.items():
        part = parts.pop(name, None)
        if part is not None and part_contains(part, value):
            continue
        apart = _steps(part, value)
        differing += apart is None
        steps += apart or 0.0
    other_device = device is not None and device.name != device_name
    return arch != request.target.arch, other_device, differing + len(parts), steps


def _steps(part: Part | None, value: Value) -> float | None:
    """How many doublings lie between a size and a part; None where they can't be compared."""
    if isinstance(value, (bool, str)) or part is None or isinstance(part, (bool, str)):
        return None
    lo, hi = (part.lo, part.hi) if isinstance(part, Interval) else (part, part)
    end = lo if value < lo else hi
    # Not of the quotient: whole numbers may be too large to divide.
    return abs(math.log2(max(value, 1)) - math.log2(max(end, 1))) if value >= 0 else None
