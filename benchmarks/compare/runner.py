"""Carries out what is missing, within a limit: on one GPU, or on several at once, a job each."""

from __future__ import annotations

import os
import threading
import time
import traceback
from typing import TYPE_CHECKING

from benchmarks.compare import records
from benchmarks.compare.jobs import is_missing
from benchmarks.compare.jobs import pick
from benchmarks.compare.processes import Slot

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.compare.jobs import Job
    from benchmarks.compare.records import Record

    Execute = Callable[[Job, Slot, float, Sequence[Record]], Record]

_MEASURING = ("measure", "remeasure")
_CLOSING_S = 3.0  # for killing a child at its limit, and writing the record


def make_slots(count: int) -> list[Slot]:
    """Places to run in: the first GPU with all cores, or one for each GPU, with a share of them."""
    if count == 1:
        return [Slot()]
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // count
    if not share:
        msg = f"--slots {count}: there are only {len(cores)} cores"
        raise SystemExit(msg)
    return [Slot(i, frozenset(cores[i * share : (i + 1) * share])) for i in range(count)]


class Runner:
    """One command: jobs that are missing in a folder's records, begun while they can end in time."""

    def __init__(
        self,
        folder: Path,
        execute: Execute,
        *,
        limit_s: float,
        budget_s: float,
        again: bool = False,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = print,
    ) -> None:
        self._folder = folder
        self._execute = execute
        self._budget_s = budget_s
        self._again = again
        self._clock = clock
        self._say = say
        self._end = clock() + limit_s
        self._changed = threading.Condition()
        self._running: list[Job] = []
        self._stopped = False
        self._records = records.read(folder)

    def run(self, jobs: Sequence[Job], slots: Sequence[Slot]) -> list[Job]:
        """Carry them out; those that are still missing at the end. Each is begun once at most."""
        todo = list(jobs)
        if len(slots) == 1:
            self._work(todo, slots[0])
        else:
            threads = [threading.Thread(target=self._work, args=(todo, slot)) for slot in slots]
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except BaseException:
                self.stop()
                raise
        return [job for job in jobs if is_missing(job, self._records)]

    def stop(self) -> None:
        """Begin nothing more, and keep no record of what is under way and will be killed."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def _left_s(self) -> float:
        return self._end - self._clock() - _CLOSING_S

    def _work(self, todo: list[Job], slot: Slot) -> None:
        while (job := self._take(todo)) is not None:
            left_s = self._left_s
            self._say(f"{job}: begins, with {left_s:.0f} s left")
            began = self._clock()
            try:
                record = self._execute(job, slot, left_s, tuple(self._records))
            except Exception:  # noqa: BLE001 - the other jobs go on
                record = records.begin(job.side, job.kernel, self._clock() - began)
                record |= {"ended": "failed", "error": traceback.format_exc()[-2000:]}
            if self._stopped:
                return
            records.append(self._folder, record)
            error = record.get("error", "").strip().rpartition("\n")[2]
            how = f"{record['ended']} after {record['wall_s']:.1f} s"
            self._say(f"{job}: {how}{': ' if error else ''}{error}")
            with self._changed:
                self._records.append(record)
                self._running.remove(job)
                self._changed.notify_all()

    def _take(self, todo: list[Job]) -> Job | None:
        """The next job, taken out of `todo`; None where nothing can be begun any more."""
        with self._changed:
            while not self._stopped:
                job = pick(self._ready(todo), self._records, self._left_s, self._budget_s)
                if job is not None:
                    todo.remove(job)
                    self._running.append(job)
                    return job
                if not self._running or not todo:
                    return None
                self._changed.wait()  # what runs may leave something to be measured
            return None

    def _ready(self, todo: Sequence[Job]) -> list[Job]:
        """The jobs that are missing and whose turn it may be.

        Finals aren't timed while another one of the kernel is being found.
        """
        busy = {job.kernel.partition(" ")[0] for job in self._running}
        missing = [job for job in todo if self._is_due(job)]
        return [job for job in missing if job.side not in _MEASURING or job.kernel not in busy]

    def _is_due(self, job: Job) -> bool:
        if self._again and job.side not in _MEASURING:
            return True
        return is_missing(job, self._records)
