"""The GPU worker: loads binaries, checks results, times them. One process for one GPU."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any
from typing import ClassVar

from lfbo_aot.adapters import helion as seam
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.arguments import describe_arguments
from lfbo_aot.tuning.bench import Bench
from lfbo_aot.tuning.bench import Entrant
from lfbo_aot.tuning.bench import race
from lfbo_aot.tuning.check import difference
from lfbo_aot.tuning.drift import Drift
from lfbo_aot.tuning.fidelity import Fidelity
from lfbo_aot.tuning.fidelity import median
from lfbo_aot.tuning.fidelity import read
from lfbo_aot.tuning.workers.serve import first_line
from lfbo_aot.tuning.workers.serve import import_kernel
from lfbo_aot.tuning.workers.serve import preload
from lfbo_aot.tuning.workers.serve import serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence

    from lfbo_aot.tuning.channel import Message

_ATTEMPTS = 3
_ANCHOR_LAUNCHES = 24
_LOOK_S = 2.0  # between two looks at the drift
_LOOK_SHARE = 20.0  # and at least so many times what one takes
_LONG = 5.0  # calls this many times longer than their queueing don't wait for the host


logger = logging.getLogger(__name__)


class EventClock:
    """Device time between two events around a call, with a cold L2.

    Writing a buffer several times the L2's size before each call evicts what the call reads. The
    device is kept busy until the host has queued every launch: otherwise it would wait for the
    host inside an interval, and a machine whose cores compile would measure its own load.
    """

    policy: ClassVar[dict[str, str]] = {"l2": "cold", "clock": "events", "inputs": "declared"}

    def __init__(self, device: str) -> None:
        import torch

        properties = torch.cuda.get_device_properties(device)
        size = max(4 * properties.L2_cache_size, 256 << 20)
        self._torch = torch
        self._evict = torch.empty(size, dtype=torch.int8, device=device)
        self._host_us = 100.0
        self._cycles_per_us = self._calibrate()

    def time_us(self, call: Callable[[], Any], launches: int) -> list[float]:
        # Each launch alone: launches one behind the other read by up to a sixth longer, and differ
        # from reading to reading by several times as much (docs/measuring.md).
        return [self._time_one(call) for _ in range(launches)]

    def _time_one(self, call: Callable[[], Any]) -> float:
        for _ in range(_ATTEMPTS):
            sample_us, ahead = self._attempt(call)
            if ahead or sample_us > _LONG * self._host_us:
                break
        return sample_us

    def settle(self) -> None:
        self._torch.cuda.synchronize()

    def evict(self) -> None:
        """Queue a write of more than the L2 holds."""
        self._evict.zero_()

    def _attempt(self, call: Callable[[], Any]) -> tuple[float, bool]:
        """The duration, and whether all was queued before the device began."""
        torch = self._torch
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        self._busy(self._cycles_per_us * 1.5 * self._host_us)
        began = time.perf_counter()
        self.evict()
        start.record()
        call()
        end.record()
        queued_us = 1e6 * (time.perf_counter() - began)
        ahead = not start.query()
        self._host_us = min(max(queued_us, 0.5 * self._host_us, 20.0), 5000.0)
        torch.cuda.synchronize()
        return 1000.0 * start.elapsed_time(end), ahead

    def _busy(self, cycles: float) -> None:
        # There is no public way to keep a device busy.
        self._torch.cuda._sleep(int(cycles))  # type: ignore[no-untyped-call]  # noqa: SLF001

    def _calibrate(self) -> float:
        torch = self._torch
        cycles = 10_000_000
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        for _ in range(2):  # the first one wakes the clocks
            start.record()
            self._busy(cycles)
            end.record()
            torch.cuda.synchronize()
        return float(cycles / (1000.0 * start.elapsed_time(end)))


@dataclass(slots=True)
class _Bucket:
    """One open bucket: its call, and the config that tells whether all is still as it was."""

    bench: Bench
    anchor: Callable[..., Any] | None = None
    """The first candidate whose result was right."""
    drift: Drift = field(default_factory=Drift)
    next_look: float = 0.0
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)


class GpuWorker:
    """Holds the open buckets: their arguments and references, on the device."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._device_clock: EventClock | None = None
        self.preload: Sequence[str] = ()
        """Modules to import as soon as there is time."""

    @property
    def _clock(self) -> EventClock:
        if self._device_clock is None:
            msg = "no device is set"
            raise TuningError(msg)
        return self._device_clock

    def _bucket(self, request: Message) -> _Bucket:
        found = self._buckets.get(request["bucket"])
        if found is None:
            msg = f"the bucket {request['bucket']} is not open"
            raise TuningError(msg)
        return found

    def identify(self, request: Message) -> Message:
        """Take the device and calibrate its clock; answers with versions, and what the device is."""
        from lfbo_aot.adapters import standin

        description = standin.describe(request["index"]).to_json()
        self._device_clock = EventClock(request["device"])
        self.preload = request.get("preload", ())
        return {"description": description}

    def open(self, request: Message) -> Message:
        """Make a bucket's arguments and reference; answers with what they look like."""
        import torch

        spec = import_kernel(request["kernel"])
        self._buckets.pop(request["bucket"], None)
        torch.cuda.empty_cache()
        seam.seed_everything(0)
        bench = Bench(spec, request["shape"], request["device"], self._clock)

        def default() -> Callable[..., Any]:
            bound = seam.bind(spec.kernel, bench.args)
            return seam.generate(bound, seam.default_config(bound))[0]

        bench.set_reference(default)
        self._buckets[request["bucket"]] = _Bucket(bench)
        return {
            "arguments": describe_arguments(bench.args),
            "layout": spec.layout_of(*bench.args),
            "policy": self._clock.policy,
        }

    def close(self, request: Message) -> Message:
        """Give a bucket's memory back."""
        import torch

        self._buckets.pop(request["bucket"], None)
        torch.cuda.empty_cache()
        return {}

    def measure(self, request: Message) -> Message:
        """Load, check and time one compiled candidate."""
        bucket = self._bucket(request)
        bench = bucket.bench
        began = time.perf_counter()
        try:
            function = self._function(bucket, request["code"])
            wrong, compiled = bench.check(function)
            checked = time.perf_counter()
            if wrong:
                self._look_for_damage(bucket)
                return {"status": "wrong_result", "error": wrong}
            reading = read(lambda n: bench.time(function, n), request.get("best_us"), Fidelity())
            drift = self._drift(bucket, function)
        except Exception as e:  # noqa: BLE001 - whatever is raised is this trial's failure
            return {"status": _failed(e), "error": first_line(e)}
        return {
            "status": "ok",
            "latency_us": round(median(reading.samples_us) / drift, 4),
            "launches": len(reading.samples_us),
            "cut": reading.cut,
            "check_s": round(checked - began, 4),
            "time_s": round(time.perf_counter() - checked, 4),
            "drift": round(drift, 4),
            "resources": resources(compiled),
        }

    def _drift(self, bucket: _Bucket, function: Callable[..., Any]) -> float:
        """What readings are to be divided by now; the anchor is timed again every few seconds."""
        bucket.anchor = bucket.anchor or function
        began = time.perf_counter()
        if began >= bucket.next_look:
            anchor = bucket.anchor
            bucket.drift.tell(median(bucket.bench.time(anchor, _ANCHOR_LAUNCHES)))
            now = time.perf_counter()
            bucket.next_look = now + max(_LOOK_S, _LOOK_SHARE * (now - began))
        return bucket.drift.factor

    def _look_for_damage(self, bucket: _Bucket) -> None:
        """End this process if a candidate has changed memory that isn't its own.

        Then what was right before is wrong now, and would be for all candidates that follow.
        """
        if bucket.anchor is None:
            return
        wrong, _ = bucket.bench.check(bucket.anchor)
        if wrong:
            # The last of what it says is how it is remembered.
            sys.stderr.write(f"memory was changed outside of a result, which is now: {wrong}\n")
            raise SystemExit(1)

    def final(self, request: Message) -> Message:
        """Time several candidates in turn, `rounds` times; one list of samples each."""
        bucket = self._bucket(request)
        bench = bucket.bench
        entrants = []
        for code in request["codes"]:
            try:
                function = self._function(bucket, code)
                wrong, compiled = bench.check(function)
                bench.time(function, 2)
            except Exception as e:  # noqa: BLE001 - one that fails leaves the others in the race
                entrants.append(Entrant(None, error=f"{_failed(e)}: {first_line(e)}"))
            else:
                entrants.append(Entrant(function, resources(compiled), wrong or ""))
        return race(bench, entrants, request["rounds"], request.get("seconds"))

    @staticmethod
    def _function(bucket: _Bucket, code: Message) -> Callable[..., Any]:
        digest: str = code["digest"]
        if digest not in bucket.functions:
            bucket.functions[digest] = seam.load(
                seam.GeneratedCode(code["path"], code["function"], digest)
            )
        return bucket.functions[digest]


def resources(compiled: list[Any]) -> dict[str, int]:
    """What the launched kernels use at most: shared memory in bytes, registers, spills, threads."""
    return {
        "shared": max((int(k.metadata.shared) for k in compiled), default=0),
        "regs": max((int(k.n_regs) for k in compiled), default=0),
        "spills": max((int(k.n_spills) for k in compiled), default=0),
        "threads": max((_threads(k) for k in compiled), default=0),
    }


def _threads(kernel: Any) -> int:
    width = getattr(getattr(kernel.metadata, "target", None), "warp_size", 32)
    return int(kernel.metadata.num_warps) * int(width)


def _failed(error: Exception) -> str:
    """The status of a trial that raised `error`. Ends the process where its context is lost."""
    import torch

    if isinstance(error, torch.cuda.OutOfMemoryError):
        torch.cuda.empty_cache()
        return "out_of_memory"
    if not device_works():
        raise SystemExit(1) from error
    if type(error).__name__ == "OutOfResources":
        return "compile_error"
    return "out_of_memory" if "out of memory" in str(error).lower() else "crash"


def device_works() -> bool:
    """Whether this process's context still runs anything."""
    import torch

    try:
        torch.cuda.synchronize()
        return bool((torch.ones(8, device="cuda") + 1).sum().item() == 16)  # noqa: PLR2004
    except Exception:  # noqa: BLE001 - any error means that it doesn't
        return False


def _import() -> None:
    from lfbo_aot.adapters.lean import import_helion

    import_helion()


def _warm_up(modules: Sequence[str]) -> None:
    """Import Helion and these modules, and have the device do what checking a result does."""
    import torch

    _import()
    preload(modules)
    values = torch.randn(256, 256, device="cuda").to(torch.bfloat16)
    difference([values], [values.clone()], None)
    torch.softmax(values.float(), dim=-1)
    torch.cuda.synchronize()


def main() -> None:
    worker = GpuWorker()
    if os.environ.get("LFBO_AOT_SPARE"):
        _import()
    serve(
        {
            "identify": worker.identify,
            "open": worker.open,
            "close": worker.close,
            "measure": worker.measure,
            "final": worker.final,
        },
        # While the orchestrator still plans; the compile worker waits for the first answer only.
        then=lambda: _warm_up(worker.preload),
    )


if __name__ == "__main__":
    main()
