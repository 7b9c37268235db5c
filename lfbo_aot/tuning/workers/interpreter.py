"""The interpreter worker: real generated code, run by Triton's interpreter on the CPU."""

from __future__ import annotations

from lfbo_aot.adapters import interpreter

interpreter.prepare()  # before triton is imported by anything below

import time  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402
from typing import Any  # noqa: E402
from typing import ClassVar  # noqa: E402

from lfbo_aot.adapters import helion as seam  # noqa: E402
from lfbo_aot.runtime.layout import describe_layout  # noqa: E402
from lfbo_aot.tuning.bench import Bench  # noqa: E402
from lfbo_aot.tuning.fidelity import Fidelity  # noqa: E402
from lfbo_aot.tuning.fidelity import median  # noqa: E402
from lfbo_aot.tuning.fidelity import read  # noqa: E402
from lfbo_aot.tuning.workers.serve import first_line  # noqa: E402
from lfbo_aot.tuning.workers.serve import import_kernel  # noqa: E402
from lfbo_aot.tuning.workers.serve import serve  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from lfbo_aot.tuning.channel import Message

_FIDELITY = Fidelity(warmup=0, quick=1, full=3, slack=1.5, longest_us=1_000_000.0)


class WallClock:
    """Wall-clock time of a call. The interpreter's times are real and say nothing of a GPU."""

    policy: ClassVar[dict[str, str]] = {"l2": "none", "clock": "wall", "inputs": "declared"}

    def time_us(self, call: Callable[[], Any], launches: int) -> list[float]:
        samples = []
        for _ in range(launches):
            started = time.perf_counter()
            call()
            samples.append(1e6 * (time.perf_counter() - started))
        return samples

    def settle(self) -> None:
        """Nothing runs behind the caller's back here."""


class InterpreterWorker:
    """Holds the bucket in hand: the bound kernel, its space, arguments and reference."""

    def __init__(self) -> None:
        self._clock = WallClock()
        self._bench: Bench | None = None
        self._bound: Any = None
        self._codec: seam.SpaceCodec | None = None

    def open(self, request: Message) -> Message:
        """Bind a kernel at a shape; answers with the space found there."""
        spec = import_kernel(request["kernel"])
        seam.seed_everything(0)
        self._bench = Bench(spec, request["shape"], "cpu", self._clock)
        self._bound = seam.bind(spec.kernel, self._bench.args)
        self._codec = seam.SpaceCodec(self._bound, fixed=interpreter.FIXED)
        default = self._codec.config(self._codec.space.default)
        self._bench.set_reference(seam.generate(self._bound, default)[0])
        points = [*self._codec.space.seeds]
        for config in request.get("seeds", []):
            try:
                points.append(self._codec.point(config))
            except seam.InvalidConfigError:
                continue  # a neighbouring bucket's winner need not fit here
        return {
            "space": self._codec.space.to_json(),
            "seeds": [list(p) for p in dict.fromkeys(points)],
            "default": default,
            "layout": describe_layout(self._bench.args),
            "policy": self._clock.policy,
            "versions": seam.versions(),
        }

    def measure(self, request: Message) -> Message:
        """Generate, check and time one point."""
        assert self._codec is not None
        assert self._bench is not None
        bench = self._bench
        started = time.monotonic()
        try:
            config = self._codec.config(self._codec.space.check(request["point"]))
        except (seam.InvalidConfigError, ValueError) as e:
            return {"status": "invalid", "error": first_line(e)}
        found: Message = {"config": config}
        try:
            function, _ = seam.generate(self._bound, config)
        except Exception as e:  # noqa: BLE001 - whatever Helion raises is this trial's failure
            return found | {"status": "compile_error", "error": first_line(e)}
        found["codegen_s"] = round(time.monotonic() - started, 4)
        try:
            wrong, _ = bench.check(function)
            if wrong:
                return found | {"status": "wrong_result", "error": wrong}
            reading = read(lambda n: bench.time(function, n), request.get("best_us"), _FIDELITY)
        except MemoryError as e:
            return found | {"status": "out_of_memory", "error": first_line(e)}
        except Exception as e:  # noqa: BLE001 - the interpreter raises what it likes
            return found | {"status": "crash", "error": first_line(e)}
        return found | {
            "status": "ok",
            "latency_us": round(median(reading.samples_us), 3),
            "launches": len(reading.samples_us),
            "cut": reading.cut,
            "resources": {},
        }

    def final(self, request: Message) -> Message:
        """Time several configs in turn, `rounds` times; one list of samples each."""
        assert self._bench is not None
        bench = self._bench
        functions = [seam.generate(self._bound, c)[0] for c in request["configs"]]
        errors = [bench.check(function)[0] for function in functions]
        samples: list[list[float]] = [[] for _ in functions]
        order = list(range(len(functions)))
        for _ in range(request["rounds"]):
            for i in order:
                samples[i] += bench.time(functions[i], 1)
            order = order[1:] + order[:1]
        return {"samples": samples, "errors": errors, "resources": [{} for _ in functions]}


def main() -> None:
    seam.versions()  # imports Helion now, while the orchestrator still plans
    worker = InterpreterWorker()
    serve({"open": worker.open, "measure": worker.measure, "final": worker.final})


if __name__ == "__main__":
    main()
