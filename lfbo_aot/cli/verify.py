"""`lfbo-aot verify`: check a database for damage and for what no look-up reaches."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import existing_folder
from lfbo_aot.cli.streams import json_text
from lfbo_aot.database.database import Database
from lfbo_aot.database.database import shard_path
from lfbo_aot.database.problem import Problem
from lfbo_aot.database.store import BUILT_IN
from lfbo_aot.database.store import built_in_database
from lfbo_aot.database.store import package_layers
from lfbo_aot.database.verify import verify

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "verify",
        help="check a database for damage and for what no look-up reaches",
        description="Check a database for damage and for what no look-up reaches. "
        "Exit status: 0 nothing is wrong; 1 something is; 2 wrong use.",
    )
    parser.add_argument(
        "database",
        nargs="?",
        type=Path,
        help="a folder; left out: those of installed data packages, and the one that ships with "
        "lfbo-aot",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """0 where nothing is wrong, 1 where something is."""
    if args.database is None:
        checked = [(layer.name, layer.database.path) for layer in package_layers()]
        checked.append((BUILT_IN, built_in_database()))
    else:
        checked = [("", existing_folder(args.database))]
    reports = [_report(name, path) for name, path in checked]
    if args.json:
        data = reports[-1]
        if args.database is None:
            data = {**data, "packages": reports[:-1]}
        print(json_text(data))
    else:
        for report in reports:
            print("\n".join(_text(report)))
    return int(any(report["problems"] for report in reports))


def _report(name: str, path: Path) -> dict[str, Any]:
    problems = verify(path)
    shards, lines = _count(path)
    return {
        "database": str(path),
        **({"layer": name} if name else {}),
        "shards": shards,
        "lines": lines,
        "problems": [{"file": str(p.file), "line": p.line, "reason": p.reason} for p in problems],
    }


def _text(report: dict[str, Any]) -> list[str]:
    problems = [Problem(Path(p["file"]), p["line"], p["reason"]) for p in report["problems"]]
    found = (
        f"{len(problems)} problem{'' if len(problems) == 1 else 's'}" if problems else "all well"
    )
    counts = f"{report['shards']} shards, {report['lines']} lines"
    return [*map(str, problems), f"{report['database']}: {counts}, {found}"]


def _count(path: Path) -> tuple[int, int]:
    """How many shards the database has, and how many lines they hold."""
    database = Database(path)
    files = [shard_path(path, k, arch) for arch in database.archs() for k in database.kernels()]
    contents: list[bytes] = []
    for file in files:
        with contextlib.suppress(OSError):  # a problem of its own
            if stat.S_ISREG(file.stat().st_mode):
                contents.append(file.read_bytes())
    return len(contents), sum(content.count(b"\n") for content in contents)
