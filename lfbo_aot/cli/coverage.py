"""`lfbo-aot coverage`: what of the declared buckets is covered on which arch or device, and why not."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import environment_of
from lfbo_aot.cli.arguments import existing_folder
from lfbo_aot.cli.arguments import find_kernels
from lfbo_aot.cli.arguments import load_specs
from lfbo_aot.cli.covered import MEASURED
from lfbo_aot.cli.covered import NOTHING
from lfbo_aot.cli.covered import STATES
from lfbo_aot.cli.covered import Attempts
from lfbo_aot.cli.covered import Declared
from lfbo_aot.cli.covered import cover
from lfbo_aot.cli.streams import json_text
from lfbo_aot.database.database import Database
from lfbo_aot.database.store import Layer
from lfbo_aot.database.store import Store
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import Target
from lfbo_aot.runtime import settings as runtime_settings
from lfbo_aot.runtime import state
from lfbo_aot.runtime.environment import Environment
from lfbo_aot.runtime.request import find_target

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.cli.covered import Row


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "coverage",
        help="show which declared buckets are covered on which arch or device",
        description="For each arch or device, kernel and declared bucket: measured, same_arch, "
        "imported, transferred, outdated (held for another source or other settings), failed or "
        "missing, and why. Exit status: 0 done; 1 a database is damaged, or, with --require, a "
        "bucket isn't served by an entry that was measured there; 2 wrong use.",
        epilog="example: lfbo-aot coverage --arch 'sm90/NVIDIA H200' --require tuned",
    )
    parser.add_argument(
        "database", nargs="?", metavar="DB", type=Path, help="only this database; default: all"
    )
    parser.add_argument(
        "--arch",
        action="append",
        metavar="A",
        help="such as 'sm90/NVIDIA H200', or sm90 for any device of it; may be repeated; "
        "default: every arch that the databases hold",
    )
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="KERNEL",
        help="only this kernel, by id or bare name; may be repeated",
    )
    parser.add_argument(
        "--module",
        action="append",
        metavar="MODULE",
        help="module or .py file whose kernels count, as declared now; default: the declarations "
        "that the databases hold",
    )
    parser.add_argument("--require", action="store_true", help="exit 1 unless all is measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """0; or 1 where something is damaged or, with `--require`, not measured."""
    store = _store(args.database)
    targets = _targets(store, args.arch)
    attempts = Attempts.read(runtime_settings.current().state_folder)
    damage = [str(e) for layer in store.layers for e in layer.database.unreadable()]
    kernels = list(_of_modules(args.module) if args.module else _of_store(store, damage))
    if args.kernel:
        declared = [kernel.kernel_id for kernel in kernels]
        wanted = find_kernels(args.kernel, declared if args.module else store.kernels())
        kernels = [kernel for kernel in kernels if kernel.kernel_id in wanted]
    if not kernels and not damage:
        msg = "no kernel is declared; tune one first, or name modules with --module"
        raise UsageError(msg)
    _refuse_interpreter(targets, args.module)
    rows = list(cover(store, kernels, targets, attempts))
    reasons = (reason for row in rows for reason in row.why)
    damage += [r.removeprefix("damaged: ") for r in reasons if r.startswith("damaged: ")]
    damage = list(dict.fromkeys(damage))
    complete = bool(rows) and all(row.status == MEASURED for row in rows)
    if args.json:
        data = {
            "archs": [str(target) for target in targets],
            "complete": complete,
            "counts": _counts(rows),
            "buckets": [row.as_json() for row in rows],
            "damage": damage,
        }
        print(json_text(data))
    elif rows:
        print("\n".join(_as_text(rows)))
    # A journal tells no more than why something is missing, so its damage changes no answer.
    for text in (*damage, *attempts.damage):
        print(f"lfbo-aot: damaged: {text}", file=sys.stderr)
    return int(bool(damage) or (args.require and not complete))


def _store(database: Path | None) -> Store:
    if database is None:
        return state.store()
    folder = existing_folder(database)
    return Store((Layer(str(folder), Database(folder)),))


def _targets(store: Store, archs: Sequence[str] | None) -> list[Target]:
    """Those asked about; else every arch that is held, the interpreter aside."""
    if archs:
        return list(dict.fromkeys(find_target(store, arch) for arch in archs))
    held = sorted({a for layer in store.layers for a in layer.database.archs()})
    found = [Target(arch, None) for arch in held if arch != INTERPRETER.arch]
    if not found:
        msg = "the databases hold no arch; name one with --arch, such as sm90"
        raise UsageError(msg)
    return found


def _refuse_interpreter(targets: Sequence[Target], modules: Sequence[str] | None) -> None:
    if not modules and any(target.arch == INTERPRETER.arch for target in targets):
        msg = (
            f"{INTERPRETER.arch} is tuned at the kernels' small= shapes, which no database lists; "
            "name the kernels' modules with --module"
        )
        raise UsageError(msg)


def _of_store(store: Store, damage: list[str]) -> Iterator[Declared]:
    """The kernels that the store's declarations declare; the others are damage."""
    for kernel_id in store.kernels():
        declaration, broken = store.declaration(kernel_id)
        damage += map(str, broken)
        if declaration is None:
            if not broken:
                damage.append(f"{kernel_id}: has entries and no declaration, so nothing to cover")
            continue
        yield Declared(
            kernel_id,
            tuple(dict.fromkeys(map(Bucket.parse, declaration.buckets))),
            Environment(source=declaration.source, settings=declaration.settings),
        )


def _of_modules(modules: Sequence[str]) -> Iterator[Declared]:
    """The kernels that the modules declare, which are imported for it."""
    for spec in load_specs((), modules):
        yield Declared(
            spec.kernel_id,
            tuple(dict.fromkeys(spec.buckets)),
            environment_of(spec),
            small=tuple(dict.fromkeys(spec.small_buckets)),
        )


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    counts = Counter(row.status for row in rows)
    return {status: counts[status] for status in STATES}


def _as_text(rows: Sequence[Row]) -> Iterator[str]:
    head = None
    for row in rows:
        if head != (row.target, row.kernel_id):
            head = row.target, row.kernel_id
            own = [r for r in rows if (r.target, r.kernel_id) == head]
            counts = ", ".join(f"{n} {status}" for status, n in _counts(own).items() if n)
            yield f"{row.target}  {row.kernel_id}: {counts} of {len(own)}"
        stale = ", stale" if row.fresh is False else ""
        yield f"  {row.status + stale:11} {row.bucket.replace('|', ' ')}"
        yield from (f"              {reason}" for reason in row.why if reason != NOTHING)
