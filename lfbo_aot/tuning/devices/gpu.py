"""A machine's GPUs of one kind as a device: stations at which buckets are tuned."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.devices.device import Config
from lfbo_aot.tuning.devices.device import FinalReading
from lfbo_aot.tuning.devices.device import Opened
from lfbo_aot.tuning.devices.device import Outcome
from lfbo_aot.tuning.devices.device import final_readings
from lfbo_aot.tuning.devices.device import frozen_point
from lfbo_aot.tuning.devices.device import make_opened
from lfbo_aot.tuning.devices.device import with_default
from lfbo_aot.tuning.devices.machine import Machine
from lfbo_aot.tuning.journaling import config_key
from lfbo_aot.tuning.workers.serve import kernel_reference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Point
    from lfbo_aot.tuning.channel import Message

_OPEN_S = 300.0
_MEMORY_ATTEMPTS = 4  # at opening a bucket beside another one
_COMPILE_FINALISTS_S = 120.0


class GpuDevice:
    """All GPUs of one kind of this machine, or those of them that are named by `indices`.

    Each has two stations: while one bucket is searched, the next is opened and the one before is
    measured for the last time.
    """

    def __init__(
        self,
        device_id: DeviceId,
        indices: Sequence[int] = (0,),
        *,
        workers: int | None = None,
        compile_s: float = 5.0,
        trial_s: float = 20.0,
        properties: Mapping[str, Any] | None = None,
        preload: Sequence[str] = (),
        machine: Machine | None = None,
    ) -> None:
        self.id = device_id
        self._machine = machine or Machine(
            indices,
            workers=workers,
            compile_s=compile_s,
            trial_s=trial_s,
            properties=properties,
            preload=preload,
        )
        gpus = range(len(self._machine.gpus))
        alone = [_Alone() for _ in gpus]
        self._stations = tuple(
            Station(device_id, self._machine, gpu, alone[gpu]) for _ in range(2) for gpu in gpus
        )

    @property
    def stations(self) -> tuple[Station, ...]:
        return self._stations

    def clock(self) -> float:
        return self._machine.clock()

    @property
    def usage(self) -> dict[str, float]:
        """How busy compilers and GPUs were since the first binary; see `Usage`."""
        with self._machine.lock:
            self._machine.pipeline.tick(self._machine.clock())
            found = self._machine.pipeline.usage.to_json()
        return found | {"compilers": self._machine.pipeline.slots, "gpus": len(self._machine.gpus)}

    def close(self) -> None:
        self._machine.close()


class _Alone:
    """How many buckets hold memory on a GPU, to wait until none does."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0

    def opened(self, by: int) -> None:
        with self._changed:
            self._open += by
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, timeout_s)


class Station:
    """A place on a GPU where one bucket at a time is tuned."""

    def __init__(self, device_id: DeviceId, machine: Machine, gpu: int, alone: _Alone) -> None:
        self.id = device_id
        self._machine = machine
        self._gpu = gpu
        self._alone = alone
        self._bucket: int | None = None
        self._codes: dict[str, Message] = {}
        self._internal = -1

    def clock(self) -> float:
        return self._machine.clock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """While inside, this is the bucket that is searched on the GPU."""
        with self._machine.gpus[self._gpu].turn:
            yield

    # Opening

    def open(self, spec: KernelSpec, shape: Mapping[str, Value]) -> Opened:
        self.leave()
        for left in reversed(range(_MEMORY_ATTEMPTS)):
            try:
                self._bucket, opened = self._open(spec, shape)
                break
            except TuningError as error:
                if "out of memory" not in str(error).lower() or not left:
                    raise
            # Another station's bucket still holds its arguments, or has come first again.
            self._alone.wait(_OPEN_S)
        return opened

    def _open(self, spec: KernelSpec, shape: Mapping[str, Value]) -> tuple[int, Opened]:
        kernel = kernel_reference(spec)
        machine = self._machine
        with machine.lock:
            bucket = machine.pipeline.open(self._gpu, spec.kernel_id)
        request = {
            "op": "open",
            "bucket": bucket,
            "kernel": kernel,
            "shape": dict(shape),
            "device": machine.gpus[self._gpu].name,
        }
        self._alone.opened(1)
        try:
            answer = machine.ask_gpu("open", bucket, request, _OPEN_S)
            bench = machine.result(answer, "the GPU worker")
            with machine.lock:
                wanted = {"kernel": kernel, "arguments": bench["arguments"]}
                wanted["processes"] = machine.pipeline.slots
                wanted["inert"] = machine.inert.get(spec.kernel_id, [])
                opening = machine.servers.open(bucket, wanted)
            machine.wake()
            space = machine.result(opening, "the compile worker")
            machine.inert[spec.kernel_id] = space["space"].get("inert", [])
        except BaseException:
            self._close(bucket)
            raise
        return bucket, make_opened(space, bench)

    def _close(self, bucket: int) -> None:
        machine = self._machine
        with machine.lock:
            machine.servers.close(bucket)
            with contextlib.suppress(TuningError):
                machine.ask_gpu("close", bucket, {"op": "close", "bucket": bucket}, _OPEN_S)
            machine.pipeline.close(bucket, machine.clock())
        machine.wake()
        self._alone.opened(-1)

    def leave(self) -> None:
        """Give back what the open bucket holds."""
        bucket, self._bucket = self._bucket, None
        self._codes.clear()
        if bucket is not None:
            self._close(bucket)

    def points(self, configs: Sequence[Config]) -> tuple[Point, ...]:
        """The points of those configs that fit the open bucket's space."""
        if not configs:
            return ()
        machine = self._machine
        with machine.lock:
            asked = machine.servers.points(self._open_bucket, [dict(c) for c in configs])
        found = machine.result(asked, "the compile server")
        return tuple(map(frozen_point, found["points"]))

    @property
    def _open_bucket(self) -> int:
        if self._bucket is None:
            msg = "no bucket is open"
            raise TuningError(msg)
        return self._bucket

    # Trials

    def free(self) -> int:
        with self._machine.lock:
            return self._machine.pipeline.free(self._open_bucket)

    def submit(self, ticket: int, point: Point, best_us: float | None) -> None:
        machine = self._machine
        with machine.lock:
            what: Message = {"point": list(point)}
            machine.pipeline.submit(self._open_bucket, ticket, what, best_us, machine.clock())
        machine.wake()

    def _check(self, bucket: int) -> None:
        """Raise why nothing can be carried out any more: DeviceLostError if not of this bucket alone."""
        machine = self._machine
        machine.check()
        if trouble := machine.pipeline.trouble(bucket):
            lost = machine.gpus[self._gpu].queue.lost or machine.servers.lost
            raise DeviceLostError(trouble) if lost else TuningError(trouble)

    def wait(self, timeout_s: float) -> list[Outcome]:
        machine, bucket = self._machine, self._open_bucket
        ends = machine.clock() + timeout_s
        with machine.lock:
            while True:
                self._check(bucket)
                found = machine.pipeline.take(bucket)
                left = ends - machine.clock()
                if found or left <= 0:
                    break
                machine.lock.wait(left)
            for outcome in found:
                code = machine.pipeline.code(bucket, outcome.ticket)
                if code is not None and outcome.config is not None and outcome.status == "ok":
                    self._codes[config_key(outcome.config)] = code
        return [outcome for outcome in found if outcome.ticket >= 0]

    # The end

    def final(
        self, configs: Sequence[Config], rounds: int, seconds: float | None = None
    ) -> list[FinalReading]:
        machine, bucket = self._machine, self._open_bucket
        with machine.lock:
            machine.pipeline.abandon(bucket)
            machine.pipeline.take(bucket)
        lost = self._recompile(bucket, configs)
        runnable = [c for c in configs if config_key(c) in self._codes]
        return (self._race(bucket, runnable, rounds, seconds) if runnable else []) + lost

    def final_at(
        self,
        spec: KernelSpec,
        shape: Mapping[str, Value],
        configs: Sequence[Config],
        rounds: int,
        seconds: float | None = None,
    ) -> tuple[Config, list[FinalReading]]:
        """Measure configs, and the default config there, at another shape than the open one's."""
        bucket, opened = self._open(spec, shape)
        main, codes = self._bucket, self._codes
        self._bucket, self._codes = bucket, {}
        try:
            readings = self.final(with_default(opened.default, configs), rounds, seconds)
        finally:
            self._bucket, self._codes = main, codes
            self._close(bucket)
        return opened.default, readings

    def _race(
        self, bucket: int, configs: Sequence[Config], rounds: int, seconds: float | None
    ) -> list[FinalReading]:
        """Measure configs whose code is there."""
        request: Message = {
            "op": "final",
            "bucket": bucket,
            "codes": [self._codes[config_key(c)] for c in configs],
            "rounds": rounds,
            "seconds": seconds,
        }
        limit_s = 60.0 + 20.0 * len(configs)
        answer = self._machine.ask_gpu("final", bucket, request, limit_s)
        try:
            reply = self._machine.result(answer, "the final measurement", 2 * limit_s + _OPEN_S)
        except DeviceLostError:
            raise
        except TuningError as error:
            msg = f"the final measurement failed: {error}"
            raise TuningError(msg) from error
        return final_readings(configs, reply)

    def _recompile(self, bucket: int, configs: Sequence[Config]) -> list[FinalReading]:
        """Compile what an earlier process found, or what was found at another shape."""
        machine = self._machine
        waiting: dict[int, Config] = {}
        for config in configs:
            if config_key(config) in self._codes:
                continue
            self._internal -= 1
            waiting[self._internal] = config
            with machine.lock:
                what: Message = {"config": dict(config)}
                machine.pipeline.submit(bucket, self._internal, what, None, machine.clock())
        machine.wake()
        lost: list[FinalReading] = []
        ends = machine.clock() + _COMPILE_FINALISTS_S
        with machine.lock:
            while waiting and machine.clock() < ends:
                self._check(bucket)
                for found in machine.pipeline.take(bucket):
                    config = waiting.pop(found.ticket, {})
                    code = machine.pipeline.code(bucket, found.ticket)
                    if found.status == "ok" and code is not None and config:
                        self._codes[config_key(config)] = code
                    elif config:
                        error = f"{found.status}: {found.error}"
                        lost.append(FinalReading(config, (), {}, error))
                if waiting:
                    machine.lock.wait(0.5)
        lost += [FinalReading(c, (), {}, "not compiled in time") for c in waiting.values()]
        return lost
