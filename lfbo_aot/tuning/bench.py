"""One bucket's call in the process that runs it: its arguments, its reference, check and clock.

The same for a GPU and for the interpreter; they differ in the clock that is passed in.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol

from lfbo_aot.adapters import helion as seam
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.check import difference
from lfbo_aot.tuning.check import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterator
    from collections.abc import Mapping

    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec


class Clock(Protocol):
    """Times a call; `policy` says how, as entries record it."""

    @property
    def policy(self) -> dict[str, str]:
        """How it times, as entries record it."""
        ...

    def time_us(self, call: Callable[[], Any], launches: int) -> list[float]:
        """The duration of each of `launches` calls, in microseconds."""
        ...

    def settle(self) -> None:
        """Wait until everything that was started has ended; raises what went wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What one measurement gave."""

    status: str
    samples_us: tuple[float, ...] = ()
    cut: bool = False
    error: str = ""
    resources: Mapping[str, int] | None = None


class Bench:
    """A kernel's call at one shape, ready to be made with any config's host function."""

    def __init__(
        self, spec: KernelSpec, shape: Mapping[str, Value], device: str, clock: Clock
    ) -> None:
        self.spec = spec
        self.args = tuple(spec.kernel.normalize_args(*spec.make_inputs(shape, device)))
        self._clock = clock
        names = list(spec.signature.parameters)
        self._mutated = [names.index(name) for name in spec.mutates]
        self._originals = [self.args[i].clone() for i in self._mutated]
        self._want: list[Any] = []

    def set_reference(self, fallback: Callable[..., Any] | None = None) -> None:
        """Compute what a call must give: by the spec's reference, else by `fallback`."""
        function = self.spec.reference or fallback
        if function is None:
            msg = f"kernel {self.spec.kernel_id!r}: no reference and no default config that runs"
            raise TuningError(msg)
        args = list(self.args)
        for i in self._mutated:
            args[i] = args[i].clone()
        result = tensors_of(function(*args))
        self._want = result + [args[i] for i in self._mutated]

    def check(self, function: Callable[..., Any]) -> tuple[str | None, list[Any]]:
        """(what is wrong with the result or None, the kernels that the call launched).

        Memory that the call allocates is filled with NaN first, so that a value which the kernel
        doesn't write can't be a right one left behind by an earlier candidate.
        """
        self._restore()
        with _poisoned_memory():
            result, compiled = seam.run(function, self.args)
            self._clock.settle()
        got = tensors_of(result) + [self.args[i] for i in self._mutated]
        return difference(got, self._want, self.spec.tolerance), compiled

    def time(self, function: Callable[..., Any], launches: int) -> list[float]:
        """Microseconds of each of `launches` calls."""
        if not self._mutated:
            return self._clock.time_us(lambda: function(*self.args), launches)
        samples = []
        for _ in range(launches):
            self._restore()
            samples += self._clock.time_us(lambda: function(*self.args), 1)
        return samples

    def _restore(self) -> None:
        for i, original in zip(self._mutated, self._originals, strict=True):
            self.args[i].copy_(original)


@contextlib.contextmanager
def _poisoned_memory() -> Iterator[None]:
    import torch
    from torch.utils import deterministic

    before = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before, warn_only=warn)
        deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
