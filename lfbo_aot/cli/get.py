"""`lfbo-aot get`: look one config up, and say how it was found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.arguments import add_database
from lfbo_aot.cli.arguments import parse_dims
from lfbo_aot.cli.arguments import pick_store
from lfbo_aot.cli.streams import json_text
from lfbo_aot.database.frozen import thaw
from lfbo_aot.runtime import state
from lfbo_aot.runtime.lookup import look_up
from lfbo_aot.runtime.request import make_request
from lfbo_aot.runtime.request import shape_text
from lfbo_aot.runtime.resolution import DEFAULT
from lfbo_aot.runtime.settings import POLICIES

if TYPE_CHECKING:
    import argparse

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.runtime.environment import Environment
    from lfbo_aot.runtime.request import Request
    from lfbo_aot.runtime.resolution import Resolution

FRESH = {True: "fresh", False: "stale", None: "versions not checked"}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "get",
        help="look one config up, and say how it was found",
        description="Look one config up, and say how it was found. "
        "Exit status: 0 an entry is served; 1 the default is; 2 wrong use.",
        epilog="example: lfbo-aot get layer_norm m=4096 n=5120 dtype=bfloat16 "
        "--arch 'sm90/NVIDIA H200'",
    )
    add_question(parser)


def add_question(parser: argparse.ArgumentParser) -> None:
    """What `get` and `explain` take: a kernel, a shape, an arch, a policy, a database."""
    parser.add_argument("kernel", help="a kernel's id, or its bare name where only one has it")
    parser.add_argument("dims", nargs="*", metavar="dim=value", help="the shape of the call")
    parser.add_argument("--arch", help="such as 'sm90/NVIDIA H200', or sm90 for any device of it")
    parser.add_argument("--policy", choices=POLICIES, help="what may be served")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_database(parser)


def run(args: argparse.Namespace) -> int:
    """0 where an entry is served, 1 where the default is."""
    request, resolution = ask(args)
    if args.json:
        print(json_text(answer_json(request, resolution)))
    else:
        print("\n".join(_as_text(request, resolution)))
    return int(resolution.status == DEFAULT)


def ask(
    args: argparse.Namespace, environment: Environment | None = None
) -> tuple[Request, Resolution]:
    """The look-up that `kernel`, `dims`, `arch`, `policy` and `database` of `args` ask for."""
    shape = parse_dims(args.dims)
    store = pick_store(args.database)
    if args.arch is None:
        archs = sorted({arch for layer in store.layers for arch in layer.database.archs()})
        held = f" The databases hold: {', '.join(archs)}." if archs else ""
        msg = f"--arch is missing; it is written like 'sm90/NVIDIA H200' or sm90.{held}"
        raise UsageError(msg)
    request = make_request(store, args.kernel, shape, args.arch, environment)
    return request, look_up(store, request, args.policy or state.policy()).resolution


def answer_json(request: Request, resolution: Resolution) -> dict[str, Any]:
    """A question and its answer, as JSON data."""
    entry = resolution.entry
    return {
        "kernel": request.kernel_id,
        "shape": request.shape,
        "arch": str(request.target),
        "status": resolution.status,
        "fresh": resolution.fresh,
        "config": thaw(resolution.config),
        "default": entry.default if entry else None,
        "pinned": entry.pinned if entry else None,
        "latency_us": entry.latency_us if entry else None,
        "default_us": entry.default_us if entry else None,
        "layer": resolution.layer,
        "reasons": list(resolution.reasons),
        "key": resolution.key,
    }


def _as_text(request: Request, resolution: Resolution) -> list[str]:
    shape = shape_text(request.shape)
    lines = [f"{request.kernel_id}  {shape}  {request.target}"]
    entry = resolution.entry
    if entry is None:
        lines.append("status   default: the caller takes Helion's own default config")
    else:
        pinned = ", pinned" if entry.pinned else ""
        latency = f"{entry.latency_us:.2f} us, " + against_default(entry)
        lines += [
            f"status   {resolution.status}, {FRESH[resolution.fresh]}{pinned}",
            f"key      {resolution.key}",
            f"layer    {resolution.layer}",
            f"latency  {latency}",
            f"config   {json.dumps(thaw(resolution.config), ensure_ascii=False)}",
        ]
    return [*lines, *(f"reason   {reason}" for reason in resolution.reasons)]


def against_default(entry: Entry) -> str:
    """The latency of Helion's default, and how many times faster the entry's config is."""
    if entry.default_us is None:
        return "and the default doesn't run"
    winner = "; the winner is the default" if entry.default else ""
    return f"default {entry.default_us:.2f} us, {entry.gain:.2f}x{winner}"
