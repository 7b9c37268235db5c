"""A GPU as a device: compile workers feed one GPU worker; neither waits for the other's batch."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import time
from collections import deque
from typing import TYPE_CHECKING

from lfbo_aot.tuning.devices.device import Config
from lfbo_aot.tuning.devices.device import FinalReading
from lfbo_aot.tuning.devices.device import Opened
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.interpreter import final_readings
from lfbo_aot.tuning.devices.interpreter import last_answer
from lfbo_aot.tuning.devices.interpreter import opened
from lfbo_aot.tuning.devices.interpreter import outcome
from lfbo_aot.tuning.devices.pool import Done
from lfbo_aot.tuning.devices.pool import Job
from lfbo_aot.tuning.devices.pool import WorkerPool
from lfbo_aot.tuning.devices.workspace import Workspace
from lfbo_aot.tuning.journaling import config_key
from lfbo_aot.tuning.workers.serve import kernel_reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Point
    from lfbo_aot.tuning.channel import Message
    from lfbo_aot.tuning.process import WorkerProcess

_COMPILE = "lfbo_aot.tuning.workers.compile"
_GPU = "lfbo_aot.tuning.workers.gpu"
_CODEGEN_S = 30.0
_READY_FOR_GPU = 4  # binaries that wait for the GPU before less is proposed


class GpuDevice:
    """One CUDA or ROCm device of this machine.

    `compile_s` is how long a config may compile. On an H200's 16 cores nineteen of twenty compile
    within 2 s, and those that don't may take minutes.
    """

    def __init__(
        self,
        device_id: DeviceId,
        index: int = 0,
        *,
        workers: int | None = None,
        compile_s: float = 5.0,
        trial_s: float = 20.0,
        _modules: tuple[str, str] = (_COMPILE, _GPU),
    ) -> None:
        self.id = device_id
        self._name = f"cuda:{index}"
        self._compile_s = compile_s
        self._trial_s = trial_s
        size = workers or max(1, min(32, (os.cpu_count() or 2) - 1))
        self._modules = _modules
        self._codes: dict[str, Message] = {}
        self._compiled: dict[int, Message] = {}
        self._best: dict[int, float | None] = {}
        self._done: deque[Outcome] = deque()
        self._internal = itertools.count(-1, -1)
        with contextlib.ExitStack() as undo:
            self._workspace = Workspace()
            undo.callback(self._workspace.close)
            self._gpu = WorkerPool(self._start_gpu, 1, setup_s=300.0)
            undo.callback(self._gpu.close)
            self._compilers = WorkerPool(self._start_compiler, size, setup_s=300.0)
            undo.pop_all()

    def _start_gpu(self) -> WorkerProcess:
        return self._workspace.start(self._modules[1])

    def _start_compiler(self) -> WorkerProcess:
        # One thread each: the pool is what fills the cores.
        return self._workspace.start(
            self._modules[0], OMP_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1"
        )

    def open(self, spec: KernelSpec, shape: Mapping[str, Value], seeds: Sequence[Config]) -> Opened:
        kernel = kernel_reference(spec)
        self._codes.clear()
        self._compiled.clear()
        self._best.clear()
        self._done.clear()
        self._gpu.prepare(
            [
                {"op": "identify", "device": self._name},
                {"op": "open", "kernel": kernel, "shape": dict(shape), "device": self._name},
            ]
        )
        bench = self._gpu.setup_reply(timeout_s=320.0)
        self._compilers.prepare(
            [
                {
                    "op": "open",
                    "kernel": kernel,
                    "arguments": bench["arguments"],
                    "seeds": list(seeds),
                }
            ]
        )
        return opened(self._compilers.setup_reply(timeout_s=320.0), bench)

    def free(self) -> int:
        waiting = max(0, self._gpu.pending - _READY_FOR_GPU)
        return max(0, self._compilers.size + 2 - self._compilers.pending - waiting)

    def submit(self, ticket: int, point: Point, best_us: float | None) -> None:
        self._best[ticket] = best_us
        self._compile(ticket, {"point": list(point)})

    def _compile(self, ticket: int, what: Message) -> None:
        request = {"op": "compile", "deadline_s": self._compile_s, **what}
        # The worker keeps the deadline itself; this one is for code generation that hangs.
        self._compilers.submit(Job(ticket, request, self._compile_s + _CODEGEN_S))

    def wait(self, timeout_s: float) -> list[Outcome]:
        if not self._done:
            self._turn(timeout_s)
        found = list(self._done)
        self._done.clear()
        return found

    def _turn(self, timeout_s: float) -> None:
        """Let both pools move on, waiting for whichever has news first."""
        with selectors.DefaultSelector() as selector:
            for worker in [*self._gpu.busy_workers(), *self._compilers.busy_workers()]:
                selector.register(worker.channel.fileno(), selectors.EVENT_READ)
            if selector.get_map():
                selector.select(min(timeout_s, 0.5))
        for done in self._compilers.poll(0.0):
            self._after_compile(done)
        for done in self._gpu.poll(0.0):
            self._after_measure(done)

    def _after_compile(self, done: Done) -> None:
        ticket = done.job.ticket
        reply = done.reply or {"status": _compile_failure(done.failure), "error": done.error}
        if reply["status"] != "ok":
            self._done.append(outcome(ticket, reply))
            return
        code = {key: reply[key] for key in ("path", "function", "digest")}
        self._compiled[ticket] = reply
        self._codes[config_key(reply["config"])] = code
        if ticket < 0:
            self._done.append(outcome(ticket, reply))
            return
        request: Message = {"op": "measure", "code": code, "best_us": self._best.pop(ticket, None)}
        self._gpu.submit(Job(ticket, request, self._trial_s))

    def _after_measure(self, done: Done) -> None:
        ticket = done.job.ticket
        compiled = self._compiled.pop(ticket, {})
        reply = done.reply or {"status": done.failure, "error": done.error}
        merged = {k: v for k, v in compiled.items() if k not in ("status", "error")} | reply
        self._done.append(outcome(ticket, merged))

    def final(self, configs: Sequence[Config], rounds: int) -> list[FinalReading]:
        self._gpu.drop_waiting()
        self._compilers.drop_waiting()
        lost = self._recompile(configs)
        runnable = [c for c in configs if config_key(c) in self._codes]
        if not runnable:
            return lost
        codes = [self._codes[config_key(c)] for c in runnable]
        request: Message = {"op": "final", "codes": codes, "rounds": rounds}
        job = Job(next(self._internal), request, 60.0 + self._trial_s * len(codes))
        return [*final_readings(runnable, last_answer(self._gpu, job)), *lost]

    def _recompile(self, configs: Sequence[Config]) -> list[FinalReading]:
        """Compile what an earlier process found, so that this one can measure it."""
        waiting: dict[int, Config] = {}
        lost: list[FinalReading] = []
        for config in configs:
            if config_key(config) not in self._codes:
                ticket = next(self._internal)
                waiting[ticket] = config
                self._compile(ticket, {"config": config})
        ends = time.monotonic() + 120.0
        while waiting and time.monotonic() < ends:
            self._turn(0.5)
            for found in self._done:
                if found.ticket not in waiting:
                    continue
                config = waiting.pop(found.ticket)
                if found.status != "ok":
                    lost.append(FinalReading(config, (), {}, f"{found.status}: {found.error}"))
            self._done.clear()
        lost += [FinalReading(c, (), {}, "not compiled in time") for c in waiting.values()]
        return lost

    def clock(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self._compilers.close()
        self._gpu.close()
        self._workspace.close()


def _compile_failure(failure: str) -> str:
    return "compile_timeout" if failure == "timeout" else failure
