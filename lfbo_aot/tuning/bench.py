"""One bucket's call in the process that runs it: its arguments, its reference, check and clock.

The same for a GPU and for the interpreter; they differ in the clock that is passed in.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol

from lfbo_aot.adapters import helion as seam
from lfbo_aot.errors import LfboAotError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.check import difference
from lfbo_aot.tuning.check import has_nan
from lfbo_aot.tuning.check import same
from lfbo_aot.tuning.check import tensors_of
from lfbo_aot.tuning.poison import nan_memory
from lfbo_aot.tuning.poison import zero_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterable
    from collections.abc import Mapping
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

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
        self._names = list(spec.signature.parameters)
        self._mutated = [self._names.index(name) for name in spec.mutates]
        self._originals = [_clone(arg) for arg in self.args]
        self._want: list[Any] = []
        self._by_chance = False

    def set_reference(self, default: Callable[[], Callable[..., Any]]) -> None:
        """Compute what a call must give: by the spec's reference, else by what `default` makes.

        Raises TuningError where that fails, where it changes an argument that `mutates=` doesn't
        name, or where a result holds nothing to compare.
        """
        what = "reference=" if self.spec.reference else "no reference=, and the default config"
        args = list(self.args)
        for i in self._mutated:
            args[i] = _clone(args[i])
        try:
            result = (self.spec.reference or default())(*args)
            self._clock.settle()
        except Exception as e:
            msg = f"kernel {self.spec.kernel_id!r}: {what} failed: {type(e).__name__}: {e}"
            raise TuningError(msg) from e
        if changed := self._changed():
            what = "reference=" if self.spec.reference else "the default config"
            msg = (
                f"kernel {self.spec.kernel_id!r}: {what} changed {changed}; name it there if the "
                "kernel is to change it, else let the reference work on a copy"
            )
            raise TuningError(msg)
        returned = tensors_of(result)
        # A later call may write to what shares memory with an argument.
        ours = {_memory(t) for t in tensors_of(args)}
        returned = [t.clone() if _memory(t) in ours else t for t in returned]
        self._by_chance = any(_by_chance(t) for t in returned)
        self._want = returned + tensors_of([args[i] for i in self._mutated])
        if not self._want:
            msg = (
                f"kernel {self.spec.kernel_id!r}: the reference gives no tensor, and mutates= names "
                "none, so no result can be checked"
            )
            raise TuningError(msg)

    def check(self, function: Callable[..., Any]) -> tuple[str | None, list[Any]]:
        """(what is wrong with the result or None, the kernels that the call launched).

        Memory that the call allocates is filled with NaN first, so that a value which the kernel
        doesn't write can't be a right one left behind by an earlier candidate. Where what it is
        filled with may be right (True, the largest integer, a NaN of the reference) the call is
        made once more with memory filled with zeros.
        """
        wrong, compiled = self._check(function, nan_memory())
        if wrong is None and self._by_chance:
            wrong, _ = self._check(function, zero_memory())
        return wrong, compiled

    def _check(
        self, function: Callable[..., Any], memory: AbstractContextManager[None]
    ) -> tuple[str | None, list[Any]]:
        self._restore(self._mutated)
        with memory:
            result, compiled = seam.run(function, self.args)
            self._clock.settle()
        got = tensors_of(result) + tensors_of([self.args[i] for i in self._mutated])
        wrong = difference(got, self._want, self.spec.tolerance)
        if changed := self._changed():
            wrong = f"the call changed {changed}"
        return wrong, compiled

    def _changed(self) -> str:
        """The argument that isn't what it was, though `mutates=` doesn't name it; restored."""
        for i, arg in enumerate(self.args):
            if i in self._mutated:
                continue
            pairs = zip(tensors_of(arg), tensors_of(self._originals[i]), strict=True)
            if not all(same(now, before) for now, before in pairs):
                self._restore([i])
                return f"the argument {self._names[i]!r}, which mutates= doesn't name"
        return ""

    def time(self, function: Callable[..., Any], launches: int) -> list[float]:
        """Microseconds of each of `launches` calls."""
        if not self._mutated:
            return self._clock.time_us(lambda: function(*self.args), launches)
        samples = []
        for _ in range(launches):
            self._restore(self._mutated)
            samples += self._clock.time_us(lambda: function(*self.args), 1)
        return samples

    def _restore(self, places: Iterable[int]) -> None:
        for i in places:
            pairs = zip(tensors_of(self.args[i]), tensors_of(self._originals[i]), strict=True)
            for now, before in pairs:
                now.copy_(before)


def _clone(value: Any) -> Any:
    """A copy of the tensors in an argument; anything else as it is."""
    if isinstance(value, list | tuple):
        return type(value)(_clone(item) for item in value)
    return value.clone() if tensors_of(value) else value


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _by_chance(want: Any) -> bool:
    """Whether memory filled with NaN may hold a right value."""
    if not (want.is_floating_point() or want.is_complex()):
        return True
    return has_nan(want)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A finalist: its host function, or the error that keeps it from being timed."""

    function: Callable[..., Any] | None
    resources: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


def race(
    bench: Bench, entrants: Sequence[Entrant], rounds: int, seconds: float | None = None
) -> dict[str, Any]:
    """Time the entrants in turn, `rounds` times: samples, resources and errors, a list item each.

    Every round has an order of its own, so that none always follows the same one. A race that takes
    more than `seconds` ends early, but not before its tenth round, or its third where a round takes
    more than a tenth of them.
    """
    samples: list[list[float]] = [[] for _ in entrants]
    errors = [entrant.error for entrant in entrants]
    running = [i for i, e in enumerate(entrants) if e.function is not None and not e.error]
    rng = random.Random(0)  # noqa: S311 - no secret
    started = time.monotonic()
    for number in range(rounds):
        passed = time.monotonic() - started
        if seconds is not None and passed > seconds and number >= _least(number, passed, seconds):
            break
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


def _least(number: int, passed_s: float, seconds: float) -> int:
    """How many rounds a race has at least, whatever they take."""
    return _ROUNDS if passed_s / max(1, number) <= seconds / _ROUNDS else _FEW_ROUNDS


_ROUNDS = 10
_FEW_ROUNDS = 3
