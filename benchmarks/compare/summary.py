"""The figures of a comparison, recomputed from its raw records."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING
from typing import Any

from benchmarks.compare import sweep
from benchmarks.compare.cases import CASES
from benchmarks.compare.cases import PATTERN
from benchmarks.compare.jobs import TUNERS
from benchmarks.compare.jobs import Job
from benchmarks.compare.jobs import finals
from benchmarks.compare.ratios import geomean
from benchmarks.compare.ratios import geomean_ratio
from benchmarks.compare.ratios import median_ratio
from benchmarks.compare.ratios import per_round
from benchmarks.compare.records import has_result

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from benchmarks.compare.records import Record

GAINS = 1.03  # over the default: where there is something to be found at all
WITHIN = 1.01
_PROFILE = ("either_busy_s", "span_s", "ready_wait_s", "thinking_s")


def summarize(records: Sequence[Record]) -> dict[str, Any]:
    """All figures; what there are no records for is None, and named under `missing`."""
    missing: list[str] = []
    rows = [_row(name, records, missing) for name in CASES]
    return {
        **_circumstances(records),
        **versus(rows, "ours", "helion"),
        **_profile(rows, missing),
        "kernels": [{k: v for k, v in row.items() if k != "rounds"} for row in rows],
        **sweep.figures(records, missing),
        "control": versus(rows, "control", "helion"),
        "pattern": versus(rows, "ours", "pattern"),
        "missing": missing,
    }


def _circumstances(records: Sequence[Record]) -> dict[str, Any]:
    """When, where and with which versions; lists where records differ."""
    ours = [r for r in records if has_result(r)]
    versions = {str(sorted(r["versions"].items())): r["versions"] for r in ours if "versions" in r}
    return {
        "dates": sorted({r["date"][:10] for r in ours}),
        "devices": sorted({r["device"] for r in ours if "device" in r}),
        "versions": list(versions.values()),
    }


def _row(name: str, records: Sequence[Record], missing: list[str]) -> dict[str, Any]:
    """What the records say of one kernel; `rounds` holds the finals' raw samples."""
    held = finals(records, Job("measure", name))
    due = [side for side in TUNERS if side != "pattern" or name in PATTERN]
    missing += [f"{side} {name}" for side in due if side not in held]
    row: dict[str, Any] = {"kernel": name, "shape": dict(CASES[name].shape)}
    for side in TUNERS:
        record = held.get(side)
        row[f"{side}_s"] = None if record is None else tuning_s(record)
        row[f"{side}_ended"] = None if record is None else record["ended"]
        row[f"{side}_trials"] = None if record is None else record.get("trials")
    samples, measured = _samples(name, records, held)
    if not samples:
        missing.append(f"measure {name}")
    row["wrong"] = measured.get("wrong", {})
    row["errors"] = measured.get("errors", {})
    for label in ("default", *TUNERS):
        row[f"{label}_us"] = _median(samples[label]) if label in samples else None
    for ours, theirs in (("ours", "helion"), ("ours", "pattern"), ("control", "helion")):
        row |= _compared(row, samples, held, ours, theirs)
    row["profile"] = _profile_of(held.get("ours"))
    row["rounds"] = samples
    return row


def tuning_s(record: Record) -> float:
    """A tuner's wall-clock: until it stopped by itself, or until its budget was over."""
    wall_s: float = record["wall_s"]
    budget_s = record.get("budget_s")
    return wall_s if budget_s is None else min(wall_s, budget_s)


def _samples(
    name: str, records: Sequence[Record], held: Mapping[str, Record]
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """The raw samples of the newest measurement, of those finals that still are the finals."""
    mine = [r for r in records if r["side"] == "measure" and r["kernel"] == name and has_result(r)]
    if not mine:
        return {}, {}
    item = mine[-1]["items"][0]
    present = {label for label, run in mine[-1]["runs"].items() if held[label]["run"] == run}
    kept = {k: s for k, s in item["samples_us"].items() if k == "default" or k in present}
    return kept, item


def _compared(
    row: Mapping[str, Any],
    samples: Mapping[str, list[float]],
    held: Mapping[str, Record],
    ours: str,
    theirs: str,
) -> dict[str, Any]:
    """One tuner against another one on one kernel, under names that tell which."""
    key = f"{ours}_over_{theirs}"
    found: dict[str, Any] = {f"{key}_time_ratio": None, f"{key}_latency": None}
    found[f"{key}_within_1pct_s"] = None
    if row[f"{ours}_s"] is not None and row[f"{theirs}_s"] is not None:
        found[f"{key}_time_ratio"] = round(row[f"{theirs}_s"] / row[f"{ours}_s"], 2)
    if ours in samples and theirs in samples:
        ratio = median_ratio(per_round(samples[ours], samples[theirs]))
        values = (ratio.value, ratio.lower95, ratio.upper95)
        found[f"{key}_latency"] = [round(v, 4) for v in values]
        curve = held[ours].get("curve") or []
        found[f"{key}_within_1pct_s"] = within_s(curve, ratio.value)
    return found


def within_s(curve: Sequence[Sequence[float]], ratio: float) -> float | None:
    """When a tuner had found what is within 1 % of the other one's final; None: never.

    Readings in a search flatter, so a curve is scaled as a whole: its last point stands for the
    tuner's final, whose ratio to the other final is `ratio` by the measurement of both together.
    The time is when a config was found, not when the tuner stopped.
    """
    if not curve:
        return None
    end = curve[-1][1]
    reached = (seconds for seconds, us in curve if ratio * us / end <= WITHIN)
    return next(reached, None)


def versus(rows: Sequence[Mapping[str, Any]], ours: str, theirs: str) -> dict[str, Any]:
    """One tuner against another one over all kernels that both have results for."""
    key = f"{ours}_over_{theirs}"
    times = [row[f"{key}_time_ratio"] for row in rows if row[f"{key}_time_ratio"] is not None]
    both = [row["rounds"] for row in rows if row[f"{key}_latency"] is not None]
    ratios = [per_round(rounds[ours], rounds[theirs]) for rounds in both]
    latency = geomean_ratio(ratios) if ratios else None
    gaining = [row for row in rows if row[f"{key}_latency"] is not None and _gains(row)]
    return {
        "time_ratio_geomean": round(geomean(times), 2) if times else None,
        "time_ratio_min": min(times, default=None),
        "latency_ratio_geomean": round(latency.value, 4) if latency else None,
        "latency_ratio_lower95": round(latency.lower95, 4) if latency else None,
        "latency_ratio_upper95": round(latency.upper95, 4) if latency else None,
        "time_to_within_1pct": (
            {row["kernel"]: row[f"{key}_within_1pct_s"] for row in gaining} if both else None
        ),
        "over": len(times),
    }


def _gains(row: Mapping[str, Any]) -> bool:
    """Whether any tuner found something that much faster than the default."""
    rounds = row["rounds"]
    return any(
        _median(per_round(rounds["default"], rounds[side])) >= GAINS
        for side in ("ours", "helion", "pattern")
        if side in rounds and "default" in rounds
    )


def _profile(rows: Sequence[Mapping[str, Any]], missing: list[str]) -> dict[str, Any]:
    """How busy our tuner kept the machine, over all kernels that tell."""
    told = [row for row in rows if row["profile"]]
    if not told:
        missing.append("profile")
        return {"busy": None, "gpu_waited_s": None, "thinking": None}
    either, span, waited, thought = (_sum(told, name) for name in _PROFILE)
    whole = sum(row["ours_s"] for row in told)
    return {
        "busy": None if either is None or not span else round(either / span, 4),
        "gpu_waited_s": None if waited is None else round(waited, 3),
        "thinking": None if thought is None else round(thought / whole, 4),
    }


def _sum(told: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The sum of what all profiles tell; None where one doesn't tell it."""
    values = [row["profile"].get(name) for row in told]
    return None if None in values else sum(values)


def _profile_of(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else record.get("profile")


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)
