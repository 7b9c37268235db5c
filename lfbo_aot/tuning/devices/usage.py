"""How busy compilers and GPUs were: the profile of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Usage:
    """Seconds since the first binary, by what was going on. Times are the caller's clock's.

    `ready_wait_s`: a compiled candidate waited although its GPU had nothing to do, restarts of its
    worker included. `compile_slots_s`: the sum over compilers, so that its share of `span_s` times
    the number of compilers is how full they were.
    """

    first_s: float | None = None
    last_s: float = 0.0
    gpu_busy_s: float = 0.0
    compile_busy_s: float = 0.0
    either_busy_s: float = 0.0
    compile_slots_s: float = 0.0
    ready_wait_s: float = 0.0
    _compiling: int = 0
    _gpus: int = 0
    _waiting: bool = False

    def first_binary(self, now_s: float) -> None:
        """Counting begins with the first call."""
        if self.first_s is None:
            self.first_s = self.last_s = now_s

    def see(self, now_s: float, *, compiling: int, gpus_busy: int, waiting: bool) -> None:
        """What goes on from now; the time since the last call counts for what went on then."""
        if self.first_s is not None:
            passed = now_s - self.last_s
            self.gpu_busy_s += passed * (self._gpus > 0)
            self.compile_busy_s += passed * (self._compiling > 0)
            self.either_busy_s += passed * (self._gpus > 0 or self._compiling > 0)
            self.compile_slots_s += passed * self._compiling
            self.ready_wait_s += passed * self._waiting
            self.last_s = now_s
        self._compiling, self._gpus, self._waiting = compiling, gpus_busy, waiting

    def to_json(self) -> dict[str, float]:
        """The sums, with `span_s`, the time from the first binary until now."""
        first = self.last_s if self.first_s is None else self.first_s
        return {
            "span_s": round(self.last_s - first, 3),
            "gpu_busy_s": round(self.gpu_busy_s, 3),
            "compile_busy_s": round(self.compile_busy_s, 3),
            "either_busy_s": round(self.either_busy_s, 3),
            "compile_slots_s": round(self.compile_slots_s, 3),
            "ready_wait_s": round(self.ready_wait_s, 3),
        }
