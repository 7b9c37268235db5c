"""The GPUs of a machine and the processes around them, moved on by a thread of their own.

Whoever searches waits for outcomes or thinks; meanwhile a binary that is ready goes to its GPU, and
the next candidate to a compiler. The thread reads what workers say and tells the pipeline, which
decides; every other thread asks the pipeline under the same lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import threading
import time
from concurrent.futures import Future
from concurrent.futures import InvalidStateError
from concurrent.futures import TimeoutError as NotYetError
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.adapters.standin import described
from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.devices.compile_servers import CompileServers
from lfbo_aot.tuning.devices.gpu_queue import GpuDone
from lfbo_aot.tuning.devices.gpu_queue import GpuJob
from lfbo_aot.tuning.devices.gpu_queue import GpuQueue
from lfbo_aot.tuning.devices.pipeline import Pipeline
from lfbo_aot.tuning.devices.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.tuning.channel import Message
    from lfbo_aot.tuning.process import WorkerProcess

_COMPILE = "lfbo_aot.tuning.workers.compile"
_GPU = "lfbo_aot.tuning.workers.gpu"
_PATIENCE_S = 320.0

logger = logging.getLogger(__name__)


class _Gpu:
    """One GPU: its worker, and what it has to do."""

    def __init__(self, machine: Machine, index: int) -> None:
        self._machine = machine
        self.turn = threading.Lock()
        """Held by the bucket that is searched on it."""
        self.name = f"cuda:{index}"
        self.worker = machine.start_gpu_worker()
        self.spare: WorkerProcess | None = None
        """Has imported what it needs, and takes over where the worker is lost."""
        self.queue = GpuQueue(
            self._send,
            self._restart,
            {
                "op": "identify",
                "device": self.name,
                "index": index,
                "preload": list(machine.preload),
            },
        )
        self.queue.begin(time.monotonic())

    def _send(self, message: Message) -> None:
        self.worker.send(message)

    def _restart(self) -> None:
        self.worker.kill()
        self.worker = self.spare or self._machine.start_gpu_worker()
        self.spare = None

    def keep_spare(self) -> None:
        """Have a spare once trials are made: before, its imports would delay the first one."""
        if self.spare is None and self.queue.measured and not self.queue.lost:
            self.spare = self._machine.start_gpu_worker(spare=True)

    def kill(self) -> None:
        self.worker.kill()
        if self.spare is not None:
            self.spare.kill()


class Machine:
    """GPUs of one kind, and compilers for all of them.

    `compile_s` and `trial_s`: the most that a candidate may compile, and take on the GPU; shorter
    limits are learnt. Everything is started at once, and ready when it is needed. `properties` are
    a CUDA device's, as the driver tells them: then the compile worker needs no answer of the GPU's. Workers
    import the modules of `preload` as soon as they can.
    """

    def __init__(
        self,
        indices: Sequence[int] = (0,),
        *,
        workers: int | None = None,
        compile_s: float = 5.0,
        trial_s: float = 20.0,
        properties: Mapping[str, Any] | None = None,
        preload: Sequence[str] = (),
        _modules: tuple[str, str] = (_COMPILE, _GPU),
    ) -> None:
        self._modules = _modules
        self.preload = preload
        self.lock = threading.Condition(threading.RLock())
        self._closing = False
        self._broken: BaseException | None = None
        self.inert: dict[str, list[list[object]]] = {}
        """What was last found of a kernel's tunables; see `lfbo_aot.adapters.inert`."""
        self._futures: dict[tuple[int, int], Future[Message]] = {}
        self._tickets = 0
        with contextlib.ExitStack() as undo:
            self._wake_read, self._wake_write = os.pipe()
            undo.callback(os.close, self._wake_read)
            undo.callback(os.close, self._wake_write)
            os.set_blocking(self._wake_write, False)
            self._workspace = Workspace()
            undo.callback(self._workspace.close)
            self.servers = CompileServers(
                self._start_compiler,
                self._workspace.folder / "claims",
                preload=preload,
                compiled=lambda bucket, reply: self.pipeline.compiled(bucket, reply, self.clock()),
                lost=lambda bucket, error: self.pipeline.server_lost(bucket, error, self.clock()),
                back=lambda bucket: self.pipeline.server_back(bucket, self.clock()),
                gone=lambda bucket, error: self.pipeline.server_gone(bucket, error, self.clock()),
            )
            undo.callback(self.servers.kill_all)
            if properties is not None:
                self.servers.describe(described(properties, indices[0]))
            self.gpus: list[_Gpu] = []
            for index in indices:
                self.gpus.append(_Gpu(self, index))
                undo.callback(self.gpus[-1].kill)
            self.pipeline = Pipeline(
                self.servers,
                [gpu.queue for gpu in self.gpus],
                slots=workers or max(1, min(64, (os.cpu_count() or 2) - 1)),
                compile_s=compile_s,
                trial_s=trial_s,
            )
            self._thread = threading.Thread(target=self._pump, name="lfbo-aot-pump", daemon=True)
            self._thread.start()
            undo.pop_all()

    def start_gpu_worker(self, *, spare: bool = False) -> WorkerProcess:
        return self._workspace.start(self._modules[1], LFBO_AOT_SPARE="1" if spare else "")

    def _start_compiler(self) -> WorkerProcess:
        # One thread each: many children are what fills the cores.
        return self._workspace.start(
            self._modules[0], OMP_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1"
        )

    @staticmethod
    def clock() -> float:
        return time.monotonic()

    # For other threads

    def wake(self) -> None:
        """Let the thread look at what has changed."""
        with contextlib.suppress(OSError):  # full: it will look in any case
            os.write(self._wake_write, b"x")

    def check(self) -> None:
        """Raise what has gone wrong with the machine as a whole, or that it was closed."""
        if self._closing:
            msg = "the device was closed"
            raise TuningError(msg)
        if self._broken is not None:
            msg = f"the tuner's own thread failed: {self._broken!r}"
            raise TuningError(msg) from self._broken

    def ask_gpu(self, kind: str, bucket: int, request: Message, limit_s: float) -> Future[Message]:
        """The GPU worker's answer to a request that is no trial."""
        with self.lock:
            self.check()
            self._tickets += 1
            answer: Future[Message] = Future()
            self._futures[bucket, self._tickets] = answer
            job = GpuJob(kind, bucket, self._tickets, request, limit_s)
            self.pipeline.ask_gpu(job, self.clock())
            self._settle()
        self.wake()
        return answer

    def result(self, answer: Future[Message], what: str, timeout_s: float = _PATIENCE_S) -> Message:
        """Wait for an answer; TuningError where it fails or none comes."""
        ends = self.clock() + timeout_s
        while True:
            with contextlib.suppress(NotYetError):
                return answer.result(timeout=0.5)
            self.check()
            if self.clock() > ends:
                msg = f"{what}: no answer within {timeout_s:.0f} s"
                raise TuningError(msg)

    # The thread

    def _pump(self) -> None:
        try:
            while not self._closing:
                self._turn()
        except BaseException as error:
            logger.debug("the pump failed", exc_info=True)
            with self.lock:
                self._broken = error
                self.lock.notify_all()

    def _turn(self) -> None:
        with self.lock:
            watched = [self._wake_read, *self.servers.filenos()]
            # A lost one's end could be read for ever.
            watched += [gpu.worker.channel.fileno() for gpu in self.gpus if not gpu.queue.lost]
            ends_s = self.pipeline.ends_s
        with selectors.DefaultSelector() as selector:
            for fd in watched:
                if fd >= 0:  # one that was closed meanwhile
                    with contextlib.suppress(OSError, ValueError):
                        selector.register(fd, selectors.EVENT_READ)
            left_s = max(0.0, min(0.5, ends_s - self.clock()))
            ready = {key.fd for key, _ in selector.select(left_s)}
        with self.lock:
            if self._closing:
                return
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            self.servers.read(ready)
            for index, gpu in enumerate(self.gpus):
                channel = gpu.worker.channel
                if channel.fileno() in ready and channel.readable():
                    self._read_gpu(index, gpu)
            self.pipeline.tick(self.clock())
            self._settle()
            self.lock.notify_all()

    def _read_gpu(self, index: int, gpu: _Gpu) -> None:
        worker = gpu.worker
        while worker is gpu.worker and not gpu.queue.lost:
            reply = worker.receive()
            if reply is None:
                self.pipeline.gpu_died(index, worker.obituary(), self.clock())
                return
            self.pipeline.gpu_answered(index, reply, self.clock())
            if gpu.queue.identity is not None:
                self.servers.describe(gpu.queue.identity["description"])
            gpu.keep_spare()
            if not worker.channel.buffered:
                return

    def _settle(self) -> None:
        """Give the answers that came to those who wait for them."""
        while self.pipeline.answers:
            done = self.pipeline.answers.popleft()
            answer = self._futures.pop((done.job.bucket, done.job.ticket), None)
            if answer is None:
                continue
            with contextlib.suppress(InvalidStateError):
                if done.reply is not None:
                    answer.set_result(done.reply)
                else:
                    answer.set_exception(_error(done))

    def close(self) -> None:
        """End every process that was started."""
        with self.lock:
            if self._closing:
                return
            self._closing = True
            self.lock.notify_all()
        self.wake()
        self._thread.join()
        self.servers.kill_all()
        for gpu in self.gpus:
            gpu.kill()
        self._workspace.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _error(done: GpuDone) -> TuningError:
    if done.failure == "lost":
        return DeviceLostError(done.error)
    words = done.error if done.failure == "error" else f"{done.failure}: {done.error}"
    return TuningError(words)
