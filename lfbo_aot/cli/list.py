"""`lfbo-aot list`: the entries of all databases, by layer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import add_database
from lfbo_aot.cli.arguments import parse_dims
from lfbo_aot.cli.arguments import pick_store
from lfbo_aot.cli.streams import json_text
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.buckets import part_contains
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime.request import find_target

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from collections.abc import Mapping

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.database.shard import Shard
    from lfbo_aot.database.store import Layer
    from lfbo_aot.database.store import Store
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import Target
    from lfbo_aot.registry.dims import Value


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "list",
        help="list the entries of the databases",
        description="List the entries of the databases in the order in which they are asked. "
        "Exit status: 0 done; 1 some of them are damaged; 2 wrong use.",
    )
    parser.add_argument(
        "dims", nargs="*", metavar="KERNEL | dim=value", help="only those of a kernel, of a shape"
    )
    parser.add_argument("--arch", help="only those of an arch, or of a device of it")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    add_database(parser)


def run(args: argparse.Namespace) -> int:
    """0, or 1 where something that should be listed is damaged."""
    names = [word for word in args.dims if "=" not in word]
    shape = parse_dims(word for word in args.dims if "=" in word)
    if len(names) > 1:
        msg = f"{names[1]!r} is a second kernel; name one, and shapes as dim=value"
        raise UsageError(msg)
    store = pick_store(args.database)
    kernels = (store.find(names[0]),) if names else store.kernels()
    _check_dims(store, kernels, shape)
    target = None if args.arch is None else find_target(store, args.arch)
    damage: list[str] = []
    rows = [
        row
        for kernel_id in kernels
        for layer in store.layers
        for row in _rows(layer, kernel_id, target, shape, damage)
    ]
    closed = {str(e): None for layer in store.layers for e in layer.database.unreadable()}
    damage = [*closed, *damage]
    if args.json:
        print(json_text([row.as_json() for row in rows]))
    else:
        print(_table(rows))
    for text in damage:
        print(f"lfbo-aot: damaged: {text}", file=sys.stderr)
    return int(bool(damage))


@dataclass(frozen=True, slots=True)
class _Row:
    kernel_id: str
    bucket: Bucket
    device: DeviceId
    layer: str
    entry: Entry

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel_id,
            "bucket": self.bucket.key,
            "arch": str(self.device),
            "latency_us": self.entry.latency_us,
            "default_us": self.entry.default_us,
            "gain": self.entry.gain,
            "default": self.entry.default,
            "pinned": self.entry.pinned,
            "layer": self.layer,
            "measured": self.entry.measured,
            "versions": dict(self.entry.versions),
        }

    def as_text(self) -> tuple[str, ...]:
        entry = self.entry
        gain = "default" if entry.default else "" if entry.gain is None else f"{entry.gain:.2f}x"
        default = "doesn't run" if entry.default_us is None else f"{entry.default_us:.2f}"
        latencies = f"{entry.latency_us:.2f}", default
        layer = f"{self.layer} (pinned)" if entry.pinned else self.layer
        return self.kernel_id, self.bucket.key, str(self.device), *latencies, gain, layer


def _rows(
    layer: Layer,
    kernel_id: str,
    target: Target | None,
    shape: Mapping[str, Value],
    damage: list[str],
) -> Iterator[_Row]:
    for arch in layer.database.archs():
        shard = layer.database.shard(kernel_id, arch)
        if shard is None or (target is not None and target.arch != arch):
            continue
        for name, bucket, key in _boxes(shard, damage):
            device = DeviceId(arch, name)
            wanted = target is None or target.device in (None, device)
            if wanted and _holds(bucket, shape):
                try:
                    yield _Row(kernel_id, bucket, device, layer.name, shard.entry(key))
                except DatabaseError as error:
                    damage.append(str(error))


def _boxes(shard: Shard, damage: list[str]) -> list[tuple[str, Bucket, str]]:
    """The device, bucket and key of each line, in the file's order."""
    try:
        order = {key: place for place, key in enumerate(shard.keys)}
    except DatabaseError as error:
        damage.append(str(error))
        return []
    damage += map(str, shard.problems)
    found = [(n, bucket, key) for n in shard.device_names for bucket, key in shard.boxes(n)]
    return sorted(found, key=lambda box: order[box[2]])


def _holds(bucket: Bucket, shape: Mapping[str, Value]) -> bool:
    parts = dict(bucket.parts)
    return all(name in parts and part_contains(parts[name], shape[name]) for name in shape)


def _check_dims(store: Store, kernels: tuple[str, ...], shape: Mapping[str, Value]) -> None:
    """UnknownNameError for a dim that none of the kernels has; passed over where one is undeclared."""
    declared = [store.declaration(kernel_id)[0] for kernel_id in kernels]
    known = {name for found in declared if found is not None for name in found.dims}
    for name in shape:
        if name not in known and None not in declared:
            kind = "dim"
            raise UnknownNameError(kind, name, known)


def _table(rows: list[_Row]) -> str:
    if not rows:
        return "no entries"
    head = ("kernel", "bucket", "device", "latency us", "default us", "gain", "layer")
    lines = [head, *(row.as_text() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    numbers = range(3, 6)
    return "\n".join(
        "  ".join(
            cell.rjust(widths[i]) if i in numbers else cell.ljust(widths[i])
            for i, cell in enumerate(line)
        ).rstrip()
        for line in lines
    )
