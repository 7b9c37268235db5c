"""`lfbo-aot tune`: tune what is declared and not held yet, on the device here."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import load_specs
from lfbo_aot.cli.arguments import parse_where
from lfbo_aot.cli.arguments import positive
from lfbo_aot.cli.arguments import seconds
from lfbo_aot.cli.arguments import with_announced
from lfbo_aot.cli.few import add_few_arguments
from lfbo_aot.cli.few import few_json
from lfbo_aot.cli.few import few_text
from lfbo_aot.cli.few import wanted_few
from lfbo_aot.cli.interrupt import one_interrupt
from lfbo_aot.cli.progress import OutputClosed
from lfbo_aot.cli.progress import make_watcher
from lfbo_aot.cli.progress import show
from lfbo_aot.cli.tuned import Told
from lfbo_aot.cli.tuned import list_plan
from lfbo_aot.cli.tuned import print_summary
from lfbo_aot.cli.wanted import read_wanted
from lfbo_aot.cli.wanted import select
from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.merge import merge
from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime import settings as runtime_settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lfbo_aot.cli.wanted import Selection
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.tuning.devices.device import Device
    from lfbo_aot.tuning.few import Reduced
    from lfbo_aot.tuning.parts import Wanted
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.run import Options
    from lfbo_aot.tuning.run import Summary

INTERPRETER_TRIALS = 40
INTERRUPTED = 130
_BEGAN_S = time.monotonic()  # the budget counts from here: imports are time, too
_DEVICES = ("auto", "gpu", "interpreter")
_NO_DEVICE = DeviceId("gpu", "none here")
"""What a dry run is for on a machine that has none."""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "tune",
        help="tune the declared kernels on the device here",
        description="Tune every declared bucket that the database doesn't hold yet. Stopped at any "
        "moment and run again, it goes on where it was. Exit status: 0 every bucket is held; "
        "1 some are not; 2 wrong use.",
        epilog="example: lfbo-aot tune softmax n=4096 --budget 600 --into tuned; "
        "lfbo-aot tune --from misses.jsonl; lfbo-aot tune softmax --max-configs 3 --regret 2%",
    )
    parser.add_argument(
        "dims",
        nargs="*",
        metavar="KERNEL|dim=value[,value]",
        help="kernels to tune (all, if none is named), and values of which their buckets hold one",
    )
    parser.add_argument(
        "--device",
        choices=_DEVICES,
        help="what to tune on; auto: all GPUs of the first one's kind, else Triton's interpreter "
        "(LFBO_AOT_DEVICE)",
    )
    parser.add_argument(
        "--into", metavar="DIR", type=Path, help="database to write; default: yours"
    )
    parser.add_argument(
        "--module",
        action="append",
        metavar="MODULE",
        help="module or .py file with kernels to tune; may be repeated; default: those that "
        "installed packages announce, which --from knows in any case",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="tune exactly the buckets that hold the shapes in FILE, or on standard input for -: "
        "what LFBO_AOT_RECORD_MISSES wrote, or lines `kernel dim=value dim=value`",
    )
    parser.add_argument(
        "--budget", type=seconds, metavar="S", help="seconds for everything, imports too"
    )
    parser.add_argument("--per-bucket", type=seconds, metavar="S", help="seconds for one bucket")
    parser.add_argument("--trials", type=positive, metavar="N", help="trials for one bucket")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default 0")
    parser.add_argument(
        "--algorithm", choices=("lfbo", "pattern", "random"), default="lfbo", help="default lfbo"
    )
    parser.add_argument("--workers", type=positive, metavar="N", help="processes that compile")
    add_few_arguments(parser)
    parser.add_argument("--again", action="store_true", help="tune what is held already, too")
    parser.add_argument("--fresh", action="store_true", help="ignore the trials of earlier runs")
    parser.add_argument("--dry-run", action="store_true", help="list what would be tuned, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(args: argparse.Namespace) -> int:
    """0 where every bucket of the plan is held at the end, 1 where not.

    INTERRUPTED after Ctrl-C; and where nobody reads the output any more (`| head -1`), which stops
    a run in the same way: nobody would see it go on, and what is finished is kept.
    """
    try:
        return _run(args)
    except OutputClosed:
        return INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        return _run_with(args, stack)


def _run_with(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """`stack` holds the device from its start until the command's end."""
    settings = runtime_settings.current()
    where = parse_where([word for word in args.dims if "=" in word])
    wanted = None if args.source is None else read_wanted(args.source)
    names = [word for word in args.dims if "=" not in word]
    into = _database(args)
    early = None if args.dry_run else _early_device(args, settings.device, stack)
    if early:
        from lfbo_aot.tuning.imports import import_soon

        import_soon()
    specs = load_specs(names, args.module)
    device, why = early[:2] if early else _device(args, settings.device)
    picked = None
    if wanted is not None:
        specs, picked = _pick(wanted, specs, device, args, named=bool(names))

    from lfbo_aot.tuning.plan import make_plan

    plan = make_plan(
        specs,
        device,
        Database(into),
        where=where,
        again=args.again or args.fresh,
        only=None if picked is None else picked.buckets,
    )
    if picked is None:
        _check_plan(plan, specs, device, args)
    more: dict[str, Any] = {"profile": {}}
    if picked is not None:
        more["from"] = _picked_json(args.source, picked)
    told = Told(device, why, into, more, as_json=args.json)
    for remark in picked.remarks if picked else ():
        _say(str(remark), args)
    incomplete = int(picked is not None and not picked.complete)
    if args.dry_run:
        return list_plan(plan, told) or incomplete
    _say(f"device {device} ({why}); database {into}", args)
    few = wanted_few(args)
    if _is_done(plan, device, into, few):
        _declare_again(plan, into)
        _tell_few([], few, told, args)
        _say(_nothing_to_do(plan, picked, args.source), args)
        return print_summary([], len(plan), told) or incomplete
    started = early[2] if early else None
    summary = _tune(plan, device, into, settings.state_folder, args, early=started)
    if summary is None:
        return INTERRUPTED
    told.more["profile"] = summary.profile
    _tell_few(summary.few, few, told, args)
    return print_summary(summary.results, len(plan), told) or incomplete


def _database(args: argparse.Namespace) -> Path:
    """The database to write; UsageError where that is a file."""
    into: Path = (args.into or _user_layer()).absolute()
    if into.exists() and not into.is_dir():
        msg = f"--into {into}: a file, not a folder"
        raise UsageError(msg)
    return into


def _pick(
    wanted: tuple[Sequence[Any], Any],
    specs: list[KernelSpec],
    device: DeviceId,
    args: argparse.Namespace,
    *,
    named: bool,
) -> tuple[list[KernelSpec], Selection]:
    """The kernels, those that are announced among them where they are asked for, and the choice."""
    here = None if device == _NO_DEVICE else device
    own = [spec.kernel_id for spec in specs]
    known = {name for kernel_id in own for name in (kernel_id, kernel_id.rpartition(".")[2])}
    if args.module and not named and any(one.kernel not in known for one in wanted[0]):
        specs = with_announced(specs)
    return specs, select(wanted[0], specs, here, own=own, named=named, damaged=wanted[1])


def _is_done(plan: Sequence[Item], device: DeviceId, into: Path, few: Wanted | None) -> bool:
    """Whether every bucket is held, and no kernel is served by more configs than may be."""
    if any(item.why for item in plan):
        return False
    from lfbo_aot.tuning.parts import groups_of
    from lfbo_aot.tuning.parts import is_met

    return few is None or all(is_met(parts, few) for parts in groups_of(plan, device, into))


def _tell_few(
    found: Sequence[Reduced], few: Wanted | None, told: Told, args: argparse.Namespace
) -> None:
    if few is not None:
        told.more["few"] = few_json(found)
        for line in few_text(found, few):
            _say(line, args)


def _declare_again(plan: Sequence[Item], into: Path) -> None:
    """Write the declarations that a change of their module made outdated, and no entry."""
    database = Database(into)
    changed = []
    for spec in {item.spec.kernel_id: item.spec for item in plan}.values():
        declared, held = Declaration.of(spec), database.declaration(spec.kernel_id)
        if held is None or held.dumps() != declared.dumps():
            changed.append(declared)
    if changed:
        merge(into, {}, changed)


def _nothing_to_do(plan: Sequence[Item], picked: Selection | None, source: str) -> str:
    if picked is not None and not plan:
        return f"nothing to do: {source} asks for no bucket that can be tuned here"
    return f"nothing to do: all {len(plan)} buckets are held (--again tunes them anew)"


def _picked_json(source: str, picked: Selection) -> dict[str, Any]:
    return {"source": source, "remarks": [remark.as_json() for remark in picked.remarks]}


def _check_plan(
    plan: Sequence[Item], specs: Sequence[KernelSpec], device: DeviceId, args: argparse.Namespace
) -> None:
    """Say which kernels have nothing to tune; UsageError where none has."""
    if device == INTERPRETER and (without := [s.kernel_id for s in specs if not s.small]):
        text = f"no small= shapes, which is what the interpreter tunes at: {', '.join(without)}"
        if not plan and len(without) == len(specs):
            raise UsageError(text)
        _say(f"left out, {text}", args)
    if not plan:
        dims = " ".join(word for word in args.dims if "=" in word)
        names = ", ".join(s.kernel_id for s in specs)
        msg = f"no declared bucket of {names} holds {dims}"
        if device == INTERPRETER:
            msg = f"no small= shape of {names} holds {dims}; on this machine the interpreter tunes"
            msg += ", and it tunes at those only (--device gpu: on a GPU)"
        raise UsageError(msg)


def _device(args: argparse.Namespace, from_environment: str) -> tuple[DeviceId, str]:
    from lfbo_aot.tuning.devices.choose import choose_device

    kind = args.device or from_environment
    try:
        return choose_device(kind)
    except DeviceUnavailableError as error:
        if not args.dry_run:
            raise
        return _NO_DEVICE, str(error)


def _early_device(
    args: argparse.Namespace, from_environment: str, stack: contextlib.ExitStack
) -> tuple[DeviceId, str, Device] | None:
    """A GPU whose processes start now, while the kernels are imported here; None: not a GPU.

    They need seconds to import torch and Helion, and so does this process.
    """
    from lfbo_aot.tuning.devices.choose import start_device
    from lfbo_aot.tuning.devices.probe import survey

    if (args.device or from_environment) not in ("auto", "gpu"):
        return None
    found = survey()
    if not found.gpus:
        return None  # what that means is said where nothing else is wrong
    device, why = found.gpus[0].id, found.looked_for
    started = start_device(device, args.workers, found=found, preload=args.module or ())
    return device, why, stack.enter_context(contextlib.closing(started))


def _user_layer() -> Path:
    from lfbo_aot.database.store import user_database

    return user_database()


def _options(args: argparse.Namespace, device: DeviceId) -> Options:
    from lfbo_aot.tuning.run import Options

    on_cpu = device == INTERPRETER
    trials = args.trials or (INTERPRETER_TRIALS if on_cpu else None)
    return Options(
        budget_s=args.budget,
        per_bucket_s=args.per_bucket,
        trials=trials,
        seed=args.seed,
        algorithm=args.algorithm,
        rounds=5 if on_cpu else 60,
        fresh=args.fresh,
        few=wanted_few(args),
        spent_s=0.0 if on_cpu else time.monotonic() - _BEGAN_S,
    )


def _tune(
    plan: Sequence[Item],
    device: DeviceId,
    into: Path,
    state: Path,
    args: argparse.Namespace,
    *,
    early: Device | None,
) -> Summary | None:
    """The run's summary; None where it was interrupted, after saying how to go on."""
    from lfbo_aot.tuning.devices.choose import start_device
    from lfbo_aot.tuning.run import tune

    options = _options(args, device)
    watcher = make_watcher(args.budget, quiet=args.json)
    with one_interrupt():
        try:
            started = early or start_device(device, args.workers)
            with contextlib.closing(started), watcher:
                return tune(plan, started, into=into, state=state, options=options, watcher=watcher)
        except OutputClosed:
            raise
        except KeyboardInterrupt:
            print(
                f"\nlfbo-aot: interrupted. {watcher.finished} buckets were finished and are in "
                f"{into}. Every finished trial is in the journal: run the same command again to "
                "go on.",
                file=sys.stderr,
            )
            return None


def _say(text: str, args: argparse.Namespace) -> None:
    show(text, sys.stderr if args.json else sys.stdout)
