"""`lfbo-aot pack`: a wheel that holds nothing but a database."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import database_to_read
from lfbo_aot.cli.arguments import find_kernels
from lfbo_aot.cli.arguments import write_file
from lfbo_aot.database.contents import read_folder
from lfbo_aot.database.pack import archs_of
from lfbo_aot.database.pack import default_name
from lfbo_aot.database.pack import default_version
from lfbo_aot.database.pack import pack
from lfbo_aot.database.pack import pick
from lfbo_aot.database.verify import verify
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import normalize_arch

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "pack",
        help="make a wheel that holds nothing but a database",
        description="Make a data-only wheel. Where it is installed, look-ups find its entries by "
        "the entry-point group lfbo_aot.databases; nothing in it is ever imported. Exit status: "
        "0 the wheel is written; 1 the database is damaged or holds nothing for the arch; "
        "2 wrong use.",
        epilog="example: lfbo-aot pack --arch sm90 --database tuned --out dist",
    )
    parser.add_argument(
        "kernels", nargs="*", metavar="KERNEL", help="kernels to pack; default: all"
    )
    parser.add_argument(
        "--arch", action="append", default=[], help="such as sm90; default: all that are held"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder to write to")
    parser.add_argument("--database", metavar="DIR", type=Path, help="default: yours")
    parser.add_argument("--name", help="of the distribution; default: PACKAGE-tuned-ARCH")
    parser.add_argument("--version", help="default: the day of the newest entry, as 2026.12.1")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """0 where the wheel is written, 1 where the database is damaged or has nothing to pack."""
    from importlib import metadata

    folder = database_to_read(args.database)
    archs = [_arch(text) for text in args.arch]
    problems = verify(folder)
    if problems:
        for problem in problems:
            print(problem, file=sys.stderr)
        print("lfbo-aot: error: nothing is packed from a damaged database", file=sys.stderr)
        return 1
    held = read_folder(folder)
    contents = pick(held, archs, find_kernels(args.kernels, held.kernels()))
    missing = sorted({*archs} - {*archs_of(contents)})
    if missing or not contents.entries:
        there = ", ".join(archs_of(held)) or "none"
        what = ", ".join(missing) or "this"
        print(
            f"lfbo-aot: error: {folder} holds no entry for {what}; archs held: {there}",
            file=sys.stderr,
        )
        return 1
    name = args.name or default_name(contents)
    if name is None:
        msg = "the kernels are of several packages; give the distribution a --name"
        raise UsageError(msg)
    version = args.version or default_version(contents)
    try:
        file_name, wheel = pack(contents, name, version, metadata.version("lfbo-aot"))
    except ValueError as error:
        raise UsageError(str(error)) from None
    path = write_file(args.out / file_name, wheel)
    devices = sorted({str(place.device) for place in contents.entries})
    if args.json:
        data = {
            "wheel": str(path),
            "name": name,
            "version": version,
            "archs": archs_of(contents),
            "devices": devices,
            "kernels": list(contents.kernels()),
            "entries": len(contents.entries),
            "bytes": len(wheel),
        }
        print(json.dumps(data, indent=2))
    else:
        print(
            f"{path}: {len(contents.entries)} entries for {', '.join(devices)}, {len(wheel)} bytes"
        )
    return 0


def _arch(text: str) -> str:
    if "/" in text:
        msg = f"--arch {text}: a wheel holds all devices of an arch; give the arch, such as sm90"
        raise UsageError(msg)
    try:
        return normalize_arch(text)
    except UnknownNameError as error:
        raise UsageError(str(error)) from None
