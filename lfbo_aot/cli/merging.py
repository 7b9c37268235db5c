"""What `merge` and `import` share: the option `--rule`, and the report of what was done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import UsageError
from lfbo_aot.cli.streams import json_text
from lfbo_aot.database.combine import ADDED
from lfbo_aot.database.combine import CONFLICT
from lfbo_aot.database.combine import EQUAL
from lfbo_aot.database.combine import KEPT
from lfbo_aot.database.combine import REFUSED
from lfbo_aot.database.combine import REPLACED
from lfbo_aot.database.combine import by_device
from lfbo_aot.database.rules import ERROR
from lfbo_aot.database.rules import RULES

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from lfbo_aot.database.combine import Change
    from lfbo_aot.database.combine import Outcome

_TOLD = (REPLACED, KEPT, REFUSED, CONFLICT)
_COUNTED = (ADDED, REPLACED, KEPT, EQUAL, REFUSED, CONFLICT)


def add_rule(parser: argparse.ArgumentParser) -> None:
    """The option `--rule`."""
    parser.add_argument(
        "--rule",
        choices=RULES,
        default=ERROR,
        help="what to keep of entries that differ. best: the fastest, where latencies can be "
        "compared, else the newest; newest: by the day measured; error (the default): nothing is "
        "written, and every conflict is listed",
    )


def database_to_write(path: Path) -> Path:
    """`path` as an absolute path; UsageError where it is a file."""
    if path.exists() and not path.is_dir():
        msg = f"--into {path}: a file, not a folder"
        raise UsageError(msg)
    return path.absolute()


def report(outcome: Outcome, into: Path, args: argparse.Namespace, **more: Any) -> int:
    """Print what was done, as text or, with `more`, as one JSON object; the exit status."""
    if args.json:
        data = {
            "into": str(into),
            "rule": args.rule,
            "written": outcome.written,
            **more,
            "kernels": [
                {"kernel": kernel_id, "device": device, **dict.fromkeys(_COUNTED, 0), **counts}
                for (kernel_id, device), counts in by_device(outcome.changes).items()
            ],
            "changes": [_as_json(change) for change in outcome.changes],
        }
        print(json_text(data))
    else:
        print("\n".join(_as_text(outcome, into)))
    conflicts = len(outcome.of(CONFLICT))
    if conflicts:
        print(
            f"lfbo-aot: error: {conflicts} conflict{'' if conflicts == 1 else 's'}, "
            "nothing was written; choose with --rule best or --rule newest",
            file=sys.stderr,
        )
    return int(not outcome.complete)


def _as_json(change: Change) -> dict[str, Any]:
    return {
        "what": change.what,
        "kernel": change.kernel_id,
        "device": None if change.device is None else str(change.device),
        "bucket": None if change.bucket is None else change.bucket.key,
        "source": change.source,
        "reason": change.reason,
    }


def _as_text(outcome: Outcome, into: Path) -> list[str]:
    lines = [_change_text(change) for change in outcome.of(*_TOLD)]
    for (kernel_id, device), counts in by_device(outcome.changes).items():
        shown = ", ".join(f"{counts[what]} {what}" for what in _COUNTED if what in counts)
        lines.append(f"{kernel_id}  {device}: {shown}")
    state = "written" if outcome.written else "not touched"
    return [*lines, f"{into}: {state}" if outcome.changes else f"{into}: nothing to merge"]


def _change_text(change: Change) -> str:
    what = "declaration" if change.bucket is None else f"{change.device} {change.bucket.key}"
    reason = f": {change.reason}" if change.reason else ""
    return f"{change.what:9}{change.kernel_id} {what} ({change.source}){reason}"
