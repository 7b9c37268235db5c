"""`lfbo-aot status`: how far tuning is, read from another terminal while it goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import find_kernels
from lfbo_aot.cli.streams import json_text
from lfbo_aot.runtime import settings as runtime_settings
from lfbo_aot.tuning.standing import read_standing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lfbo_aot.tuning.standing import BucketStanding
    from lfbo_aot.tuning.standing import RunStanding

_MINUTE = 60
_HOUR = 3600
_LONG = 100


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "status",
        help="show how far tuning runs are, from another terminal",
        description="Show how far tuning is, from the journals in the state folder: it works while "
        "a run goes on, `pip install` included, and after it was stopped. Exit status: 0 done; "
        "1 a journal is damaged; 2 wrong use.",
        epilog="example: lfbo-aot status layer_norm",
    )
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="only these kernels")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """0, or 1 where a journal is damaged."""
    state = runtime_settings.current().state_folder
    standing = read_standing(state)
    known = sorted({bucket.kernel_id for bucket in standing.buckets})
    kernels = find_kernels(args.kernels, known) or tuple(known)
    buckets = [bucket for bucket in standing.buckets if bucket.kernel_id in kernels]
    if args.json:
        data = {
            "state": str(state),
            "runs": [_run_json(found) for found in standing.runs],
            "buckets": [_bucket_json(bucket) for bucket in buckets],
            "damage": list(standing.damage),
        }
        print(json_text(data))
    else:
        lines = [_run_text(found) for found in standing.runs]
        lines += _table(buckets)
        print("\n".join(lines) or f"nothing was tuned yet: {state} holds no journal")
    for text in standing.damage:
        print(f"lfbo-aot: damaged: {text}", file=sys.stderr)
    return int(bool(standing.damage))


def _run_json(found: RunStanding) -> dict[str, Any]:
    return {
        "pid": found.pid,
        "host": found.host,
        "alive": found.alive,
        "started": found.started,
        "device": found.device,
        "into": found.into,
        "done": found.done,
        "total": found.total,
        "held": found.held,
        "left_s": None if found.left_s is None else round(found.left_s, 1),
    }


def _bucket_json(bucket: BucketStanding) -> dict[str, Any]:
    return {
        "kernel": bucket.kernel_id,
        "device": bucket.device,
        "bucket": bucket.bucket,
        "status": bucket.status,
        "trials": bucket.trials,
        "latency_us": bucket.latency_us,
        "default_us": bucket.default_us,
        "gain": bucket.gain,
        "failures": dict(bucket.failures),
        "left_s": None if bucket.left_s is None else round(bucket.left_s, 1),
        "reason": bucket.reason,
    }


def _run_text(found: RunStanding) -> str:
    life = "runs" if found.alive else "is gone: it was killed, or its machine is another one"
    left = "" if found.left_s is None else f", {_time(found.left_s)} left"
    held = f" ({found.held} held before)" if found.held else ""
    return (
        f"process {found.pid} on {found.host}, started {found.started}, {life}: {found.device} "
        f"into {found.into}, {found.done} of {found.total} buckets done{held}{left}"
    )


def _table(buckets: Sequence[BucketStanding]) -> list[str]:
    lines: list[str] = []
    head = None
    for bucket in buckets:
        if head != (bucket.kernel_id, bucket.device):
            head = bucket.kernel_id, bucket.device
            own = [b for b in buckets if (b.kernel_id, b.device) == head]
            tuned = sum(b.status == "tuned" for b in own)
            lines.append(f"{head[0]}  {head[1]}: {tuned} of {len(own)} tuned")
        lines.append(f"  {bucket.status:11} {bucket.bucket.replace('|', ' ')}{_details(bucket)}")
    return lines


def _details(bucket: BucketStanding) -> str:
    parts = [f"{bucket.trials} trials"] if bucket.trials else []
    if bucket.latency_us is not None:
        default = "" if bucket.default_us is None else f" (default {bucket.default_us:.2f}"
        default += "" if bucket.gain is None else f", {bucket.gain:.2f}x)"
        parts.append(f"best {bucket.latency_us:.2f} us{default}")
    if bucket.failures:
        counts = ", ".join(f"{n} {status}" for status, n in sorted(bucket.failures.items()))
        parts.append(f"{sum(bucket.failures.values())} failed ({counts})")
    if bucket.left_s is not None and bucket.status == "running":
        parts.append(f"{_time(bucket.left_s)} left")
    if bucket.reason:
        parts.append(
            bucket.reason if len(bucket.reason) <= _LONG else bucket.reason[:_LONG] + "..."
        )
    return f": {', '.join(parts)}" if parts else ""


def _time(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"
