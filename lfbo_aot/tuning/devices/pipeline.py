"""Candidates on their way: to a compiler, from there to a GPU, and back as outcomes.

No process is touched and no time is read here: compilers and GPUs are ports, and the time is an
argument. So the order of everything can be tried out with a simulated clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Protocol

from lfbo_aot.tuning.devices.deadline import Deadline
from lfbo_aot.tuning.devices.device import to_outcome
from lfbo_aot.tuning.devices.gpu_queue import GpuDone
from lfbo_aot.tuning.devices.gpu_queue import GpuJob
from lfbo_aot.tuning.devices.gpu_queue import GpuQueue
from lfbo_aot.tuning.devices.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.tuning.channel import Message
    from lfbo_aot.tuning.devices.device import Outcome

Key = tuple[int, int]
"""Bucket and ticket."""

_READY = 4  # binaries that wait for a GPU before less is compiled
_LEAST_COMPILE_S = 1.0
_LEAST_TRIAL_S = 3.0
_SLOW_TRIAL = 30.0  # times what the slowest good one took
_ATTEMPTS = 2  # at a compilation whose server was lost


class Compilers(Protocol):
    """Whoever compiles: each bucket has a server, which carries out what it is told at once."""

    def start(self, bucket: int, request: Message) -> None: ...

    def kill(self, bucket: int, ticket: int) -> None: ...

    @property
    def opening(self) -> int: ...


@dataclass(slots=True)
class _Code:
    """Generated code that some candidate came with first."""

    compiled: Message | None = None
    """The compiler's answer; None while it compiles."""
    outcome: Outcome | None = None
    followers: list[tuple[_Candidate, Message]] = field(default_factory=list)
    """Candidates that came with the same code, and what the compiler said of them."""


@dataclass(slots=True)
class _Candidate:
    bucket: int
    ticket: int
    what: Message
    best_us: float | None
    attempts: int = 0
    since_s: float = 0.0
    killed: bool = False


@dataclass(slots=True)
class _Bucket:
    gpu: int
    order: int
    compile: Deadline
    outcomes: deque[Outcome] = field(default_factory=deque)
    codes: dict[str, _Code] = field(default_factory=dict)
    compiled: dict[int, Message] = field(default_factory=dict)
    served: bool = True
    """Whether its compile server is there; while another one is made, nothing is started."""
    trouble: str = ""


class Pipeline:
    """The candidates of all open buckets. Tickets from 0 up are trials, and are measured once compiled;
    others are compiled only.

    `slots` candidates compile at a time; the bucket that was opened first goes first.
    """

    def __init__(
        self,
        compilers: Compilers,
        gpus: Sequence[GpuQueue],
        *,
        slots: int,
        compile_s: float = 5.0,
        trial_s: float = 20.0,
    ) -> None:
        self.usage = Usage()
        self.gpus = gpus
        self.slots = slots
        self.answers: deque[GpuDone] = deque()
        """Of the jobs that aren't trials."""
        self._compilers = compilers
        self._compile_s = compile_s
        self._trial = Deadline(trial_s, _LEAST_TRIAL_S, _SLOW_TRIAL, 1.0)
        self._deadlines: dict[str, Deadline] = {}
        self._buckets: dict[int, _Bucket] = {}
        self._names = itertools.count(1)
        self._waiting: list[tuple[int, int, _Candidate]] = []
        self._running: dict[Key, _Candidate] = {}
        self._sequence = itertools.count()

    # Buckets

    def open(self, gpu: int, kernel: str) -> int:
        """A new bucket of this kernel on this GPU; what compiles too long is learnt by kernel."""
        known = Deadline(self._compile_s, min(self._compile_s, _LEAST_COMPILE_S))
        deadline = self._deadlines.setdefault(kernel, known)
        name = next(self._names)
        self._buckets[name] = _Bucket(gpu, name, deadline)
        return name

    def close(self, bucket: int, now_s: float) -> None:
        """Forget a bucket; what still compiles or is measured is ended, or nobody hears of it."""
        self._kill_running(bucket)
        found = self._buckets.pop(bucket, None)
        if found is not None:
            self.gpus[found.gpu].drop(bucket)
        self._clear(bucket, now_s)

    def abandon(self, bucket: int) -> None:
        """End the trials of a bucket: those under way come to nothing, or nobody hears of them."""
        self._forget_waiting(bucket)
        self._kill_running(bucket)
        self.gpus[self._buckets[bucket].gpu].drop(bucket, "measure")

    def _clear(self, bucket: int, now_s: float) -> None:
        """Give the compilers that a bucket holds to others: no answer need come of its server."""
        self._forget_waiting(bucket)
        for key in [key for key in self._running if key[0] == bucket]:
            del self._running[key]
        self._feed(now_s)

    def _kill_running(self, bucket: int) -> None:
        for key, candidate in self._running.items():
            if candidate.bucket == bucket and not candidate.killed:
                candidate.killed = True
                self._compilers.kill(*key)

    def _forget_waiting(self, bucket: int) -> None:
        self._waiting = [item for item in self._waiting if item[2].bucket != bucket]
        heapq.heapify(self._waiting)

    def trouble(self, bucket: int) -> str:
        """Why nothing of this bucket can be carried out any more; empty if it can."""
        own = self._buckets[bucket]
        return own.trouble or self.gpus[own.gpu].lost

    # Trials

    def free(self, bucket: int) -> int:
        """How many more points the bucket can usefully be given now.

        A few wait for a compiler, so that none idles while the search thinks.
        """
        own = self._buckets[bucket]
        ready = self.gpus[own.gpu].pending("measure", bucket)
        compiling = sum(c.bucket == bucket for c in self._running.values())
        compiling += sum(item[2].bucket == bucket for item in self._waiting)
        return max(0, self.slots + max(2, self.slots // 3) - compiling - max(0, ready - _READY))

    def submit(
        self, bucket: int, ticket: int, what: Message, best_us: float | None, now_s: float
    ) -> None:
        """Start a candidate on its way: `what` is its `point` or its `config`."""
        candidate = _Candidate(bucket, ticket, what, best_us)
        self._enqueue(candidate)
        self._feed(now_s)

    def _enqueue(self, candidate: _Candidate) -> None:
        order = self._buckets[candidate.bucket].order
        heapq.heappush(self._waiting, (order, next(self._sequence), candidate))

    def take(self, bucket: int) -> list[Outcome]:
        """The outcomes since the last call."""
        outcomes = self._buckets[bucket].outcomes
        found = list(outcomes)
        outcomes.clear()
        return found

    def code(self, bucket: int, ticket: int) -> Message | None:
        """What the GPU worker needs to load a candidate: `path`, `function`, `digest`."""
        reply = self._buckets[bucket].compiled.get(ticket)
        return None if reply is None else _code_of(reply)

    def _feed(self, now_s: float) -> None:
        unserved = []
        while self._waiting and len(self._running) < self.slots:
            item = heapq.heappop(self._waiting)
            candidate = item[2]
            if not self._buckets[candidate.bucket].served:
                unserved.append(item)
                continue
            candidate.since_s = now_s
            candidate.attempts += 1
            self._running[candidate.bucket, candidate.ticket] = candidate
            request = {"op": "compile", "ticket": candidate.ticket, **candidate.what}
            self._compilers.start(candidate.bucket, request)
        for item in unserved:
            heapq.heappush(self._waiting, item)
        self._account(now_s)

    def compiled(self, bucket: int, reply: Message, now_s: float) -> None:
        """The compiler's answer to a candidate."""
        ticket = int(reply["ticket"])
        candidate = self._running.pop((bucket, ticket), None)
        own = self._buckets.get(bucket)
        if candidate is not None and own is not None:
            if candidate.killed and reply["status"] != "same_code":
                reply = {**reply, **_killed(candidate, now_s)}
            elif reply["status"] == "ok":
                own.compile.tell(now_s - candidate.since_s)
            self._after_compile(own, candidate, reply, now_s)
        self._feed(now_s)

    def server_lost(self, bucket: int, error: str, now_s: float) -> None:
        """A bucket's server is gone and another one comes: what it compiled is tried once more."""
        own = self._buckets.get(bucket)
        if own is None:
            return
        own.served = False
        lost = [self._running.pop(key) for key in list(self._running) if key[0] == bucket]
        # Whoever was first with a code may come to nothing now: its followers are on their own.
        for code in own.codes.values():
            if code.compiled is None:
                lost += [candidate for candidate, _ in code.followers]
                code.followers = []
        for candidate in lost:
            if candidate.killed:
                self._answer(own, candidate.ticket, _killed(candidate, now_s))
            elif candidate.attempts < _ATTEMPTS:
                self._enqueue(candidate)
            else:
                self._answer(own, candidate.ticket, {"status": "crash", "error": error})
        self._feed(now_s)

    def server_back(self, bucket: int, now_s: float) -> None:
        """The bucket's next server is there."""
        if bucket in self._buckets:
            self._buckets[bucket].served = True
        self._feed(now_s)

    def server_gone(self, bucket: int, error: str, now_s: float) -> None:
        """No server can be made for a bucket any more."""
        own = self._buckets.get(bucket)
        if own is not None:
            own.trouble = own.trouble or error
        self._clear(bucket, now_s)

    def _after_compile(
        self, own: _Bucket, candidate: _Candidate, reply: Message, now_s: float
    ) -> None:
        digest = reply.get("digest")
        if digest is None:
            self._answer(own, candidate.ticket, reply)
            return
        code = own.codes.setdefault(digest, _Code())
        # A server that was started anew doesn't know what was compiled before.
        if reply["status"] == "same_code" or code.compiled is not None:
            code.followers.append((candidate, reply))
            self._follow(own, code)
            return
        code.compiled = reply
        if reply["status"] == "ok":
            self.usage.first_binary(now_s)
            own.compiled[candidate.ticket] = reply
            if candidate.ticket >= 0:
                self._measure(own, candidate, reply, now_s)
        else:
            code.outcome = to_outcome(candidate.ticket, reply)
        if candidate.ticket < 0 or reply["status"] != "ok":
            self._answer(own, candidate.ticket, reply)
        self._follow(own, code)

    def _follow(self, own: _Bucket, code: _Code) -> None:
        """Answer those that came with the same code, as far as is known what it is."""
        left = []
        for candidate, reply in code.followers:
            ticket = candidate.ticket
            if ticket < 0 and code.compiled is not None:
                own.compiled[ticket] = code.compiled
                self._answer(own, ticket, {**reply, "status": code.compiled["status"]})
            elif ticket >= 0 and code.outcome is not None:
                first = code.outcome
                status = "duplicate" if first.status == "ok" else first.status
                known = {"latency_us": first.latency_us, "cut": first.cut, "error": first.error}
                self._answer(own, ticket, {**reply, **known, "status": status})
            else:
                left.append((candidate, reply))
        code.followers = left

    def _measure(self, own: _Bucket, candidate: _Candidate, reply: Message, now_s: float) -> None:
        request: Message = {
            "op": "measure",
            "bucket": candidate.bucket,
            "code": _code_of(reply),
            "best_us": candidate.best_us,
        }
        limit_s = self._trial.limit_s
        job = GpuJob("measure", candidate.bucket, candidate.ticket, request, limit_s)
        self._hear(self.gpus[own.gpu].submit(job, now_s))

    # The GPUs

    def ask_gpu(self, job: GpuJob, now_s: float) -> None:
        """Give a job that is no trial to the bucket's GPU; its answer comes in `answers`."""
        own = self._buckets[job.bucket]
        self._hear(self.gpus[own.gpu].submit(job, now_s))
        self._account(now_s)

    def gpu_answered(self, gpu: int, reply: Message, now_s: float) -> None:
        self._hear(self.gpus[gpu].answered(reply, now_s))
        self._account(now_s)

    def gpu_died(self, gpu: int, error: str, now_s: float) -> None:
        self._hear(self.gpus[gpu].died(error, now_s))
        self._account(now_s)

    def _hear(self, answers: list[GpuDone]) -> None:
        for done in answers:
            if done.job.kind != "measure":
                self.answers.append(done)
                continue
            own = self._buckets.get(done.job.bucket)
            if own is None:
                continue
            if done.failure in ("gone", "lost"):
                own.trouble = own.trouble or done.error
                continue
            self._after_measure(own, done)

    def _after_measure(self, own: _Bucket, done: GpuDone) -> None:
        ticket = done.job.ticket
        compiled = own.compiled.get(ticket, {})
        if done.reply is None:
            failure = "crash" if done.failure == "error" else done.failure
            reply: Message = {"status": failure, "error": done.error}
        else:
            reply = done.reply
            if reply["status"] == "ok":
                self._trial.tell(done.seconds)
        merged = {k: v for k, v in compiled.items() if k not in ("status", "error")} | reply
        code = own.codes.get(str(compiled.get("digest")))
        if code is not None:
            code.outcome = to_outcome(ticket, merged)
        self._answer(own, ticket, merged)
        if code is not None:
            self._follow(own, code)

    def _answer(self, own: _Bucket, ticket: int, reply: Message) -> None:
        own.outcomes.append(to_outcome(ticket, reply))

    # Time

    def tick(self, now_s: float) -> None:
        """End what takes too long."""
        for key, candidate in list(self._running.items()):
            own = self._buckets.get(candidate.bucket)
            limit_s = own.compile.limit_s if own is not None else 0.0
            if not candidate.killed and now_s >= candidate.since_s + limit_s:
                candidate.killed = True
                self._compilers.kill(*key)
        for gpu in self.gpus:
            self._hear(gpu.tick(now_s))
        self._account(now_s)

    @property
    def ends_s(self) -> float:
        """When `tick` will have something to end, if nothing happens until then."""
        ends = [gpu.ends_s for gpu in self.gpus]
        for candidate in self._running.values():
            own = self._buckets.get(candidate.bucket)
            if own is not None and not candidate.killed:
                ends.append(candidate.since_s + own.compile.limit_s)
        return min(ends, default=float("inf"))

    def _account(self, now_s: float) -> None:
        idle = [gpu for gpu in self.gpus if not gpu.busy]
        self.usage.see(
            now_s,
            # A server that binds its kernel is a compiler at work, too.
            compiling=min(self.slots, len(self._running) + self._compilers.opening),
            gpus_busy=len(self.gpus) - len(idle),
            waiting=any(gpu.pending("measure") for gpu in idle),
        )


def _code_of(reply: Message) -> Message:
    return {key: reply[key] for key in ("path", "function", "digest")}


def _killed(candidate: _Candidate, now_s: float) -> Message:
    seconds = now_s - candidate.since_s
    return {"status": "compile_timeout", "error": f"killed after {seconds:.1f} s"}
