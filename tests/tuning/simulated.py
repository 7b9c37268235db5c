"""Compilers and GPUs that take the time they are told to, on a clock that moves from event to event."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from dataclasses import field

from lfbo_aot.tuning.devices.gpu_queue import GpuJob
from lfbo_aot.tuning.devices.gpu_queue import GpuQueue
from lfbo_aot.tuning.devices.pipeline import Pipeline

START_S = 1.0  # of a GPU worker
OPEN_S = 0.5
FINAL_S = 2.0
REOPEN_S = 4.0  # of a compile server that was lost


@dataclass(frozen=True)
class Candidate:
    """What becomes of it, and after how long."""

    code: str
    codegen_s: float = 0.1
    compile_s: float = 1.0
    measure_s: float = 0.1
    compiles: str = "ok"
    measures: str = "ok"
    """Or `dies`, `hangs`, a failure."""
    latency_us: float = 10.0
    deaf: bool = False
    """Whether it finishes although a kill was sent for it."""


class Compilers:
    """The servers of all buckets: each knows which code was claimed since it was started."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.claims = {}
        self.tasks = {}
        self.started = []
        """(time, bucket, ticket)"""
        self.kills = []
        self.compiled = []
        """(time, code)"""

    def start(self, bucket, request):
        key = bucket, request["ticket"]
        assert key not in self.tasks
        self.started.append((self.simulation.now, *key))
        candidate = request.get("point") or request["config"]
        then = lambda: self._generated(key, candidate)
        self.tasks[key] = candidate, self.simulation.after(candidate.codegen_s, then)

    def _generated(self, key, candidate):
        claims = self.claims.setdefault(key[0], set())
        if candidate.compiles == "invalid":  # it has no code
            self._reply(key, candidate, "invalid")
            return
        if candidate.code in claims:
            self._reply(key, candidate, "same_code")
            return
        claims.add(candidate.code)
        then = lambda: self._reply(key, candidate, candidate.compiles)
        self.tasks[key] = candidate, self.simulation.after(candidate.compile_s, then)

    def _reply(self, key, candidate, status):
        del self.tasks[key]
        bucket, ticket = key
        reply = {"ticket": ticket, "status": status, "config": {"ticket": ticket}}
        if status != "invalid":
            reply |= {"digest": candidate.code, "path": "/p", "function": "f", "codegen_s": 0.1}
            self.simulation.codes[candidate.code] = candidate
        if status == "ok":
            self.compiled.append((self.simulation.now, candidate.code))
        self.simulation.pipeline.compiled(bucket, reply, self.simulation.now)

    opening = 0

    def kill(self, bucket, ticket):
        self.kills.append((self.simulation.now, bucket, ticket))
        candidate, event = self.tasks.get((bucket, ticket), (None, None))
        if candidate is None or candidate.deaf:
            return
        event.cancel()
        then = lambda: self._reply((bucket, ticket), candidate, "compile_timeout")
        self.tasks[bucket, ticket] = candidate, self.simulation.after(0.01, then)

    def lose(self, bucket, *, for_good=False):
        """The bucket's server is ended from outside."""
        for key in [key for key in self.tasks if key[0] == bucket]:
            self.tasks.pop(key)[1].cancel()
        self.claims.pop(bucket, None)
        pipeline, simulation = self.simulation.pipeline, self.simulation
        if for_good:
            pipeline.server_gone(bucket, "lost each time", simulation.now)
            return
        pipeline.server_lost(bucket, "ended from outside", simulation.now)
        simulation.after(REOPEN_S, lambda: pipeline.server_back(bucket, simulation.now))


class Gpu:
    """A worker that answers in order, and the next one where it was restarted."""

    def __init__(self, simulation, index):
        self.simulation = simulation
        self.index = index
        self.queue = GpuQueue(self.send, self.restart, {"op": "identify"})
        self.requests = []
        self.opened = set()
        self.event = None
        self.starts = 1
        self.breaks = False
        """Whether no worker gets up from now on."""
        self.refuses = set()
        """Buckets that can't be opened (again)."""
        self.measured = []
        """(start, bucket, code)"""

    def send(self, message):
        self.requests.append(message)
        if self.event is None:
            self._next()

    def restart(self):
        if self.event is not None:
            self.event.cancel()
        self.event, self.requests, self.opened = None, [], set()
        self.starts += 1

    def _next(self):
        if not self.requests:
            return
        message = self.requests.pop(0)
        reply, seconds = self._carry_out(message)
        then = self._dies if reply is None else lambda: self._answer(reply)
        self.event = self.simulation.after(seconds, then)

    def _carry_out(self, message):
        bucket = message.get("bucket")
        if message["op"] == "identify":
            return (None if self.breaks else {"reply": {"description": {}}}), START_S
        if message["op"] == "open":
            if bucket in self.refuses:
                return {"error": "out of memory"}, OPEN_S
            self.opened.add(bucket)
            return {"reply": {}}, OPEN_S
        if message["op"] == "close":
            self.opened.discard(bucket)
            return {"reply": {}}, 0.0
        if bucket not in self.opened:
            return {"error": f"the bucket {bucket} is not open"}, 0.0
        if message["op"] == "final":
            return {"reply": {"samples": []}}, FINAL_S
        candidate = self.simulation.codes[message["code"]["digest"]]
        self.measured.append((self.simulation.now, bucket, candidate.code))
        if candidate.measures == "dies":
            return None, candidate.measure_s
        if candidate.measures == "hangs":
            return {}, math.inf
        found = {"status": candidate.measures, "latency_us": candidate.latency_us}
        return {"reply": found}, candidate.measure_s

    def _answer(self, reply):
        self.event = None
        if self.requests:
            self._next()
        self.simulation.pipeline.gpu_answered(self.index, reply, self.simulation.now)

    def _dies(self):
        self.event = None
        self.simulation.pipeline.gpu_died(self.index, "exit 1", self.simulation.now)


@dataclass
class Event:
    then: object

    def cancel(self):
        self.then = None


@dataclass
class Search:
    """A bucket's search: gives its candidates as there is room for them."""

    bucket: int
    candidates: list
    opened: bool = False
    given: int = 0
    outcomes: dict = field(default_factory=dict)
    """(time, outcome) by ticket."""

    def status(self, ticket):
        return self.outcomes[ticket][1].status


class Simulation:
    """GPUs, compilers and searches around a pipeline."""

    def __init__(self, *, gpus=1, slots=4, **limits):
        self.now = 0.0
        self.codes = {}
        self.searches = []
        self.answers = []
        """(time, what became of a GPU's job that is no trial)"""
        self._events = []
        self._count = itertools.count()
        self.compilers = Compilers(self)
        self.gpus = [Gpu(self, index) for index in range(gpus)]
        queues = [gpu.queue for gpu in self.gpus]
        self.pipeline = Pipeline(self.compilers, queues, slots=slots, **limits)
        for queue in queues:
            queue.begin(self.now)

    def after(self, seconds, then):
        event = Event(then)
        if seconds < math.inf:
            heapq.heappush(self._events, (self.now + seconds, next(self._count), event))
        return event

    def open(self, candidates, *, gpu=0, kernel="pkg.norm"):
        bucket = self.pipeline.open(gpu, kernel)
        self.searches.append(Search(bucket, list(candidates)))
        self.ask("open", bucket)
        return self.searches[-1]

    def ask(self, kind, bucket, limit_s=300.0):
        job = GpuJob(kind, bucket, 0, {"op": kind, "bucket": bucket}, limit_s)
        self.pipeline.ask_gpu(job, self.now)

    def close(self, search):
        self.searches.remove(search)
        self.ask("close", search.bucket)
        self.pipeline.close(search.bucket, self.now)

    def run(self, until=math.inf):
        """Go on until nothing happens any more, or to a time."""
        while True:
            self._search()
            while self._events and self._events[0][2].then is None:
                heapq.heappop(self._events)
            event_s = self._events[0][0] if self._events else math.inf
            at = min(event_s, self.pipeline.ends_s)
            if at > until or at == math.inf:
                self.now = max(self.now, until) if until < math.inf else self.now
                return self
            assert at >= self.now
            self.now = at
            if event_s <= self.pipeline.ends_s:
                heapq.heappop(self._events)[2].then()
            else:
                self.pipeline.tick(self.now)

    def _search(self):
        while self.pipeline.answers:
            done = self.pipeline.answers.popleft()
            self.answers.append((self.now, done))
            for search in self.searches:
                if done.job.kind == "open" and done.job.bucket == search.bucket:
                    search.opened = done.reply is not None
        for search in self.searches:
            for outcome in self.pipeline.take(search.bucket):
                assert outcome.ticket not in search.outcomes
                search.outcomes[outcome.ticket] = self.now, outcome
            while search.opened and search.given < len(search.candidates):
                if self.pipeline.trouble(search.bucket) or not self.pipeline.free(search.bucket):
                    break
                what = {"point": search.candidates[search.given]}
                self.pipeline.submit(search.bucket, search.given, what, None, self.now)
                search.given += 1

    @property
    def left(self):
        """What the pipeline still holds of any bucket that isn't closed, or is."""
        waiting = [job.kind for gpu in self.gpus for job in [*gpu.queue.waiting, *gpu.queue.flight]]
        return [*self.pipeline._running, *self.pipeline._waiting, *waiting]
