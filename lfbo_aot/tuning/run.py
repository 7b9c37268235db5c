"""A tuning run: every bucket of a plan, one after another, each kept as soon as it is done."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Protocol

from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.journal import Journal
from lfbo_aot.database.merge import merge
from lfbo_aot.errors import JournalBusyError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.bucket import BucketSearch
from lfbo_aot.tuning.bucket import Manner
from lfbo_aot.tuning.bucket import Step
from lfbo_aot.tuning.bucket import Task
from lfbo_aot.tuning.damage import set_aside
from lfbo_aot.tuning.entries import check_shards
from lfbo_aot.tuning.entries import make_entry
from lfbo_aot.tuning.entries import seeds
from lfbo_aot.tuning.folders import journal_path
from lfbo_aot.tuning.folders import lock_of
from lfbo_aot.tuning.heartbeat import Heartbeat
from lfbo_aot.tuning.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.devices import DeviceId
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
    `state`, and the next run goes on from there. A bucket that can't be tuned is a result, not an
    error. Raises, before anything is tuned, JournalBusyError where another run tunes one of the
    kernels for the same device, and DatabaseError where a file is damaged that entries would be
    merged into; TuningError where `into` or `state` can't be written.
    """
    todo = [item for item in plan if item.why]
    options, watcher = options or Options(), watcher or Silence()
    beat = Heartbeat(watcher, plan, device.id, into=into, state=state, options=options)
    run = _Run(device, into, state, options, beat)
    run.summary.results += [Result(item, "held", item.held) for item in plan if not item.why]
    started = device.clock()
    try:
        with contextlib.ExitStack() as locks:
            for kernel_id in sorted({item.spec.kernel_id for item in todo}):
                journal = journal_path(state, device.id, kernel_id)
                locks.enter_context(_locked(journal))
                if options.fresh and (aside := set_aside(journal)):
                    logger.warning("the damaged journal of %s is now %s", kernel_id, aside)
            check_shards(into, device.id, todo)
            if todo:
                locks.enter_context(beat)
            declare(into, plan)
            run.all(todo)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        msg = (
            f"can't go on: {where}{error.strerror or error}. "
            "Finished trials are kept; run again to go on from them"
        )
        raise TuningError(msg) from error
    run.summary.seconds = device.clock() - started
    return run.summary


@contextlib.contextmanager
def _locked(journal: Path) -> Iterator[None]:
    """Hold the journal for this run alone."""
    from filelock import FileLock
    from filelock import Timeout

    journal.parent.mkdir(parents=True, exist_ok=True)
    # `status` holds the lock for an instant to see whether a run does.
    lock = FileLock(lock_of(journal), timeout=1.0)
    try:
        lock.acquire()
    except Timeout:
        msg = (
            f"another run is tuning {journal.stem} for this device (its lock: {lock_of(journal)}); "
            "wait for it, or set LFBO_AOT_STATE to another folder"
        )
        raise JournalBusyError(msg) from None
    try:
        yield
    finally:
        lock.release()


class _Run:
    """A run under way: what all its buckets share."""

    def __init__(
        self, device: Device, into: Path, state: Path, options: Options, watcher: Watcher
    ) -> None:
        self._device = device
        self._into = into
        self._state = state
        self._options = options
        self._watcher = watcher
        self._limits = Limits(trials=options.trials, clock=device.clock).within(options.budget_s)
        self.summary = Summary(device.id)

    def all(self, todo: Sequence[Item]) -> None:
        """One bucket after another; the results are in the summary."""
        for number, item in enumerate(todo, 1):
            if self._limits.over():
                result = Result(item, "unfinished", reason="the budget is spent")
                self.summary.results.append(result)
                continue
            self._watcher.begins(item, number, len(todo))
            share_s = _share(self._limits, self._options, len(todo) - number + 1)
            result = self._one(item, share_s)
            self.summary.results.append(result)
            self._watcher.ends(result)

    def _one(self, item: Item, share_s: float | None) -> Result:
        started = self._device.clock()
        path = journal_path(self._state, self._device.id, item.spec.kernel_id)
        try:
            with Journal(path) as journal:
                status, entry, reason = self._search(item, journal, share_s)
        except TuningError as e:
            status, entry, reason = "failed", None, str(e)
        return Result(item, status, entry, reason, self._device.clock() - started)

    def _search(
        self, item: Item, journal: Journal, share_s: float | None
    ) -> tuple[str, Entry | None, str]:
        """(status, entry, reason) of a bucket; its entry is in the database."""
        options = self._options
        search = BucketSearch(
            Task(item.spec, item.bucket, item.shape, seeds(self._into, item, self._device.id)),
            self._device,
            journal,
            Manner(
                seed=options.seed,
                algorithm=options.algorithm,
                rounds=options.rounds,
                fresh=options.fresh,
            ),
            self._limits,
            seconds=share_s,
            watch=self._watcher.steps,
        )
        found = search.run()
        entry = make_entry(item, found)
        if entry is None:
            if found.search["ended"] == "time":
                return "unfinished", None, found.reason
            search.record_final(None, found.reason)
            return "failed", None, found.reason
        key = (self._device.id, item.bucket)
        merge(self._into, {item.spec.kernel_id: {key: entry}}, [Declaration.of(item.spec)])
        # Last: a session that has an end is never gone on with.
        search.record_final(entry.to_json(), "")
        return "tuned", entry, ""


def _share(limits: Limits, options: Options, buckets_left: int) -> float | None:
    """The seconds that the next bucket's search may take."""
    left = limits.left_s
    shares = [options.per_bucket_s, None if left is None else left / buckets_left]
    given = [share for share in shares if share is not None]
    return min(given) * (1.0 - FINAL_SHARE) if given else None


def declare(into: Path, items: Sequence[Item]) -> None:
    """Write the declarations of a plan's kernels; before entries, which without one are an error.

    Also of what is held: a module may have changed in a way that leaves its entries as they are.
    """
    specs = {item.spec.kernel_id: item.spec for item in items}
    if specs:
        merge(into, {}, [Declaration.of(specs[kernel_id]) for kernel_id in sorted(specs)])
