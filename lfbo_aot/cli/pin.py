"""`lfbo-aot pin`: have one entry served before all others of its device, or no more."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import is_read
from lfbo_aot.cli.arguments import is_same
from lfbo_aot.cli.arguments import pick_store
from lfbo_aot.cli.arguments import unread_text
from lfbo_aot.cli.arguments import write_file
from lfbo_aot.cli.get import add_question
from lfbo_aot.cli.get import ask
from lfbo_aot.cli.merging import database_to_write
from lfbo_aot.cli.streams import json_text
from lfbo_aot.database.database import Database
from lfbo_aot.database.database import declaration_path
from lfbo_aot.database.database import shard_path
from lfbo_aot.database.files import read_file
from lfbo_aot.database.line import parse_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.merge import locked
from lfbo_aot.database.merge import merge
from lfbo_aot.database.merge import real_path
from lfbo_aot.database.shard import split_lines
from lfbo_aot.database.store import BUILT_IN
from lfbo_aot.database.store import user_database
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import MissError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime.resolution import SERVED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection
    from collections.abc import Sequence

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.database.store import Store
    from lfbo_aot.runtime.request import Request
    from lfbo_aot.runtime.resolution import Resolution


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "pin",
        help="have one entry served before all others, or no more",
        description="Pin the entry that answers a look-up: it is copied into your database, or "
        "DIR, and served on its device before all other entries there, whatever is tuned, "
        "upgraded or laid over it later, as long as the kernel's source and settings are the "
        "entry's. Only what was measured can be pinned: to try another config, tune. "
        "Exit status: 0 it is pinned, or with --off no more; 1 there is no such entry; 2 wrong "
        "use.",
        epilog="example: lfbo-aot pin layer_norm m=4096 n=5120 dtype=bfloat16 "
        "--arch 'sm90/NVIDIA H200'",
    )
    add_question(parser)
    parser.add_argument(
        "--into", metavar="DIR", type=Path, help="database to write; default: yours"
    )
    parser.add_argument(
        "--off", action="store_true", help="undo it: unpin what is pinned for the shape in there"
    )


def run(args: argparse.Namespace) -> int:
    """0: it is pinned, or with `--off` no more. MissError where there is nothing of the kind."""
    into = database_to_write(args.into or user_database())
    request, resolution = ask(args)
    if args.off:
        keys = _unpin(pick_store(args.database), request, into)
        what = "unpinned"
    else:
        keys = [_pin(pick_store(args.database), request, resolution, into)]
        what = "pinned"
    if args.json:
        data = {
            "kernel": request.kernel_id,
            "shape": request.shape,
            "arch": str(request.target),
            "into": str(into),
            what: keys,
        }
        print(json_text(data))
        return 0
    for key in keys:
        print(f"{what}  {request.kernel_id}  {request.target.arch}/{key}  in {into}")
    if not args.off and not is_read(into):
        print(unread_text(into))
    return 0


def _pin(store: Store, request: Request, resolution: Resolution, into: Path) -> str:
    """Copy the entry that answers into `into`, pinned; its key."""
    found = next((one for one in resolution.considered if one.outcome == SERVED), None)
    if found is None or found.entry is None:
        msg = f"nothing to pin: {'; '.join(resolution.reasons)}"
        raise MissError(msg)
    name, bucket = split_key(found.key)
    device, asked = DeviceId(found.arch, name), request.target.device
    if asked is not None and device != asked:
        msg = (
            f"what answers for {asked} was measured on {device}, and a pin holds on the entry's own "
            f"device only; tune on {asked}, or pin it there with --arch {str(device)!r}"
        )
        raise UsageError(msg)
    pinned = replace(found.entry, pinned=True)
    _refuse_to_lose(into, request.kernel_id, device, found.key, pinned)
    declared = []
    if Database(into).declaration(request.kernel_id) is None:
        declaration, damage = store.declaration(request.kernel_id)
        if declaration is None:
            raise damage[0] if damage else MissError(f"{request.kernel_id} isn't declared")
        declared.append(declaration)
    merge(into, {request.kernel_id: {(device, bucket): pinned}}, declared)
    return found.key


def _refuse_to_lose(into: Path, kernel_id: str, device: DeviceId, key: str, pinned: Entry) -> None:
    """DatabaseError where `into` has another entry of that key, which the pinned one would replace."""
    shard = Database(into).shard(kernel_id, device.arch)
    if shard is not None and key in shard.keys:
        held = shard.entry(key)
        if replace(held, pinned=True) != pinned:
            msg = (
                f"holds another entry for {key}, measured {held.measured}, which would be lost; "
                "pin into another database with --into"
            )
            raise DatabaseError(shard.path, msg)


def _unpin(store: Store, request: Request, into: Path) -> list[str]:
    """Unpin in `into` what is pinned for the shape; the keys. MissError where nothing is."""
    arch, device = request.target
    shard = Database(into).shard(request.kernel_id, arch)
    names = () if shard is None else shard.device_names
    found = [
        (key, shard.entry(key))
        for name in names
        if shard is not None and (device is None or device.name == name)
        for _, key in shard.holding(name, request.shape)
        if shard.is_pinned(key)
    ]
    if not found:
        msg = f"nothing is pinned for {arch}/{request.key} in {into}"
        raise MissError(msg)
    plain = {key: replace(entry, pinned=False) for key, entry in found}
    below = _installed(store) if is_same(into, user_database()) else []
    spare = {
        key
        for key, entry in plain.items()
        if any(_holds(database, request.kernel_id, arch, key, entry) for database in below)
    }
    if spare:  # first, as this reads the whole shard: where it is damaged nothing is written
        _drop(into, request.kernel_id, arch, spare)
    kept = {
        (DeviceId(arch, name), bucket): entry
        for key, entry in plain.items()
        if key not in spare
        for name, bucket in [split_key(key)]
    }
    if kept:
        merge(into, {request.kernel_id: kept}, [])
    if spare:
        _drop_declaration(below, request.kernel_id, into)
    return list(plain)


def _installed(store: Store) -> list[Database]:
    """The databases of data packages and the one that ships, which stay as they are installed.

    What they hold needs no copy in the user's layer, which would only hide what they hold later.
    Folders that are named for a while, or written to, are no reason to delete a line anywhere.
    """
    return [layer.database for layer in store.layers if layer.package or layer.name == BUILT_IN]


def _holds(database: Database, kernel_id: str, arch: str, key: str, entry: Entry) -> bool:
    """Whether that very entry is there; what can't be read isn't, and `verify` says so."""
    shard = database.shard(kernel_id, arch)
    with contextlib.suppress(DatabaseError):
        return shard is not None and key in shard.keys and shard.entry(key) == entry
    return False


def _drop(root: Path, kernel_id: str, arch: str, keys: Collection[str]) -> None:
    """Take lines out of a shard; a shard without any is deleted, and a damaged one left as it is."""
    with locked(root):
        path = shard_path(real_path(root), kernel_id, arch)
        kept = []
        for number, raw in enumerate(split_lines(read_file(path)), start=1):
            try:
                line = parse_line(raw, number)
            except ValueError as error:
                raise DatabaseError(path, str(error), number) from error
            if line.key not in keys:
                kept.append(raw)
        if kept:
            write_file(path, b"".join(raw + b"\n" for raw in kept))
        else:
            path.unlink()


def _drop_declaration(below: Sequence[Database], kernel_id: str, into: Path) -> None:
    """Delete a declaration that no entry needs any more, where one of those `below` equals it."""
    with locked(into), contextlib.suppress(DatabaseError):
        left = Database(into)
        mine = left.declaration(kernel_id)
        used = any(left.shard(kernel_id, arch) is not None for arch in left.archs())
        if mine is not None and not used:
            others = [database.declaration(kernel_id) for database in below]
            if any(other is not None and other.dumps() == mine.dumps() for other in others):
                declaration_path(real_path(into), kernel_id).unlink()
