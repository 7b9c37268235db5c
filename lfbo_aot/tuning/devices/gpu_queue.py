"""What one GPU's worker has to do, in order; which job a fault belongs to; when it took too long.

No process is touched here: `send` and `restart` are given, and so is the time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterable

    from lfbo_aot.tuning.channel import Message

_DEPTH = 2  # requests that are at the worker: while it answers one it has the next
_START_LIMIT = 3  # a worker that dies this often before its first answer will not come up
_START_S = 300.0


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A request for a bucket; `ticket` tells its sender whom the answer is for."""

    kind: str
    """`open`, `measure`, `final`, `close`; `identify` and `reopen` are the queue's own."""
    bucket: int
    ticket: int
    request: Message
    limit_s: float


@dataclass(frozen=True, slots=True)
class GpuDone:
    """A job's answer; `failure` is `crash`, `timeout`, `error`, `gone` or `lost` where there is none.

    `gone`: its bucket can't be opened again after a fault. `lost`: no worker can be made ready.
    """

    job: GpuJob
    reply: Message | None
    failure: str = ""
    error: str = ""
    seconds: float = 0.0
    """From when it was the worker's next until its answer."""


@dataclass(slots=True)
class GpuQueue:
    """The jobs of one GPU. A worker that is started anew opens a bucket before its next job."""

    send: Callable[[Message], None]
    restart: Callable[[], None]
    identify: Message
    waiting: deque[GpuJob] = field(default_factory=deque)
    flight: deque[GpuJob] = field(default_factory=deque)
    identity: Message | None = None
    """The worker's answer to `identify`."""
    measured: int = 0
    """Trials that were answered."""
    lost: str = ""
    """Why no worker can be made ready; empty while there is hope."""
    _opens: dict[int, GpuJob] = field(default_factory=dict)
    _opened: set[int] = field(default_factory=set)
    _since_s: float = 0.0
    _failed_starts: int = 0
    _first_error: str = ""

    def begin(self, now_s: float) -> None:
        """A fresh worker is there."""
        self._opened.clear()
        self.flight.clear()
        self._give(GpuJob("identify", -1, 0, self.identify, _START_S), now_s)

    @property
    def busy(self) -> bool:
        """Whether the worker has a job of ours; not while it starts."""
        return bool(self.flight) and self.flight[0].kind != "identify"

    def pending(self, kind: str, bucket: int | None = None) -> int:
        """How many jobs of this kind have no answer."""
        jobs = [*self.waiting, *self.flight]
        return sum(j.kind == kind and bucket in (None, j.bucket) for j in jobs)

    def submit(self, job: GpuJob, now_s: float) -> list[GpuDone]:
        """Take a job in; its answer comes from one of the other methods, or from here if lost."""
        if self.lost:
            return [GpuDone(job, None, "lost", self.lost)]
        if job.kind == "open":
            self._opens[job.bucket] = job
        self.waiting.append(job)
        self._feed(now_s)
        return []

    def drop(self, bucket: int, kind: str | None = None) -> None:
        """Forget the jobs of a bucket that the worker hasn't got yet; it is closed all the same."""
        doomed = {j.kind for j in self.waiting} - {"close"} if kind is None else {kind}
        self.waiting = deque(j for j in self.waiting if j.bucket != bucket or j.kind not in doomed)
        if kind is None:
            self._opens.pop(bucket, None)

    def answered(self, reply: Message, now_s: float) -> list[GpuDone]:
        """The worker answered the job in hand."""
        if not self.flight:
            return []
        job = self.flight.popleft()
        seconds = now_s - self._since_s
        self._since_s = now_s
        done = self._settle(job, reply, seconds)
        self._feed(now_s)
        return done

    def _settle(self, job: GpuJob, reply: Message, seconds: float) -> list[GpuDone]:
        failed = "error" in reply
        if job.kind == "identify":
            if failed:
                return self._give_up(str(reply["error"]))
            self.identity = reply["reply"]
            return []
        self._failed_starts, self._first_error = 0, ""
        if job.kind in ("open", "reopen"):
            if not failed:
                self._opened.add(job.bucket)
            if job.kind == "reopen":
                return self._abandon(job.bucket, str(reply["error"])) if failed else []
        if job.kind == "close":
            self._opened.discard(job.bucket)
            self._opens.pop(job.bucket, None)
        if failed:
            return [GpuDone(job, None, "error", str(reply["error"]), seconds)]
        return [GpuDone(job, reply["reply"], seconds=seconds)]

    def died(self, error: str, now_s: float) -> list[GpuDone]:
        """The worker is gone: the job in hand goes with it, those behind it go to the next one."""
        return self._replace("crash", error, now_s)

    def tick(self, now_s: float) -> list[GpuDone]:
        """End a job that takes too long."""
        if self.flight and now_s >= self.ends_s:
            error = f"killed after {self.flight[0].limit_s:.1f} s"
            return self._replace("timeout", error, now_s)
        return []

    @property
    def ends_s(self) -> float:
        """When the job in hand will have taken too long."""
        return self._since_s + self.flight[0].limit_s if self.flight else float("inf")

    def _replace(self, failure: str, error: str, now_s: float) -> list[GpuDone]:
        flight, self.flight = list(self.flight), deque()
        done: list[GpuDone] = []
        if flight:
            head, *others = flight
            if head.kind == "identify":
                self._failed_starts += 1
                self._first_error = self._first_error or f"{failure}, {error}"
                if self._failed_starts >= _START_LIMIT:
                    return self._give_up(self._first_error, flight)
            elif head.kind == "reopen":
                done += self._abandon(head.bucket, f"{failure}: {error}")
            else:
                done.append(GpuDone(head, None, failure, error, now_s - self._since_s))
            self.waiting.extendleft(reversed([j for j in others if j.kind not in _OWN]))
        self.restart()
        self.begin(now_s)
        return done

    def _give_up(self, error: str, flight: Iterable[GpuJob] = ()) -> list[GpuDone]:
        self.lost = f"no GPU worker can be made ready: {error}"
        jobs = [j for j in [*flight, *self.flight, *self.waiting] if j.kind not in _OWN]
        self.waiting.clear()
        self.flight.clear()
        return [GpuDone(job, None, "lost", self.lost) for job in jobs]

    def _abandon(self, bucket: int, error: str) -> list[GpuDone]:
        """The bucket can't be opened again: nothing of it can be carried out."""
        jobs = [j for j in [*self.flight, *self.waiting] if j.bucket == bucket]
        self.drop(bucket)
        words = f"the bucket can't be opened again after a fault: {error}"
        return [GpuDone(j, None, "gone", words) for j in jobs if j.kind in _LASTING]

    def _feed(self, now_s: float) -> None:
        while self.waiting and len(self.flight) < _DEPTH:
            if self.flight and self.flight[0].kind in ("identify", "reopen", "open"):
                return  # what comes next depends on it
            job = self.waiting[0]
            known = job.kind in ("open", "close") or job.bucket in self._opened
            if not known and job.bucket in self._opens:
                opening = self._opens[job.bucket]
                again = GpuJob("reopen", job.bucket, 0, opening.request, opening.limit_s)
                self._give(again, now_s)
                return
            self.waiting.popleft()
            self._give(job, now_s)

    def _give(self, job: GpuJob, now_s: float) -> None:
        if not self.flight:
            self._since_s = now_s
        self.flight.append(job)
        self.send(job.request)


_OWN = ("identify", "reopen")
_LASTING = ("measure", "final")  # what a bucket that isn't open can't have
