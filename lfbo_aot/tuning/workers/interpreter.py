"""The interpreter worker: real generated code, run by Triton's interpreter on the CPU."""

from __future__ import annotations

from lfbo_aot.adapters import interpreter

interpreter.prepare()  # before triton is imported by anything below

import time  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402
from typing import Any  # noqa: E402
from typing import ClassVar  # noqa: E402

from lfbo_aot.adapters import helion as seam  # noqa: E402
from lfbo_aot.errors import TuningError  # noqa: E402
from lfbo_aot.tuning.bench import Bench  # noqa: E402
from lfbo_aot.tuning.bench import Entrant  # noqa: E402
from lfbo_aot.tuning.bench import race  # noqa: E402
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


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The bucket in hand: the bound kernel, its space, arguments and reference."""

    bench: Bench
    bound: Any
    codec: seam.SpaceCodec


class InterpreterWorker:
    """Makes whole trials, one after another."""

    def __init__(self) -> None:
        self._clock = WallClock()
        self._open: _Bucket | None = None

    def open(self, request: Message) -> Message:
        """Bind a kernel at a shape; answers with the space found there."""
        self._open = None
        spec = import_kernel(request["kernel"])
        seam.seed_everything(0)
        bench = Bench(spec, request["shape"], "cpu", self._clock)
        bound = seam.bind(spec.kernel, bench.args)
        codec = seam.SpaceCodec(bound, fixed=interpreter.FIXED)
        default = codec.config(codec.space.default)
        bench.set_reference(lambda: seam.generate(bound, default)[0])
        self._open = _Bucket(bench, bound, codec)
        return {
            "space": codec.space.to_json(),
            "seeds": [list(p) for p in codec.space.seeds],
            "default": default,
            "layout": spec.layout_of(*bench.args),
            "policy": self._clock.policy,
            "versions": seam.versions(),
        }

    @property
    def _bucket(self) -> _Bucket:
        if self._open is None:
            msg = "no bucket is open"
            raise TuningError(msg)
        return self._open

    def points(self, request: Message) -> Message:
        """The points of those configs that fit the bucket's space."""
        return {"points": self._bucket.codec.fitting(request["configs"])}

    def measure(self, request: Message) -> Message:
        """Generate, check and time one point."""
        bucket = self._bucket
        started = time.monotonic()
        try:
            config = bucket.codec.config(bucket.codec.space.check(request["point"]))
        except (seam.InvalidConfigError, ValueError) as e:
            return {"status": "invalid", "error": first_line(e)}
        found: Message = {"config": config}
        try:
            function, _ = seam.generate(bucket.bound, config)
        except Exception as e:  # noqa: BLE001 - whatever Helion raises is this trial's failure
            return found | {"status": "compile_error", "error": first_line(e)}
        found["codegen_s"] = round(time.monotonic() - started, 4)
        try:
            return found | self._run(function, request.get("best_us"))
        except MemoryError as e:
            return found | {"status": "out_of_memory", "error": first_line(e)}
        except Exception as e:  # noqa: BLE001 - the interpreter raises what it likes
            return found | {"status": "crash", "error": first_line(e)}

    def _run(self, function: Callable[..., Any], best_us: float | None) -> Message:
        bench = self._bucket.bench
        wrong, _ = bench.check(function)
        if wrong:
            return {"status": "wrong_result", "error": wrong}
        reading = read(lambda n: bench.time(function, n), best_us, _FIDELITY)
        return {
            "status": "ok",
            "latency_us": round(median(reading.samples_us), 3),
            "launches": len(reading.samples_us),
            "cut": reading.cut,
        }

    def final(self, request: Message) -> Message:
        """Time several configs in turn, `rounds` times; one list of samples each."""
        bucket = self._bucket
        entrants = []
        for config in request["configs"]:
            try:
                function = seam.generate(bucket.bound, config)[0]
                wrong, _ = bucket.bench.check(function)
            except Exception as e:  # noqa: BLE001 - one that fails leaves the others in the race
                entrants.append(Entrant(None, error=first_line(e)))
            else:
                entrants.append(Entrant(function, error=wrong or ""))
        return race(bucket.bench, entrants, request["rounds"], request.get("seconds"))


def main() -> None:
    seam.versions()  # imports Helion now, while the orchestrator still plans
    worker = InterpreterWorker()
    serve(
        {
            "open": worker.open,
            "points": worker.points,
            "measure": worker.measure,
            "final": worker.final,
        }
    )


if __name__ == "__main__":
    main()
