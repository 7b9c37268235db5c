"""`lfbo-aot explain`: all that was weighed for one look-up, and why it was answered so."""

from __future__ import annotations

import itertools
import json
import textwrap
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import environment_of
from lfbo_aot.cli.arguments import load_specs
from lfbo_aot.cli.get import FRESH
from lfbo_aot.cli.get import add_question
from lfbo_aot.cli.get import against_default
from lfbo_aot.cli.get import answer_json
from lfbo_aot.cli.get import ask
from lfbo_aot.cli.streams import json_text
from lfbo_aot.database.frozen import thaw
from lfbo_aot.runtime import state
from lfbo_aot.runtime.request import shape_text
from lfbo_aot.runtime.resolution import DEFAULT
from lfbo_aot.runtime.resolution import DIFFERS
from lfbo_aot.runtime.resolution import EQUAL
from lfbo_aot.runtime.resolution import UNCHECKED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lfbo_aot.runtime.request import Request
    from lfbo_aot.runtime.resolution import Check
    from lfbo_aot.runtime.resolution import Considered
    from lfbo_aot.runtime.resolution import Resolution

_WIDTH = 80
_LIMITS = ("shared", "threads", "registers")
_LIMITED = {EQUAL: "fits", DIFFERS: "exceeds"}
_ALLOWED = {EQUAL: "allows", DIFFERS: "forbids"}
_MARK = "sha256:"
_DIGITS = 12  # of a digest; all of them are in the JSON object


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "explain",
        help="show all that was weighed for one look-up, and why it was answered so",
        description="For one look-up: every database and every entry whose box holds the shape, "
        "what was compared, what differed, what is served and why. "
        "Exit status: 0 an entry is served; 1 the default is; 2 wrong use.",
        epilog="example: lfbo-aot explain layer_norm m=4096 n=5120 dtype=bfloat16 "
        "--arch 'sm90/NVIDIA H100 80GB HBM3'",
    )
    add_question(parser)
    parser.add_argument(
        "--environment",
        action="store_true",
        help="import the kernel, and compare source, settings and library versions with those "
        "here, as its calls do",
    )
    parser.add_argument(
        "--module",
        action="append",
        metavar="MODULE",
        help="module or .py file that declares the kernel; implies --environment",
    )


def run(args: argparse.Namespace) -> int:
    """0 where an entry is served, 1 where the default is."""
    environment = None
    if args.environment or args.module:
        (spec,) = load_specs([args.kernel], args.module)
        args.kernel, environment = spec.kernel_id, environment_of(spec)
    request, resolution = ask(args, environment)
    policy = args.policy or state.policy()
    if args.json:
        data = answer_json(request, resolution)
        data |= {"policy": policy, "considered": list(map(_as_json, resolution.considered))}
        print(json_text(data))
    else:
        print("\n".join(_as_text(request, resolution, policy)))
    return int(resolution.status == DEFAULT)


def _as_json(found: Considered) -> dict[str, Any]:
    entry = found.entry
    return {
        "layer": found.layer,
        "path": found.path,
        "outcome": found.outcome,
        "why": list(found.why),
        "key": found.key,
        "arch": found.arch,
        "status": found.status,
        "fresh": found.fresh,
        "pinned": found.pinned,
        "config": thaw(entry.config) if entry else None,
        "latency_us": entry.latency_us if entry else None,
        "checks": [
            {**check._asdict(), "entry": thaw(check.entry), "here": thaw(check.here)}
            for check in found.checks
        ],
    }


def _as_text(request: Request, resolution: Resolution, policy: str) -> Iterator[str]:
    shape = shape_text(request.shape)
    yield from _wrap("kernel   ", request.kernel_id)
    yield from _wrap("shape    ", shape)
    yield from _wrap("asked    ", f"for {request.target}, policy {policy}")
    entry = resolution.entry
    if entry is None:
        yield from _wrap("answer   ", "default: the caller takes Helion's own default config")
        yield from _wrap("key      ", f"{resolution.key} (looked up)")
    else:
        yield from _wrap("answer   ", f"{resolution.status}, {FRESH[resolution.fresh]}")
        yield from _wrap("key      ", resolution.key)
        yield from _wrap("layer    ", str(resolution.layer))
        yield from _wrap("latency  ", f"{entry.latency_us:.2f} us, {against_default(entry)}")
        yield from _wrap("config   ", json.dumps(thaw(resolution.config), ensure_ascii=False))
    for reason in resolution.reasons:
        yield from _wrap("reason   ", reason)
    layers = itertools.groupby(resolution.considered, key=lambda found: (found.layer, found.path))
    for (name, path), entries in layers:
        yield ""
        yield from _wrap("", name if name == path else f"{name}: {path}", indent="  ")
        for found in entries:
            yield from _of_entry(found)


def _of_entry(found: Considered) -> Iterator[str]:
    """One entry, or why a layer has none: the outcome, the reasons, and each comparison."""
    if found.key:
        pinned = ", pinned" if found.pinned else ""
        text = f"{found.key} ({found.status}, {FRESH[found.fresh]}{pinned})"
        yield from _wrap(f"  {found.outcome:10} ", text)
    else:
        yield f"  {found.outcome}"
    for reason in found.why:
        yield from _wrap("    because  ", reason)
    for check in found.checks:
        yield from _wrap(
            f"    {_verdict(check):10} {check.name}: ", _values(check), indent=" " * 15
        )


def _verdict(check: Check) -> str:
    words = _ALLOWED if check.name == "policy" else _LIMITED if check.name in _LIMITS else {}
    return words.get(check.verdict, check.verdict)


def _values(check: Check) -> str:
    """Both values; one where they are equal."""
    limit = check.name in _LIMITS
    if check.verdict == EQUAL and not limit and check.name != "policy":
        return _value(check.here)
    # What wasn't compared isn't known on one side; elsewhere None is a value.
    entry, here = (
        "unknown" if value is None and check.verdict == UNCHECKED else _value(value)
        for value in (check.entry, check.here)
    )
    return f"entry={entry} {'limit' if limit else 'here'}={here}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        cut = len(_MARK) + _DIGITS
        return f"{value[:cut]}..." if value.startswith(_MARK) and len(value) > cut else value
    return json.dumps(thaw(value), ensure_ascii=False)


def _wrap(head: str, text: str, indent: str | None = None) -> list[str]:
    """`text` after `head`, in lines of 80 columns where its words allow it."""
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head) if indent is None else indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [head.rstrip()]
