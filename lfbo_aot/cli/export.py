"""`lfbo-aot export`: an archive for tuning on another machine, or with what was tuned there."""

from __future__ import annotations

import datetime as dt
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import database_to_read
from lfbo_aot.cli.arguments import find_kernels
from lfbo_aot.cli.arguments import parse_where
from lfbo_aot.cli.arguments import write_file
from lfbo_aot.cli.streams import json_text
from lfbo_aot.database.archive import MODULE
from lfbo_aot.database.archive import make_archive
from lfbo_aot.database.contents import Contents
from lfbo_aot.database.contents import folder_files
from lfbo_aot.database.contents import read_files
from lfbo_aot.database.job import KERNEL_ID
from lfbo_aot.database.job import Job
from lfbo_aot.database.job import admits
from lfbo_aot.database.job import find_missing
from lfbo_aot.database.job import on_target
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import check_arch
from lfbo_aot.registry.devices import parse_target

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.database.job import Where
    from lfbo_aot.registry.devices import Target


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "export",
        help="write an archive for tuning on another machine, or with what was tuned",
        description="Write a database, or a part of it, as one archive, with the list of what is "
        "missing in it. `lfbo-aot import` reads it elsewhere. Exit status: 0 the archive is "
        "written; 1 the database is damaged; 2 wrong use.",
        epilog="example: lfbo-aot export layer_norm n=5120 --arch sm100 --database tuned "
        "--out job.zip",
    )
    parser.add_argument(
        "dims",
        nargs="*",
        metavar="KERNEL|dim=value[,value]",
        help="only these kernels, and buckets that hold one of these values",
    )
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="such as job.zip")
    parser.add_argument("--database", metavar="DIR", type=Path, help="default: yours")
    parser.add_argument(
        "--arch", help="only entries for it, and what is missing on it: sm90, 'sm90/NVIDIA H200'"
    )
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="FILE.py",
        type=Path,
        help="a file of kernels to take along, as text; packages are installed there instead",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """0: the archive is written."""
    names = [word for word in args.dims if "=" not in word]
    where = parse_where([word for word in args.dims if "=" in word])
    modules = _modules(args.module)
    folder = database_to_read(args.database)
    held = read_files(str(folder), folder_files(folder))
    target = None if args.arch is None else _target(args.arch, held)
    kernels = _kernels(names, held, any_name=bool(modules))
    if not held.kernels() and not modules:
        msg = f"{folder} holds no kernel; tune first, or name files of kernels with --module"
        raise UsageError(msg)
    contents = _part(held, kernels, target, where)
    job = Job(
        origin=_origin(),
        target=target,
        kernels=kernels,
        where=where,
        missing=find_missing(contents, target, where),
        modules=tuple(sorted(modules)),
    )
    path = write_file(args.out, make_archive(job, contents, modules))
    if args.json:
        data = {
            "archive": str(path),
            "database": str(folder),
            "entries": len(contents.entries),
            **job.to_json(),
        }
        print(json_text(data))
    else:
        on = f" on {target}" if target else ""
        with_modules = f", {', '.join(job.modules)}" if modules else ""
        print(
            f"{path}: {len(contents.declarations)} kernels, {len(contents.entries)} entries, "
            f"{len(job.missing)} buckets missing{on}{with_modules}"
        )
    return 0


def _target(text: str, held: Contents) -> Target:
    """The target written `text`; UnknownNameError for an arch that neither exists nor is held."""
    return check_arch(parse_target(text), {place.device.arch for place in held.entries})


def _modules(paths: Sequence[Path]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in paths:
        if not path.is_file() or not MODULE.fullmatch(path.name):
            msg = f"--module {path}: not a .py file; install a package on the other machine instead"
            raise UsageError(msg)
        if path.name in found:
            msg = f"--module {path}: a second file of that name"
            raise UsageError(msg)
        found[path.name] = path.read_bytes()
    return found


def _kernels(names: Sequence[str], held: Contents, *, any_name: bool) -> tuple[str, ...]:
    """The kernels named. Of those in a file that comes along, the database may not know yet."""
    found: list[str] = []
    for name in names:
        try:
            found += find_kernels([name], held.kernels())
        except UnknownNameError:
            if not any_name or not KERNEL_ID.fullmatch(name):
                raise
            found.append(name)
    return tuple(dict.fromkeys(found))


def _part(held: Contents, kernels: Sequence[str], target: Target | None, where: Where) -> Contents:
    """What of a database is meant; UnknownNameError for a dim that none of the kernels has."""
    kept = frozenset(kernels or held.kernels())
    dims = {d for k, found in held.declarations.items() if k in kept for d in found.dims}
    for name in where:
        if dims and name not in dims:
            kind = "dim"
            raise UnknownNameError(kind, name, dims)
    return held.only(
        lambda place: (
            place.kernel_id in kept
            and on_target(place.device, target)
            and admits(place.bucket, where)
        ),
        kept,
    )


def _origin() -> Mapping[str, str]:
    from importlib import metadata

    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = dt.datetime.now(tz=dt.timezone.utc)
    day = dt.datetime.fromtimestamp(int(epoch), tz=dt.timezone.utc) if epoch.isdecimal() else now
    return {
        "by": f"lfbo-aot {metadata.version('lfbo-aot')}",
        "machine": platform.node(),
        "day": day.date().isoformat(),
    }
