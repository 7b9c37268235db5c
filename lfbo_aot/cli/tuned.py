"""What `lfbo-aot tune` says of a plan and of a run's end, as text or as one JSON object."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.cli.arguments import is_read
from lfbo_aot.cli.arguments import unread_text
from lfbo_aot.cli.progress import bucket_text
from lfbo_aot.cli.progress import drop_output
from lfbo_aot.cli.progress import result_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.run import Result


@dataclass(frozen=True, slots=True)
class Told:
    """What holds for the whole of a run, and how it is to be said."""

    device: DeviceId
    why: str
    """Why it is that device."""
    into: Path
    more: dict[str, Any]
    """What else goes into the JSON object."""
    as_json: bool

    def as_object(self, **fields: Any) -> str:
        """The JSON object with these fields in it."""
        data = {"device": str(self.device), "into": str(self.into), **fields, **self.more}
        return json.dumps(data, indent=2)


def list_plan(plan: Sequence[Item], told: Told) -> int:
    """Print what would be tuned; 0."""
    if told.as_json:
        rows = [
            {
                "kernel": item.spec.kernel_id,
                "bucket": item.bucket.key,
                "shape": dict(item.shape),
                "status": _state(item),
                "why": item.why,
            }
            for item in plan
        ]
        print(told.as_object(buckets=rows))
        return 0
    print(f"device {told.device} ({told.why}); database {told.into}")
    for item in plan:
        print(f"{item.why or 'held':18} {item.spec.kernel_id:28} {bucket_text(item)}")
    count = sum(_state(item) == "to tune" for item in plan)
    print(f"{count} of {len(plan)} buckets to tune")
    return 0


def _state(item: Item) -> str:
    return "to tune" if item.why else "held"


def print_summary(results: Sequence[Result], total: int, told: Told) -> int:
    """Print what became of a run: the exit status, which is the same where nobody reads the summary."""
    held = total - sum(r.status != "held" for r in results)
    bad = [r for r in results if r.status in ("failed", "unfinished")]
    if told.as_json:
        rows = [_row(r) for r in results if r.status != "held"]
        lines = [told.as_object(held=held, results=rows)]
    else:
        # Those that were begun have been shown.
        begun = {id(r) for r in bad if r.status == "failed" or r.seconds}
        lines = [result_text(result) for result in bad if id(result) not in begun]
        tuned = sum(r.status == "tuned" for r in results)
        lines.append(f"{tuned} tuned, {held} held before, {len(bad)} missing; database {told.into}")
        if any(r.status == "unfinished" for r in bad):
            lines.append(
                "run the same command again to go on with the unfinished ones, or with more time"
            )
        if any(r.status == "failed" for r in bad):
            lines.append("what failed will fail again until its reason is mended")
        if total > len(bad) and not is_read(told.into):
            lines.append(unread_text(told.into))
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        drop_output(sys.stdout)
    return int(bool(bad))


def _row(result: Result) -> dict[str, Any]:
    entry = result.entry
    return {
        "kernel": result.item.spec.kernel_id,
        "bucket": result.item.bucket.key,
        "shape": dict(result.item.shape),
        "status": result.status,
        "reason": result.reason,
        "seconds": round(result.seconds, 2),
        "ended_s": round(result.ended_s, 2),
        "latency_us": entry.latency_us if entry else None,
        "default_us": entry.default_us if entry else None,
        "default": entry.default if entry else None,
        "config": entry.to_json()["config"] if entry else None,
    }
