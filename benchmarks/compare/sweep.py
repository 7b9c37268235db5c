"""Eight buckets of one kernel in one command: what the later ones cost, and how well they come out."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING
from typing import Any

from benchmarks.compare.cases import SWEPT
from benchmarks.compare.jobs import Job
from benchmarks.compare.jobs import finals
from benchmarks.compare.ratios import median_ratio
from benchmarks.compare.ratios import per_round
from benchmarks.compare.records import last

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from benchmarks.compare.records import Record

EQUAL = 0.01
"""By how much the latencies of two configs may differ that count as one answer."""


def figures(records: Sequence[Record], missing: list[str]) -> dict[str, Any]:
    """`sweep_ratio`, `sweep_regret` and `flip_rate`, and what they are made of."""
    listed = list(records)
    held = finals(records, Job("remeasure", SWEPT))
    missing += [f"{side} {SWEPT}" for side in ("sweep", "flips") if side not in held]
    if not any(label.startswith("alone") for label in held):
        missing.append(f"alone {SWEPT}")
    measured = last(listed, "remeasure", SWEPT)
    if measured is None:
        missing.append(f"remeasure {SWEPT}")
    items = _items(measured)
    seconds = _seconds(held["sweep"]["buckets"]) if "sweep" in held else []
    regrets = _regrets(items)
    flips = _flips(held, items)
    return {
        "sweep_seconds": seconds or None,
        "sweep_ratio": _ratio(seconds),
        "sweep_regret": max(regrets.values(), default=None),
        "sweep_regrets": regrets or None,
        "flip_rate": sum(flips.values()) / len(flips) if flips else None,
        "flips": sorted(key for key, flipped in flips.items() if flipped) if flips else None,
    }


def _seconds(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """What each bucket added to the command's time: they overlap, so from one end to the next.

    The first one's holds the start, imports and all.
    """
    if not all("ended_s" in row for row in rows):
        return [row["seconds"] for row in rows]
    ends = sorted(row["ended_s"] for row in rows)
    return [round(end - before, 3) for before, end in zip([0.0, *ends], ends, strict=False)]


def _ratio(seconds: Sequence[float]) -> float | None:
    """The mean time of the buckets after the first one, over the first one's."""
    if len(seconds) < 2:
        return None
    return round(statistics.mean(seconds[1:]) / seconds[0], 3)


def _items(measured: Record | None) -> dict[str, Mapping[str, Any]]:
    """What was measured together, by shape."""
    return {} if measured is None else {_key(item["shape"]): item for item in measured["items"]}


def _regrets(items: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """How much slower a bucket's config is than the one that was found for it alone, by shape."""
    found = {}
    for key, item in items.items():
        samples = item["samples_us"]
        if "sweep" in samples and "alone" in samples:
            ratio = median_ratio(per_round(samples["sweep"], samples["alone"]))
            found[key] = round(ratio.value - 1.0, 4)
    return found


def _flips(held: Mapping[str, Record], items: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Whether two tunes gave a bucket different answers; only buckets that can be told of."""
    if "sweep" not in held or "flips" not in held:
        return {}
    first, second = ({_key(r["shape"]): r for r in held[s]["buckets"]} for s in ("sweep", "flips"))
    found = {}
    for key in sorted(first.keys() | second.keys()):
        if key not in first or key not in second:
            found[key] = True  # one of them gave no answer
        elif _key(first[key]["config"]) == _key(second[key]["config"]):
            found[key] = False
        elif {"sweep", "flips"} <= items.get(key, {}).get("samples_us", {}).keys():
            samples = items[key]["samples_us"]
            ratio = median_ratio(per_round(samples["sweep"], samples["flips"]))
            found[key] = abs(ratio.value - 1.0) > EQUAL
    return found


def _key(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)
