"""What tuners wrote while they tuned, as curves: the best latency so far against the time.

A point is (seconds since the start of the process, microseconds as the tuner itself read them).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from pathlib import Path

Curve = list[list[float]]
_TIMED = ("ok", "deduplicated")


@dataclass(slots=True)
class Log:
    """What a tuner's own log says."""

    algorithm: str = ""
    trials: int = 0
    curve: Curve = field(default_factory=list)
    best: dict[str, Any] | None = None
    """The config with the best last reading: what a tuner that was killed had found."""
    selected: dict[str, Any] | None = None
    """The config that the tuner settled on."""


def improvements(readings: Iterable[tuple[float, float]]) -> Curve:
    """The readings (seconds, microseconds) that were better than all before them, in time's order."""
    curve: Curve = []
    for seconds, latency_us in sorted(readings):
        if not curve or latency_us < curve[-1][1]:
            curve.append([round(seconds, 3), round(latency_us, 4)])
    return curve


def helion_log(path: Path, started: float) -> Log:
    """Helion's trace of a run whose process started at `started`, in seconds since the epoch."""
    log = Log()
    readings: list[tuple[float, float]] = []
    last: dict[str, tuple[float, dict[str, Any]]] = {}
    for row in _rows(path):
        event = row.get("event")
        if event == "run_start":
            log.algorithm = row["algorithm"]
        elif event == "selected":
            log.selected = row["config"]
        log.trials += event == "trial"
        timed = row.get("perf_ms") is not None and row.get("status") in _TIMED
        if event in ("trial", "rebenchmark") and timed:
            readings.append((row["timestamp_s"] - started, 1000.0 * row["perf_ms"]))
            last[row["config_id"]] = (row["perf_ms"], row["config"])
    log.curve = improvements(readings)
    if last:
        log.best = min(last.values(), key=lambda pair: pair[0])[1]
    return log


def our_curve(state: Path, offset_s: float) -> Curve:
    """The curve of our journals below `state`; a journal's seconds begin `offset_s` after the start."""
    rows = (row for path in state.glob("journals/**/*.jsonl") for row in _rows(path))
    return improvements(
        (offset_s + row.get("seconds", 0.0), row["latency_us"])
        for row in rows
        if row.get("kind") == "trial" and row.get("status") == "ok" and not row.get("cut")
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """A JSON Lines file's objects; one that a killed process left half written is passed over."""
    if not path.is_file():
        return
    with path.open(errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row
