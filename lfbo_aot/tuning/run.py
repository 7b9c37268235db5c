"""A tuning run: every bucket of a plan, one after another, each kept as soon as it is done."""

from __future__ import annotations

import datetime as dt
import logging
import re
import time
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Protocol

from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.entry import Entry
from lfbo_aot.database.journal import Journal
from lfbo_aot.database.merge import merge
from lfbo_aot.errors import JournalBusyError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.bucket import BucketSearch
from lfbo_aot.tuning.bucket import Step
from lfbo_aot.tuning.bucket import Task
from lfbo_aot.tuning.limits import Limits
from lfbo_aot.tuning.plan import neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.bucket import Found
    from lfbo_aot.tuning.devices.device import Device
    from lfbo_aot.tuning.plan import Item

logger = logging.getLogger(__name__)

FINAL_SHARE = 0.08  # of a bucket's time, kept for the final measurement


@dataclass(frozen=True, slots=True)
class Options:
    """How a run tunes. Times in seconds; None: no such limit."""

    budget_s: float | None = None
    per_bucket_s: float | None = None
    trials: int | None = None
    seed: int = 0
    algorithm: str = "lfbo"
    rounds: int = 60
    fresh: bool = False
    """Whether to ignore what journals hold."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one bucket: `tuned`, `held`, `failed` or `unfinished`."""

    item: Item
    status: str
    entry: Entry | None = None
    reason: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Summary:
    """What became of a run."""

    device: DeviceId
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, status: str) -> list[Result]:
        """The results with this status."""
        return [r for r in self.results if r.status == status]

    @property
    def complete(self) -> bool:
        """Whether every bucket of the plan is held now."""
        return not self.of("failed") and not self.of("unfinished")


class Watcher(Protocol):
    """Whoever wants to see a run go on."""

    def begins(self, item: Item, number: int, total: int) -> None: ...

    def steps(self, step: Step) -> None: ...

    def ends(self, result: Result) -> None: ...


class Silence:
    """Nobody watches."""

    def begins(self, item: Item, number: int, total: int) -> None: ...

    def steps(self, step: Step) -> None: ...

    def ends(self, result: Result) -> None: ...


def tune(
    plan: Sequence[Item],
    device: Device,
    *,
    into: Path,
    state: Path,
    options: Options | None = None,
    watcher: Watcher | None = None,
) -> Summary:
    """Tune what the plan doesn't hold yet, and merge each entry into the database at `into`.

    A run that is ended in any way loses the trials in flight: every other one is in a journal below
    `state`, and the next run goes on from there. Raises JournalBusyError where another run tunes
    the same kernel for the same device; a bucket that can't be tuned is a result, not an error.
    """
    options = options or Options()
    watcher = watcher or Silence()
    summary = Summary(device.id)
    started = time.monotonic()
    limits = Limits(
        ends=None if options.budget_s is None else started + options.budget_s,
        trials=options.trials,
    )
    todo = [item for item in plan if item.why]
    for item in plan:
        if not item.why:
            summary.results.append(Result(item, "held", item.held))
    _declare(into, todo)
    for number, item in enumerate(todo, 1):
        if limits.over():
            summary.results.append(Result(item, "unfinished", reason="the budget is spent"))
            continue
        watcher.begins(item, number, len(todo))
        share = _share(limits, options, len(todo) - number + 1)
        result = _one(item, device, into, state, options, limits, share, watcher)
        summary.results.append(result)
        watcher.ends(result)
    summary.seconds = time.monotonic() - started
    return summary


def _share(limits: Limits, options: Options, buckets_left: int) -> float | None:
    """The seconds that the next bucket's search may take."""
    left = limits.left_s
    shares = [options.per_bucket_s, None if left is None else left / buckets_left]
    given = [share for share in shares if share is not None]
    return min(given) * (1.0 - FINAL_SHARE) if given else None


def _start_points(options: Options, share_s: float | None) -> int | None:
    """How many points a search of `share_s` seconds starts from; None: as many as its trials allow.

    Some ten trials a second are made, of which a fifth may be spent before the search is guided.
    """
    if options.trials is not None or share_s is None:
        return None
    return int(min(100.0, max(10.0, 2.0 * share_s)))


def _declare(into: Path, items: Sequence[Item]) -> None:
    """Write the declarations first: an entry without one is an error, the reverse is not."""
    specs = {item.spec.kernel_id: item.spec for item in items}
    if specs:
        merge(into, {}, [Declaration.of(specs[kernel_id]) for kernel_id in sorted(specs)])


def _one(
    item: Item,
    device: Device,
    into: Path,
    state: Path,
    options: Options,
    limits: Limits,
    share_s: float | None,
    watcher: Watcher,
) -> Result:
    from filelock import FileLock
    from filelock import Timeout

    started = time.monotonic()
    path = journal_path(state, device.id, item.spec.kernel_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{path}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        msg = (
            f"another run is tuning {item.spec.kernel_id} for {device.id} (its lock: {path}.lock); "
            "wait for it, or set LFBO_AOT_STATE to another folder"
        )
        raise JournalBusyError(msg) from None
    try:
        with Journal(path) as journal:
            task = Task(item.spec, item.bucket, item.shape, _seeds(into, item, device.id))
            search = BucketSearch(
                task,
                device,
                journal,
                seed=options.seed,
                algorithm=options.algorithm,
                limits=limits,
                seconds=share_s,
                rounds=options.rounds,
                n_initial=_start_points(options, share_s),
                fresh=options.fresh,
                watch=watcher.steps,
            )
            found = search.run()
            entry = make_entry(item, found)
            if entry is not None:
                key = (device.id, item.bucket)
                merge(into, {item.spec.kernel_id: {key: entry}}, [Declaration.of(item.spec)])
            if entry is not None or found.search["ended"] != "time":
                search.record_final(entry.to_json() if entry is not None else None, found.reason)
    except TuningError as e:
        return Result(item, "failed", reason=str(e), seconds=time.monotonic() - started)
    finally:
        lock.release()
    seconds = time.monotonic() - started
    if entry is None:
        status = "unfinished" if found.search["ended"] == "time" else "failed"
        return Result(item, status, reason=found.reason, seconds=seconds)
    return Result(item, "tuned", entry, seconds=seconds)


def make_entry(item: Item, found: Found) -> Entry | None:
    """The database's entry of what was found; None where nothing ran."""
    choice = found.choice
    if choice is None:
        return None
    return Entry(
        config=choice.config,
        alternates=choice.alternates,
        default=choice.is_default,
        latency_us=choice.latency_us,
        default_us=choice.default_us,
        spread=choice.spread,
        near_tie=choice.near_tie,
        resources=choice.resources,
        source=item.spec.source,
        space=found.opened.space.digest,
        settings=item.spec.settings,
        layout=found.opened.layout,
        versions=found.opened.versions,
        policy=found.opened.policy,
        search=found.search,
        measured=dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        note=choice.note or _note(found),
    )


def _note(found: Found) -> str | None:
    """Why nothing but the default is there, where no candidate ran."""
    ok = found.search["trials"] - sum(found.failures.values())
    if ok > 0 or not found.failures:
        return None
    counts = ", ".join(f"{n} {status}" for status, n in sorted(found.failures.items()))
    return f"no candidate ran: {counts}"


def _seeds(into: Path, item: Item, device: DeviceId) -> tuple[dict[str, object], ...]:
    """Winners of the nearest buckets that the database holds for this kernel and device."""
    database = Database(into)
    shard = database.shard(item.spec.kernel_id, device.arch)
    if shard is None:
        return ()
    known: list[tuple[Bucket, Entry]] = []
    for bucket, key in shard.boxes(device.name):
        known.append((bucket, shard.entry(key)))
    configs = [dict(entry.to_json()["config"]) for entry in neighbours(item.bucket, known)]
    return tuple(configs)


def journal_path(state: Path, device: DeviceId, kernel_id: str) -> Path:
    """Where the journal of one kernel on one device lies."""
    folder = re.sub(r"[^A-Za-z0-9.-]+", "_", f"{device.arch}_{device.name}")
    return state / "journals" / folder / f"{kernel_id}.jsonl"
