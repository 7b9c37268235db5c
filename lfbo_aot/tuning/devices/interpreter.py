"""The interpreter as a device: each worker runs whole trials, one after another."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from lfbo_aot.errors import TuningError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.tuning.devices.device import Config
from lfbo_aot.tuning.devices.device import FinalReading
from lfbo_aot.tuning.devices.device import OneStation
from lfbo_aot.tuning.devices.device import Opened
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.device import final_readings
from lfbo_aot.tuning.devices.device import frozen_point
from lfbo_aot.tuning.devices.device import make_opened
from lfbo_aot.tuning.devices.device import to_outcome
from lfbo_aot.tuning.devices.device import with_default
from lfbo_aot.tuning.devices.pool import Done
from lfbo_aot.tuning.devices.pool import Job
from lfbo_aot.tuning.devices.pool import WorkerPool
from lfbo_aot.tuning.devices.workspace import Workspace
from lfbo_aot.tuning.workers.serve import kernel_reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Point
    from lfbo_aot.tuning.channel import Message
    from lfbo_aot.tuning.process import WorkerProcess

MODULE = "lfbo_aot.tuning.workers.interpreter"


class InterpreterDevice(OneStation):
    """Helion's generated code on the CPU: real code, real results, times that mean nothing."""

    id = INTERPRETER

    def __init__(self, workers: int | None = None, trial_s: float = 20.0) -> None:
        size = workers or max(1, min(4, (os.cpu_count() or 1) - 1))
        self._trial_s = trial_s
        self._workspace = Workspace()
        try:
            self._pool = WorkerPool(self._start, size, setup_s=180.0)
        except BaseException:
            self._workspace.close()
            raise

    def _start(self) -> WorkerProcess:
        # One thread each: a trial is a small, sequential program, and workers share the cores.
        return self._workspace.start(MODULE, TRITON_INTERPRET="1", OMP_NUM_THREADS="1")

    def open(self, spec: KernelSpec, shape: Mapping[str, Value]) -> Opened:
        request = {"op": "open", "kernel": kernel_reference(spec), "shape": dict(shape)}
        self._pool.prepare([request])
        reply = self._pool.setup_reply(timeout_s=200.0)
        return make_opened(reply, reply)

    def points(self, configs: Sequence[Config]) -> tuple[Point, ...]:
        if not configs:
            return ()
        request: Message = {"op": "points", "configs": [dict(c) for c in configs]}
        reply = last_answer(self._pool, Job(-1, request, self._trial_s), "the seeds")
        return tuple(map(frozen_point, reply["points"]))

    def free(self) -> int:
        return max(0, 2 * self._pool.size - self._pool.pending)

    def submit(self, ticket: int, point: Point, best_us: float | None) -> None:
        request: Message = {"op": "measure", "point": list(point), "best_us": best_us}
        self._pool.submit(Job(ticket, request, self._trial_s))

    def wait(self, timeout_s: float) -> list[Outcome]:
        return [self._outcome(done) for done in self._pool.poll(timeout_s)]

    def final(
        self, configs: Sequence[Config], rounds: int, seconds: float | None = None
    ) -> list[FinalReading]:
        request: Message = {
            "op": "final",
            "configs": list(configs),
            "rounds": rounds,
            "seconds": seconds,
        }
        job = Job(-1, request, 30.0 + self._trial_s * len(configs))
        return final_readings(configs, last_answer(self._pool, job, "the final measurement"))

    def final_at(
        self,
        spec: KernelSpec,
        shape: Mapping[str, Value],
        configs: Sequence[Config],
        rounds: int,
        seconds: float | None = None,
    ) -> tuple[Config, list[FinalReading]]:
        """The bucket that was open is so no more."""
        default = self.open(spec, shape).default
        return default, self.final(with_default(default, configs), rounds, seconds)

    def clock(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self._pool.close()
        self._workspace.close()

    def _outcome(self, done: Done) -> Outcome:
        reply = done.reply or {"status": done.failure, "error": done.error}
        return to_outcome(done.job.ticket, reply)


def last_answer(pool: WorkerPool, job: Job, what: str) -> Message:
    """The answer to a job that nothing else waits behind; TuningError where it has none."""
    pool.drop_waiting()
    pool.submit(job)
    while True:
        for done in pool.poll(1.0):
            if done.job is not job:
                continue  # a straggler of the search: its time is over
            if done.reply is None:
                msg = f"{what} failed: {done.failure}: {done.error}"
                raise TuningError(msg)
            return done.reply
