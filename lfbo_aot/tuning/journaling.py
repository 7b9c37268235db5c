"""A bucket's search as the journal holds it: written as it happens, and replayed exactly.

A session is one search of one bucket. Its `open` record says what it is; `ask` records hold the
points that the optimizer proposed, `trial` records what became of them, and `final` the entry. The
same session is found again by its identity and goes on; another one starts from what it knows.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.search import Trial

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.search import Optimizer
    from lfbo_aot.search import Point
    from lfbo_aot.search import Space
    from lfbo_aot.tuning.book import Book
    from lfbo_aot.tuning.devices.device import Outcome

Record = dict[str, Any]

# What two sessions of a bucket must share for the trials of one to be true of the other.
_COMPARABLE = (
    "kernel",
    "bucket",
    "device",
    "source",
    "settings",
    "judged_by",
    "layout",
    "policy",
    "versions",
)
# What a config is, whatever was wrong with the reference, the inputs or the machine then.
_FACTS = ("ok", "duplicate", "invalid", "compile_error", "compile_timeout")


def config_key(config: Mapping[str, Any]) -> str:
    """A short name for a config: equal for equal configs, whatever the order of their keys."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Progress:
    """What a search has so far: shared by its live part and its replay."""

    tickets: int = 0
    trials: int = 0
    dry: bool = False
    """Whether the optimizer had less to say than it was asked for: only a result changes that."""
    outstanding: dict[int, Point] = field(default_factory=dict)
    """Asked and not answered, by ticket."""
    configs: dict[Point, Record] = field(default_factory=dict)
    """The trial record of each timed point: its config and what it uses."""
    by_config: dict[str, Record] = field(default_factory=dict)
    """A trial record of each canonical config: the first that ran, else the first."""
    told: set[Point] = field(default_factory=set)
    """Every point that something is known of."""
    failures: dict[str, int] = field(default_factory=dict)
    recalled: int = 0
    """How many trials of earlier sessions the search knew from the start."""
    recalled_failures: dict[str, int] = field(default_factory=dict)
    """Those that earlier sessions met."""
    seconds: float = 0.0
    """Search time of this session before this process."""


class Session:
    """One search of one bucket, in the journal."""

    def __init__(self, journal: Book, identity: Record, number: int) -> None:
        self._journal = journal
        self.identity = identity
        self.number = number
        self._keys = {key: identity[key] for key in ("kernel", "bucket", "device")}

    def opened(self, recalled: int) -> None:
        """The session began, knowing `recalled` trials of earlier ones."""
        self._write({"kind": "open", **self.identity, "recalled": recalled})

    def asked(self, n: int, tickets: Mapping[int, Point]) -> None:
        """The optimizer was asked for `n` points and gave these."""
        self._write({"kind": "ask", "n": n, "points": [[t, list(p)] for t, p in tickets.items()]})

    def told(self, record: Record) -> None:
        self._write({"kind": "trial", **record})

    def finished(self, entry: Record | None, reason: str = "") -> None:
        self._write({"kind": "final", "entry": entry, "reason": reason})
        self._journal.save()

    def _write(self, record: Record) -> None:
        kind = record.pop("kind")
        self._journal.append({"kind": kind, "session": self.number, **self._keys, **record})


def trial_record(ticket: int, point: Point, outcome: Outcome, seconds: float) -> Record:
    """A trial as the journal holds it; fields that say nothing are left out."""
    record: Record = {
        "ticket": ticket,
        "point": list(point),
        "status": outcome.status,
        "latency_us": outcome.latency_us,
        "launches": outcome.launches,
        "cut": outcome.cut,
        "config": outcome.config,
        "codegen_s": outcome.codegen_s,
        "compile_s": outcome.compile_s,
        "check_s": outcome.check_s,
        "time_s": outcome.time_s,
        "resources": dict(outcome.resources),
        "error": outcome.error[:300],
        "seconds": round(seconds, 3),
    }
    kept = ("ticket", "config", "seconds")
    return {k: v for k, v in record.items() if v or (k in kept and v is not None)}


def to_trial(space: Space, record: Mapping[str, Any]) -> Trial:
    """What the optimizer is told of a trial record; ValueError where its point isn't the space's."""
    return Trial(
        space.canonical(record["point"]),
        record["status"],
        record.get("latency_us"),
        cut=bool(record.get("cut", False)),
        compile_s=record.get("compile_s"),
    )


def note(progress: Progress, point: Point, record: Record) -> None:
    """Take a trial record into account."""
    progress.trials += 1
    progress.dry = False
    progress.told.add(point)
    status = record["status"]
    if status == "ok":
        progress.configs[point] = record
    elif status != "duplicate":
        progress.failures[status] = progress.failures.get(status, 0) + 1
    config = record.get("config")
    if config is not None:
        key = config_key(config)
        known = progress.by_config.get(key)
        if known is None or (status == "ok" and known["status"] != "ok"):
            progress.by_config[key] = record
    progress.seconds = max(progress.seconds, record.get("seconds", 0.0))


def unfinished(records: Sequence[Record], asked: Record) -> Record:
    """The `open` record of a bucket's last session if that has no end yet, else an empty one.

    Also empty where it differs in one of the fields of `asked`.
    """
    last = next((r for r in reversed(records) if r["kind"] == "open"), None)
    if last is None:
        return {}
    ended = any(r["kind"] == "final" and r["session"] == last["session"] for r in records)
    wanted = normalized(asked)
    return {} if ended or {k: last.get(k) for k in wanted} != wanted else last


def session_records(records: Sequence[Record], identity: Record) -> list[Record]:
    """The records of a bucket's last session if it has this identity and no end; else none.

    Only the last one may go on: one before it knows nothing of what came after, and would try that
    again.
    """
    last = unfinished(records, identity)
    return [r for r in records if r["session"] == last["session"]] if last else []


def next_number(records: Sequence[Record]) -> int:
    return 1 + max((r["session"] for r in records), default=0)


def normalized(identity: Record) -> Record:
    """As it reads back from the journal: tuples as lists, in plain JSON."""
    plain: Record = json.loads(json.dumps(identity))
    return plain


def replay(
    optimizer: Optimizer, space: Space, records: Iterable[Record], progress: Progress
) -> bool:
    """Bring a fresh optimizer to where the session's records end.

    False where it proposes something else than it did then, which takes another version of the
    search; neither it nor `progress` is of use then.
    """
    for record in records:
        if record["kind"] == "ask":
            points = {t: space.check(p) for t, p in record["points"]}
            if optimizer.ask(record["n"]) != list(points.values()):
                return False
            progress.outstanding |= points
            progress.tickets = max([progress.tickets, *points])
            progress.dry = len(points) < record["n"]
        elif record["kind"] == "trial":
            trial = to_trial(space, record)
            progress.outstanding.pop(record["ticket"], None)
            optimizer.tell(trial)
            note(progress, trial.point, record)
    return True


def recall(records: Sequence[Record], identity: Record, space: Space) -> list[Record]:
    """The trials of other sessions that hold for this one too, the first one of each point.

    A wrong result, a crash, a timeout or too little memory then is worth another try now.
    """
    wanted = {key: normalized(identity)[key] for key in _COMPARABLE}
    comparable = {
        r["session"]
        for r in records
        if r["kind"] == "open" and {key: r.get(key) for key in _COMPARABLE} == wanted
    }
    found: dict[Point, Record] = {}
    for record in records:
        if record["kind"] != "trial" or record["session"] not in comparable:
            continue
        if record["status"] not in _FACTS:
            continue
        try:
            point = space.canonical(record["point"])
        except ValueError:
            continue  # of a space that had other tunables
        found.setdefault(point, record)
    return list(found.values())
