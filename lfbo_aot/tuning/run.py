"""A tuning run: every bucket of a plan, one after another, each kept as soon as it is done."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from joblib import Parallel
from joblib import delayed

from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.journal import Journal
from lfbo_aot.database.merge import merge
from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import JournalBusyError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.book import Book
from lfbo_aot.tuning.bucket import BucketSearch
from lfbo_aot.tuning.damage import set_aside
from lfbo_aot.tuning.entries import check_shards
from lfbo_aot.tuning.entries import make_entry
from lfbo_aot.tuning.entries import seeds
from lfbo_aot.tuning.few import Reduction
from lfbo_aot.tuning.folders import journal_path
from lfbo_aot.tuning.folders import lock_of
from lfbo_aot.tuning.heartbeat import Heartbeat
from lfbo_aot.tuning.limits import Limits
from lfbo_aot.tuning.order import ordered
from lfbo_aot.tuning.stations import Stations
from lfbo_aot.tuning.task import Manner
from lfbo_aot.tuning.task import Step
from lfbo_aot.tuning.task import Task
from lfbo_aot.tuning.told import Options
from lfbo_aot.tuning.told import Result
from lfbo_aot.tuning.told import Silence
from lfbo_aot.tuning.told import Summary
from lfbo_aot.tuning.told import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.tuning.devices.device import Device
    from lfbo_aot.tuning.devices.device import Opened
    from lfbo_aot.tuning.devices.device import Station
    from lfbo_aot.tuning.plan import Item
    from lfbo_aot.tuning.task import Found

__all__ = ["Options", "Result", "Silence", "Summary", "Watcher", "declare", "tune"]

logger = logging.getLogger(__name__)

_FINAL_S = 2.0  # a final measurement, until one has been seen
_FINAL_SHARE = 0.2  # of a bucket's time, that its final measurement may take at most
_LEAST_FINAL_S = 0.2


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
    todo = ordered([item for item in plan if item.why], plan)
    options, watcher = options or Options(), watcher or Silence()
    beat = Heartbeat(watcher, plan, device.id, into=into, state=state, options=options)
    run = _Run(device, into, state, options, beat)
    run.summary.results += [Result(item, "held", item.held) for item in plan if not item.why]
    started = device.clock()
    try:
        with contextlib.ExitStack() as locks:
            touched = plan if options.few else todo
            for kernel_id in sorted({item.spec.kernel_id for item in touched}):
                journal = journal_path(state, device.id, kernel_id)
                locks.enter_context(_locked(journal))
                if options.fresh and (aside := set_aside(journal)):
                    logger.warning("the damaged journal of %s is now %s", kernel_id, aside)
            check_shards(into, device.id, touched)
            if touched:
                locks.enter_context(beat)
            declare(into, plan)
            run.all(todo)
            run.few(plan)
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
        self,
        device: Device,
        into: Path,
        state: Path,
        options: Options,
        watcher: Watcher,
    ) -> None:
        self._device = device
        self._into = into
        self._state = state
        self._options = options
        self._watcher = watcher
        self._started = device.clock() - options.spent_s
        left = None if options.budget_s is None else max(0.0, options.budget_s - options.spent_s)
        self._limits = Limits(trials=options.trials, clock=device.clock).within(left)
        self._stations = Stations(device.stations)
        self._journals = contextlib.ExitStack()
        self._books: dict[str, Book] = {}
        self._lock = threading.RLock()
        self._thinking_s = 0.0
        self._waited_s = 0.0
        self._first_s: float | None = None
        self._waiting = 0
        self._final_s = _FINAL_S
        self._few_s = 0.0 if left is None or options.few is None else _FINAL_SHARE * left
        """What is kept back of the budget, at most, for the measurements that lead to few configs."""
        self._todo = 0
        self.summary = Summary(device.id)

    def all(self, todo: Sequence[Item]) -> None:
        """Every bucket, at as many stations as there are; the results are in the summary.

        In the order given: each bucket is opened while the one before it is searched.
        """
        self._waiting = self._todo = len(todo)
        with self._journals:
            carry = Parallel(n_jobs=len(self._device.stations), require="sharedmem")
            carry(delayed(self._carry)(item, n, len(todo)) for n, item in enumerate(todo, 1))
        self.summary.profile = self._profile()

    def few(self, plan: Sequence[Item]) -> None:
        """Serve each kernel's buckets by few configs, where the options ask for that."""
        options = self._options
        if options.few is None:
            return
        reduction = Reduction(
            options.few,
            self._stations,
            count=len(self._device.stations),
            limits=self._limits,
            rounds=options.rounds,
        )
        found = self.summary.few = reduction.run(plan, self._device.id, self._into)
        anew = {(r.kernel_id, bucket): entry for r in found for bucket, entry in r.changed.items()}
        self.summary.results = [
            replace(r, entry=anew.get((r.item.spec.kernel_id, r.item.bucket), r.entry))
            for r in self.summary.results
        ]

    def _carry(self, item: Item, number: int, total: int) -> None:
        """Tune a bucket at the next station that is free; once more where its GPU was lost."""
        result: Result | None = None
        again = True
        while again:
            with self._stations.one() as station:
                if station is None:
                    break
                result = self._one(station, item, number, total)
                again = self._stations.is_lost(station)
        result = result or Result(item, "unfinished", reason=self._stations.lost)
        with self._lock:
            self.summary.results.append(result)
            if result.status != "unfinished" or result.seconds:  # else it never began
                self._watcher.ends(result)

    def _one(self, station: Station, item: Item, number: int, total: int) -> Result:
        started = self._device.clock()
        if self._limits.over():
            self._leave_line()
            return Result(item, "unfinished", reason="the budget is spent")
        try:
            status, entry, reason = self._tune(station, item, (number, total))
        except DeviceLostError as e:
            self._stations.lose(station, str(e))
            status, entry, reason = "unfinished", None, str(e)
        except TuningError as e:
            status, entry, reason = "failed", None, str(e)
        finally:
            with contextlib.suppress(TuningError):
                station.leave()
        now = self._device.clock()
        return Result(item, status, entry, reason, now - started, now - self._started)

    def _leave_line(self) -> None:
        with self._lock:
            self._waiting -= 1

    def _tune(
        self, station: Station, item: Item, place: tuple[int, int]
    ) -> tuple[str, Entry | None, str]:
        """(status, entry, reason) of a bucket; its entry is in the database."""
        try:
            opened = station.open(item.spec, item.shape)
        except BaseException:
            self._leave_line()
            raise
        with station.turn():
            with self._lock:
                share_s = self._share()
                self._waiting -= 1
                self._watcher.begins(item, *place)
            if self._limits.over():
                return "unfinished", None, "the budget is spent"
            search = self._search(station, item, opened, share_s)
            ended = search.search()
        began = self._device.clock()
        found = search.finish(ended)
        self._final_s = max(_LEAST_FINAL_S, self._device.clock() - began)
        return self._keep(item, search, found)

    def _search(
        self, station: Station, item: Item, opened: Opened, share_s: float | None
    ) -> BucketSearch:
        options = self._options
        final_s = None
        if share_s is not None:  # of each of the shapes that are measured
            shapes = 1 + len(item.bucket.probes)
            final_s = max(_LEAST_FINAL_S, _FINAL_SHARE * share_s / shapes)
        return BucketSearch(
            Task(item.spec, item.bucket, item.shape, seeds(self._into, item, self._device.id)),
            station,
            opened,
            self._book(item.spec.kernel_id),
            manner=Manner(
                seed=options.seed,
                algorithm=options.algorithm,
                rounds=options.rounds,
                fresh=options.fresh,
                final_s=final_s,
            ),
            limits=self._limits,
            seconds=share_s,
            watch=self._steps,
        )

    def _book(self, kernel_id: str) -> Book:
        with self._lock:
            if kernel_id not in self._books:
                path = journal_path(self._state, self._device.id, kernel_id)
                journal = self._journals.enter_context(Journal(path))
                self._books[kernel_id] = self._journals.enter_context(Book(journal))
            return self._books[kernel_id]

    def _steps(self, step: Step) -> None:
        with self._lock:
            if self._first_s is None:
                self._first_s = self._device.clock() - self._started
            self._watcher.steps(step)

    def _profile(self) -> dict[str, float]:
        """Where the time went: see `Summary.profile`."""
        spent = {
            "thinking_s": self._thinking_s,
            "waited_s": self._waited_s,
            "first_trial_s": self._first_s or 0.0,
        }
        return self._device.usage | {name: round(value, 3) for name, value in spent.items()}

    def _keep(
        self, item: Item, search: BucketSearch, found: Found
    ) -> tuple[str, Entry | None, str]:
        with self._lock:
            self._thinking_s += search.thinking_s
            self._waited_s += search.waited_s
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

    def _share(self) -> float | None:
        """The seconds that the next bucket's search may take: the final measurement comes after it.

        Of the run's budget one such measurement is kept back: that of the last bucket is the only
        one that no search goes on beside. Where configs are to be few, one more a bucket.
        """
        left, own = self._limits.left_s, self._options.per_bucket_s
        shares = []
        if left is not None:
            kept = left - min(self._final_s, _FINAL_SHARE * left)
            kept -= min(self._todo * self._final_s, self._few_s)
            shares.append(max(0.0, kept) / max(1, self._waiting))
        if own is not None:
            shares.append(own - min(self._final_s, _FINAL_SHARE * own))
        return min(shares) if shares else None


def declare(into: Path, items: Sequence[Item]) -> None:
    """Write the declarations of a plan's kernels; before entries, which without one are an error.

    Also of what is held: a module may have changed in a way that leaves its entries as they are.
    """
    specs = {item.spec.kernel_id: item.spec for item in items}
    if specs:
        merge(into, {}, [Declaration.of(specs[kernel_id]) for kernel_id in sorted(specs)])
