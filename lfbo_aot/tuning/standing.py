"""Where tuning stands: read from the state folder, by another process than the one that tunes.

The journals alone tell what was tried and found. The files of `lfbo_aot.tuning.heartbeat` add the
runs, their plans and their budgets. Nothing is written, and no lock is kept.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.journal import Journal
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.folders import journal_path
from lfbo_aot.tuning.folders import lock_of
from lfbo_aot.tuning.folders import runs_folder
from lfbo_aot.tuning.heartbeat import HELD
from lfbo_aot.tuning.heartbeat import RUNNING
from lfbo_aot.tuning.heartbeat import SCHEMA
from lfbo_aot.tuning.heartbeat import WAITING
from lfbo_aot.tuning.heartbeat import is_alive
from lfbo_aot.tuning.heartbeat import this_host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from pathlib import Path

TUNED = "tuned"
FAILED = "failed"
INTERRUPTED = "interrupted"
"""The search has no end and nobody goes on with it; the next run will."""
_GOOD = ("ok", "duplicate")

Record = dict[str, Any]


@dataclass(slots=True)
class BucketStanding:
    """How far one bucket is; latencies in microseconds."""

    kernel_id: str
    device: str
    bucket: str
    status: str
    """`tuned`, `failed`, `running`, `interrupted`, or what a run's plan says: `waiting`, ..."""
    trials: int = 0
    latency_us: float | None = None
    """Of the entry; before there is one, the best reading so far."""
    default_us: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    left_s: float | None = None
    reason: str = ""

    @property
    def gain(self) -> float | None:
        """How many times faster than the default, where both are known."""
        if self.latency_us is None or self.default_us is None:
            return None
        return self.default_us / self.latency_us


@dataclass(frozen=True, slots=True)
class RunStanding:
    """How far one run is."""

    pid: int
    host: str
    alive: bool
    started: str
    device: str
    into: str
    done: int
    """Buckets that came to an end in this run, whatever it was."""
    total: int
    """Buckets that the run has to tune."""
    held: int
    """Buckets of its plan that were held before."""
    left_s: float | None
    """Of its budget; None where it has none, or has ended."""
    buckets: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """All that a state folder tells."""

    runs: tuple[RunStanding, ...]
    buckets: tuple[BucketStanding, ...]
    damage: tuple[str, ...]


def read_standing(state: Path, now: float | None = None) -> Standing:
    """Where everything stands that was tuned with this state folder; `now` as `time.time()` has it.

    What is damaged is named in `damage`; the rest is read.
    """
    now = time.time() if now is None else now
    damage: list[str] = []
    buckets: dict[tuple[str, str, str], BucketStanding] = {}
    for path in sorted(state.glob("journals/*/*.jsonl")):
        locked = is_locked(lock_of(path))
        records: list[Record] = []
        try:
            # One at a time: what stands before a damaged line is told.
            records += Journal(path).records()
        except (DatabaseError, OSError) as error:
            damage.append(str(error))
        for standing in _of_journal(records, locked=locked):
            buckets[standing.kernel_id, standing.device, standing.bucket] = standing
    files = sorted(runs_folder(state).glob("*.json"))
    runs = [run for file in files if (run := _run(state, file, now))]
    for run in runs:
        if run.alive:
            _add_plan(buckets, run, now)
    return Standing(tuple(runs), tuple(buckets[key] for key in sorted(buckets)), tuple(damage))


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock of this file, as a run holds those of its journals."""
    try:
        import fcntl
    except ImportError:  # elsewhere than on Unix a lock can't be looked at without taking it
        return False
    try:
        with path.open("rb") as file:
            # Shared, and for an instant: several that look don't see each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _of_journal(records: Sequence[Record], *, locked: bool) -> list[BucketStanding]:
    """How far each bucket of a journal is; the last one is being searched if it is `locked`."""
    by_bucket: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        names = tuple(record.get(name) for name in ("kernel", "device", "bucket"))
        if all(isinstance(name, str) for name in names):
            by_bucket.setdefault(names, []).append(record)  # type: ignore[arg-type]
    current = records[-1].get("bucket") if records else None
    return [
        _of_bucket(names, own, live=locked and names[2] == current)
        for names, own in by_bucket.items()
    ]


def _of_bucket(
    names: tuple[str, str, str], records: Sequence[Record], *, live: bool
) -> BucketStanding:
    opened = next((r for r in reversed(records) if r.get("kind") == "open"), {})
    session = [r for r in records if r.get("session") == opened.get("session")]
    final = next((r for r in session if r.get("kind") == "final"), None)
    trials = [r for r in session if r.get("kind") == "trial"]
    found = BucketStanding(*names, status=RUNNING if live else INTERRUPTED, trials=len(trials))
    found.failures = dict(Counter(r["status"] for r in trials if r.get("status") not in _GOOD))
    if final is not None:
        entry = final.get("entry") or {}
        found.status = TUNED if entry else FAILED
        found.latency_us, found.default_us = entry.get("latency_us"), entry.get("default_us")
        found.reason = str(final.get("reason") or entry.get("note") or "")
        return found
    if opened.get("recalled"):
        # Earlier sessions' readings hold for this one too.
        trials = [r for r in records if r.get("kind") == "trial"]
    timed = [r for r in trials if r.get("status") == "ok" and r.get("latency_us")]
    timed = [r for r in timed if not r.get("cut")]
    default = opened.get("space", {}).get("default")
    found.latency_us = min((r["latency_us"] for r in timed), default=None)
    found.default_us = next((r["latency_us"] for r in timed if r.get("point") == default), None)
    return found


def _run(state: Path, path: Path, now: float) -> RunStanding | None:
    """The run that a file tells of; None where it can't be read, as while it is deleted."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] > SCHEMA:
            return None
        rows = data["buckets"]
        device, pid, host = data["device"], data["pid"], data["host"]
        kernels = {row["kernel"] for row in rows}
        journals = [journal_path(state, DeviceId.parse(device), kernel) for kernel in kernels]
        alive = any(is_locked(lock_of(journal)) for journal in journals)
        # Another run may hold them by now.
        alive = alive and (host != this_host() or is_alive(pid))
        states = [row["status"] for row in rows]
        ends = data["budget_ends"]
        return RunStanding(
            pid=pid,
            host=host,
            alive=alive,
            started=data["started"],
            device=device,
            into=data["into"],
            done=sum(state not in (WAITING, RUNNING, HELD) for state in states),
            total=sum(state != HELD for state in states),
            held=states.count(HELD),
            left_s=max(0.0, ends - now) if alive and ends is not None else None,
            buckets=tuple(rows),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _add_plan(
    buckets: dict[tuple[str, str, str], BucketStanding], run: RunStanding, now: float
) -> None:
    """What a live run's plan knows beyond the journals: what waits, and the time that is left."""
    for row in run.buckets:
        key = row["kernel"], run.device, row["bucket"]
        status = row["status"]
        known = buckets.get(key)
        if known is None:
            known = buckets[key] = BucketStanding(*key, status=status)
        elif status in (WAITING, RUNNING, "unfinished", "failed"):
            known.status = status
        if row.get("ends") is not None:
            known.left_s = max(0.0, row["ends"] - now)
        known.reason = row.get("reason", known.reason)
