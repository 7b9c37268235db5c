"""`lfbo-aot import`: what an archive holds, merged into a database."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import write_file
from lfbo_aot.cli.merging import add_rule
from lfbo_aot.cli.merging import database_to_write
from lfbo_aot.cli.merging import report
from lfbo_aot.database.archive import read_archive
from lfbo_aot.database.combine import ADDED
from lfbo_aot.database.combine import REPLACED
from lfbo_aot.database.combine import combine
from lfbo_aot.database.contents import folder_files
from lfbo_aot.database.contents import read_files
from lfbo_aot.database.job import find_missing
from lfbo_aot.database.origins import ORIGINS
from lfbo_aot.database.origins import add_origins
from lfbo_aot.database.origins import origin_line
from lfbo_aot.database.store import user_database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lfbo_aot.database.archive import Archive
    from lfbo_aot.database.combine import Outcome


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "import",
        help="merge what an archive holds into a database",
        description="Merge what archives of `lfbo-aot export` hold into a database, and say what "
        "there is to tune. Nothing in an archive is imported or run. Exit status: 0 merged; "
        "1 there are conflicts, something was refused, or an archive is damaged; 2 wrong use.",
        epilog="example: lfbo-aot import result.zip --into tuned --rule best",
    )
    parser.add_argument("archives", nargs="+", metavar="FILE", type=Path, help="such as job.zip")
    parser.add_argument(
        "--into", metavar="DIR", type=Path, help="the database to write; default: yours"
    )
    add_rule(parser)
    parser.add_argument(
        "--modules",
        metavar="DIR",
        type=Path,
        help="write the files of kernels that came along to DIR; look at them before you run them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """0 where all was merged, 1 where there were conflicts, or something was refused."""
    into = database_to_write(args.into or user_database())
    for path in args.archives:
        if not path.is_file():
            msg = f"no such file: {path}"
            raise UsageError(msg)
    archives = [read_archive(path) for path in args.archives]
    modules = _modules(archives, args.modules)
    outcome = combine(into, [archive.contents for archive in archives], args.rule)
    if outcome.written:
        _note_origins(into, archives, outcome)
        for path, content in modules.items():
            write_file(path, content)
    left = _left(archives, into) if outcome.written else {}
    commands = [_command(archives[i], into, args.modules) for i in left]
    if args.json:
        rows = [{"archive": a.contents.name, **a.job.to_json()} for a in archives]
        written = [str(path) for path in modules] if outcome.written else []
        return report(outcome, into, args, archives=rows, modules=written, commands=commands)
    for archive in archives:
        origin = ", ".join(f"{name} {text}" for name, text in archive.job.origin.items())
        print(f"{archive.contents.name}: {origin}")
    status = report(outcome, into, args)
    if outcome.written:
        _say_of_modules(archives, list(modules))
        for (index, count), command in zip(left.items(), commands, strict=True):
            target = archives[index].job.target
            what = (
                f"{count} buckets are missing{f' on {target}' if target else ''}" if count else ""
            )
            print(f"{what or 'what the file of kernels declares is missing'}; to tune: {command}")
    return status


def _say_of_modules(archives: Sequence[Archive], written: Sequence[Path]) -> None:
    for path in written:
        print(f"{path}: a file of kernels, not run")
    left = sorted({name for archive in archives for name in archive.modules} if not written else ())
    if left:
        print(f"files of kernels came along, and --modules DIR writes them: {', '.join(left)}")


def _modules(archives: Sequence[Archive], folder: Path | None) -> dict[Path, bytes]:
    """The files of kernels by where they are to go; UsageError where another file is there."""
    found: dict[Path, bytes] = {}
    for archive in archives if folder is not None else ():
        for name, content in archive.modules.items():
            path = (Path() if folder is None else folder).absolute() / name
            there = path.read_bytes() if path.is_file() else found.get(path, content)
            if path.is_symlink() or there != content:
                msg = f"--modules {folder}: another {name} is there; choose an empty folder"
                raise UsageError(msg)
            found[path] = content
    return found


def _note_origins(into: Path, archives: Sequence[Archive], outcome: Outcome) -> None:
    lines = []
    for archive in archives:
        name = archive.contents.name
        brought = [c for c in outcome.of(ADDED, REPLACED) if c.source == name and c.bucket]
        if brought:
            lines.append(origin_line(archive.digest, archive.job.origin, brought))
    content = add_origins(into, lines)
    if content is not None:
        write_file(into / ORIGINS, content)


def _left(archives: Sequence[Archive], into: Path) -> dict[int, int]:
    """How many buckets of each archive's list are missing in `into` too, by its place; 0 unknown.

    Archives with nothing left to tune aren't there. Of kernels that come along as text, and that no
    database declares yet, nothing is known before they are run.
    """
    held = read_files(str(into), folder_files(into))
    left: dict[int, int] = {}
    for index, archive in enumerate(archives):
        job = archive.job
        here = {(m.kernel_id, m.bucket) for m in find_missing(held, job.target, job.where)}
        count = sum((m.kernel_id, m.bucket) in here for m in job.missing)
        if count or (archive.modules and not archive.contents.declarations):
            left[index] = count
    return left


def _command(archive: Archive, into: Path, modules: Path | None) -> str:
    """The command line that tunes what the archive lists."""
    words = ["lfbo-aot", "tune", *archive.job.tune_words()]
    for name in archive.modules:
        words += ["--module", str((modules or Path()).absolute() / name)]
    return shlex.join([*words, "--into", str(into)])
