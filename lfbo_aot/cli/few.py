"""The options of `lfbo-aot tune` for few configs, and what it says of them."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.tuning.few import Reduced
    from lfbo_aot.tuning.parts import Wanted


def add_few_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--max-configs` and `--regret`."""
    parser.add_argument(
        "--max-configs",
        type=positive,
        metavar="K",
        help="serve all buckets of a kernel by at most K configs, those of least worst regret "
        "(what a bucket loses over its own best); Helion's default counts as one",
    )
    parser.add_argument(
        "--regret",
        type=share,
        metavar="R",
        help="serve all buckets of a kernel by as few configs as keep each within R of its own "
        "best: 0.02, or 2%%. With --max-configs too: at most K, and whether R was kept is said",
    )


def share(text: str) -> float:
    """A share from 0 up to below 1, written 0.02 or 2%; for argparse."""
    number, percent, rest = text.partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not (math.isfinite(value) and 0 <= value < 1):
        msg = f"{text!r} is not a share from 0 up to below 1, written 0.02 or 2%"
        raise argparse.ArgumentTypeError(msg)
    return value


def wanted_few(args: argparse.Namespace) -> Wanted | None:
    """What the options ask for; None where neither was given."""
    if args.max_configs is None and args.regret is None:
        return None
    from lfbo_aot.tuning.parts import Wanted

    return Wanted(most=args.max_configs, regret=args.regret)


def few_text(found: Sequence[Reduced], wanted: Wanted) -> list[str]:
    """A line or more for each kernel."""
    lines = []
    for one in found:
        head = f"{one.kernel_id}: {_configs(one.after)} for {one.buckets} buckets"
        if one.reason:
            lines.append(f"{head}, as before: {one.reason}")
            continue
        before = f"{one.before} before" if one.before != one.after else "as before"
        lines.append(f"{head} ({before}){_worst(one)}{_missed(one, wanted)}")
    return lines


def _worst(one: Reduced) -> str:
    if not one.worst_regret:
        return ", each its own best" if one.worst_regret == 0 else ""
    if math.isinf(one.worst_regret):
        return ", and in some none of them runs"
    return f", at most {100 * one.worst_regret:.1f} % over a bucket's own best"


def _missed(one: Reduced, wanted: Wanted) -> str:
    if one.reached:
        return ""
    asked = []
    if wanted.most is not None:
        asked.append(f"at most {_configs(wanted.most)}")
    if wanted.regret is not None:
        asked.append(f"within {100 * wanted.regret:g} %")
    return f"; not reached: {', '.join(asked)}"


def _configs(count: int) -> str:
    return f"{count} config{'' if count == 1 else 's'}"


def few_json(found: Sequence[Reduced]) -> list[dict[str, Any]]:
    """The same as JSON data; `worst_regret` is null where it wasn't measured, or isn't finite."""
    return [
        {
            "kernel": one.kernel_id,
            "buckets": one.buckets,
            "before": one.before,
            "after": one.after,
            "changed": len(one.changed),
            "worst_regret": _finite(one.worst_regret),
            "reached": one.reached,
            "failed": {bucket.key: reason for bucket, reason in one.failed.items()},
            "reason": one.reason,
        }
        for one in found
    ]


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else round(value, 5)
