"""One bucket's call in the process that runs it: its arguments, its reference, check and clock.

The same for a GPU and for the interpreter; they differ in the clock that is passed in.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol

from lfbo_aot.adapters import helion as seam
from lfbo_aot.errors import LfboAotError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.check import difference
from lfbo_aot.tuning.check import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterator
    from collections.abc import Mapping
    from collections.abc import Sequence

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


class Bench:
    """A kernel's call at one shape, ready to be made with any config's host function."""

    def __init__(
        self, spec: KernelSpec, shape: Mapping[str, Value], device: str, clock: Clock
    ) -> None:
        self.spec = spec
        try:
            made = spec.make_inputs(shape, device)
        except LfboAotError:
            raise
        except Exception as e:
            msg = f"inputs= of kernel {spec.kernel_id!r} failed: {type(e).__name__}: {e}"
            raise TuningError(msg) from e
        self.args = tuple(spec.kernel.normalize_args(*made))
        self._clock = clock
        names = list(spec.signature.parameters)
        self._mutated = [names.index(name) for name in spec.mutates]
        self._originals = [self.args[i].clone() for i in self._mutated]
        self._want: list[Any] = []

    def set_reference(self, default: Callable[[], Callable[..., Any]]) -> None:
        """Compute what a call must give: by the spec's reference, else by what `default` makes.

        Raises TuningError where that fails, or where a result holds nothing to compare.
        """
        what = "reference=" if self.spec.reference else "no reference=, and the default config"
        args = list(self.args)
        for i in self._mutated:
            args[i] = args[i].clone()
        try:
            result = (self.spec.reference or default())(*args)
        except Exception as e:
            msg = f"kernel {self.spec.kernel_id!r}: {what} failed: {type(e).__name__}: {e}"
            raise TuningError(msg) from e
        self._want = tensors_of(result) + [args[i] for i in self._mutated]
        if not self._want:
            msg = (
                f"kernel {self.spec.kernel_id!r}: the reference gives no tensor, and mutates= names "
                "none, so no result can be checked"
            )
            raise TuningError(msg)

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


@dataclass(frozen=True, slots=True)
class Entrant:
    """A finalist: its host function, or the error that keeps it from being timed."""

    function: Callable[..., Any] | None
    resources: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


def race(bench: Bench, entrants: Sequence[Entrant], rounds: int) -> dict[str, Any]:
    """Time the entrants in turn, `rounds` times: samples, resources and errors, a list item each.

    Every round has an order of its own, so that none always follows the same one.
    """
    samples: list[list[float]] = [[] for _ in entrants]
    errors = [entrant.error for entrant in entrants]
    running = [i for i, e in enumerate(entrants) if e.function is not None and not e.error]
    rng = random.Random(0)  # noqa: S311 - no secret
    for _ in range(rounds):
        for i in rng.sample(running, len(running)):
            try:
                samples[i] += bench.time(entrants[i].function, 1)  # type: ignore[arg-type]
            except Exception as e:  # noqa: BLE001 - one that fails leaves the others in the race
                errors[i] = f"{type(e).__name__}: {e}"[:300]
                running.remove(i)
    return {
        "samples": samples,
        "resources": [dict(entrant.resources) for entrant in entrants],
        "errors": errors,
    }


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
