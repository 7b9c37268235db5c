"""What a bucket's search is told of the kernel's other buckets: from the journal, and exactly again.

A search that goes on after an interruption must know what it knew when it began. So its `open`
record names its peers and how many of their trials there were; journals only grow, and those are
found again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.search import Peer
from lfbo_aot.search import Trial
from lfbo_aot.search.peers import NEAREST
from lfbo_aot.tuning import journaling
from lfbo_aot.tuning.devices.device import frozen_point

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Space
    from lfbo_aot.tuning.book import Book
    from lfbo_aot.tuning.journaling import Record

# What the trials of another bucket must share with this one's to tell something of its configs.
_SHARED = ("kernel", "device", "source", "settings", "judged_by", "policy", "versions")
_LEAST_TRIALS = 15


def context_of(spec: KernelSpec, shape: Mapping[str, Value]) -> tuple[float, ...]:
    """A shape as numbers: of sizes the logarithm to base 2, of anything else one for each value."""
    numbers: list[float] = []
    for name in spec.dims:
        value = shape[name]
        if type(value) is int:
            numbers.append(math.log2(max(1, value)))
            continue
        values = dict.fromkeys(bucket.point[name] for bucket in spec.buckets)
        numbers += [float(value == other) for other in values if type(other) is not int]
    return tuple(numbers)


def find_peers(spec: KernelSpec, identity: Record, space: Space, book: Book) -> list[list[Any]]:
    """The nearest buckets that know something, as `[bucket, trials]`; what `open` records hold."""
    own = context_of(spec, identity["shape"])
    found = []
    for bucket in book.buckets():
        if bucket == identity["bucket"]:
            continue
        records = book.of(bucket)
        trials = _trials(records, identity, space)
        shape = next((r.get("shape") for r in records if r["kind"] == "open"), None)
        if len(trials) >= _LEAST_TRIALS and shape is not None and shape.keys() == spec.dims.keys():
            far = math.dist(own, context_of(spec, shape))
            found.append((far, bucket, len(trials)))
    return [[bucket, count] for _, bucket, count in sorted(found)[:NEAREST]]


def make_peers(spec: KernelSpec, identity: Record, space: Space, book: Book) -> tuple[Peer, ...]:
    """The peers that `identity` names, with as many of their trials as there were then."""
    peers = []
    for bucket, count in identity["peers"]:
        records = book.of(bucket)
        shape = next(r["shape"] for r in records if r["kind"] == "open")
        trials = _trials(records, identity, space)[:count]
        peers.append(Peer(context_of(spec, shape), tuple(trials)))
    return tuple(peers)


def _trials(records: Sequence[Record], identity: Record, space: Space) -> list[Trial]:
    """A bucket's trials that tell something here, in the order in which they were made."""
    wanted = {key: journaling.normalized(identity)[key] for key in _SHARED}
    kinds = [[tunable.name, tunable.kind] for tunable in space.tunables]
    sessions = {
        r["session"]
        for r in records
        if r["kind"] == "open"
        and {key: r.get(key) for key in _SHARED} == wanted
        and [[t["name"], t["kind"]] for t in r["space"]["tunables"]] == kinds
    }
    return [
        Trial(
            frozen_point(r["point"]),
            r["status"],
            r.get("latency_us"),
            cut=bool(r.get("cut", False)),
            compile_s=r.get("compile_s"),
        )
        for r in records
        if r["kind"] == "trial" and r["session"] in sessions
    ]
