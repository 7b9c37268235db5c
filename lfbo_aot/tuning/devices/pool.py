"""A pool of equal workers: work waits in a queue, a worker that dies or hangs is replaced."""

from __future__ import annotations

import selectors
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.errors import TuningError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lfbo_aot.tuning.channel import Message
    from lfbo_aot.tuning.process import WorkerProcess

_START_LIMIT = 3  # a worker that dies this often before its first answer will not come up


@dataclass(frozen=True, slots=True)
class Job:
    """A request, whom its answer is for, and how long it may take."""

    ticket: int
    request: Message
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """A job's answer; `failure` is `crash` or `timeout` where the worker gave none."""

    job: Job
    reply: Message | None
    failure: str = ""
    error: str = ""


class WorkerPool:
    """Runs jobs on `size` workers. Every worker first carries out the `setup` requests in order.

    `setup` is what the bucket in hand needs; a replacement is set up the same way.
    """

    def __init__(self, start: Callable[[], WorkerProcess], size: int, setup_s: float) -> None:
        self._start = start
        self._setup_s = setup_s
        self._setup: list[Message] = []
        self._generation = 0
        self._queue: deque[Job] = deque()
        self._failed_starts = 0
        self._setup_replies: list[Message] = []
        self._slots: list[_Slot] = []
        try:
            for _ in range(size):
                self._slots.append(_Slot(start()))
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        return len(self._slots)

    @property
    def pending(self) -> int:
        """Jobs that were given and have no answer yet."""
        return len(self._queue) + sum(slot.job is not None for slot in self._slots)

    def drop_waiting(self) -> None:
        """Forget the jobs that no worker has begun."""
        self._queue.clear()

    def prepare(self, setup: list[Message]) -> None:
        """Start over with other setup requests.

        Waiting jobs are dropped. Running ones end by themselves or at their deadline, and nobody
        hears of them: to kill their workers would cost more than to wait.
        """
        self._queue.clear()
        self._setup = setup
        self._generation += 1
        self._failed_starts = 0
        self._setup_replies = []
        self._feed()

    def setup_reply(self, timeout_s: float) -> Message:
        """The first worker's answer to the last setup request; raises TuningError with its error."""
        ends = time.monotonic() + timeout_s
        while not self._setup_replies:
            if time.monotonic() > ends:
                msg = f"no {self._slots[0].worker.module} worker was ready within {timeout_s:.0f} s"
                raise TuningError(msg)
            self.poll(0.2)
        return self._setup_replies[0]

    def submit(self, job: Job) -> None:
        self._queue.append(job)
        self._feed()

    def close(self) -> None:
        """End every worker."""
        while self._slots:
            self._slots.pop().worker.kill()

    def busy_workers(self) -> list[WorkerProcess]:
        """The workers that are busy, to wait on together with other pools'."""
        return [slot.worker for slot in self._slots if not slot.worker.idle]

    def poll(self, timeout_s: float) -> list[Done]:
        """The jobs answered since the last call; waits up to `timeout_s` for the first."""
        self._feed()
        waiting = [slot for slot in self._slots if not slot.worker.idle]
        if not waiting:
            return []
        done: list[Done] = []
        with selectors.DefaultSelector() as selector:
            for slot in waiting:
                selector.register(slot.worker.channel.fileno(), selectors.EVENT_READ, slot)
            now = time.monotonic()
            nearest = min(slot.ends for slot in waiting) - now
            ready = selector.select(max(0.0, min(timeout_s, nearest)))
        for key, _ in ready:
            done += self._answered(key.data)
        now = time.monotonic()
        for slot in self._slots:
            if not slot.worker.idle and slot.ends <= now:
                done += self._lost(slot, "timeout", f"killed after {slot.limit_s:.1f} s")
        self._feed()
        return done

    def _answered(self, slot: _Slot) -> list[Done]:
        reply = slot.worker.receive()
        if reply is None:
            return self._lost(slot, "crash", slot.worker.obituary())
        if slot.job is None:
            return self._set_up(slot, reply)
        job, slot.job = slot.job, None
        if slot.generation != self._generation:
            return []
        if "error" in reply:
            return [Done(job, None, "crash", reply["error"])]
        return [Done(job, reply["reply"])]

    def _set_up(self, slot: _Slot, reply: Message) -> list[Done]:
        if slot.generation != self._generation:
            slot.step = 0  # a setup that belonged to the bucket before
            slot.generation = self._generation
            return []
        if "error" in reply:
            msg = reply["error"]
            raise TuningError(msg)
        self._failed_starts = 0
        slot.step += 1
        if slot.step == len(self._setup):
            self._setup_replies.append(reply["reply"])
        return []

    def _lost(self, slot: _Slot, failure: str, error: str) -> list[Done]:
        job, module = slot.job, slot.worker.module
        stale = slot.generation != self._generation
        self._replace(slot)
        if stale:
            return []
        if job is not None:
            return [Done(job, None, failure, error)]
        self._failed_starts += 1
        if self._failed_starts >= _START_LIMIT:
            msg = f"no {module} worker can be made ready: {failure}, {error}"
            raise TuningError(msg)
        return []

    def _replace(self, slot: _Slot) -> None:
        slot.worker.kill()
        slot.worker = self._start()
        slot.job = None
        slot.step = 0
        slot.generation = self._generation

    def _feed(self) -> None:
        for slot in self._slots:
            if not slot.worker.idle:
                continue
            if slot.generation != self._generation:
                slot.step = 0
                slot.generation = self._generation
            if slot.step < len(self._setup):
                slot.give(self._setup[slot.step], self._setup_s, None)
            elif self._queue:
                job = self._queue.popleft()
                slot.give(job.request, job.deadline_s, job)


class _Slot:
    """A worker's place in the pool, and what it is doing."""

    __slots__ = ("ends", "generation", "job", "limit_s", "step", "worker")

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.job: Job | None = None
        self.step = 0
        self.generation = 0
        self.ends = 0.0
        self.limit_s = 0.0

    def give(self, request: Message, limit_s: float, job: Job | None) -> None:
        self.job = job
        self.limit_s = limit_s
        self.ends = time.monotonic() + limit_s
        self.worker.send(request)
