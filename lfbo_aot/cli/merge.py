"""`lfbo-aot merge`: the entries of other databases into one, by a rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import existing_folder
from lfbo_aot.cli.merging import add_rule
from lfbo_aot.cli.merging import database_to_write
from lfbo_aot.cli.merging import report
from lfbo_aot.database.combine import combine
from lfbo_aot.database.contents import read_folder

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "merge",
        help="merge the entries of other databases into one",
        description="Merge the entries and declarations of other databases into one. The order of "
        "the databases doesn't matter. Exit status: 0 merged; 1 there are conflicts, or something "
        "was refused or is damaged; 2 wrong use.",
        epilog="example: lfbo-aot merge from-h200 from-b200 --into tuned --rule best",
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", type=Path, help="a database")
    parser.add_argument(
        "--into", metavar="DIR", type=Path, required=True, help="the database to write"
    )
    add_rule(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """0 where all was merged, 1 where there were conflicts, or something was refused."""
    into = database_to_write(args.into)
    folders = [existing_folder(path) for path in args.sources]
    outcome = combine(into, [read_folder(folder) for folder in folders], args.rule)
    return report(outcome, into, args, sources=[str(folder) for folder in folders])
