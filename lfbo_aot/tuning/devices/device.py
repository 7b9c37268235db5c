"""The interface between a tuning run and what it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Point
    from lfbo_aot.search import Space

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Opened:
    """A bucket, ready to be tuned."""

    space: Space
    """The search space at the tuning point, seeds included."""
    default: Config
    """Helion's own default config at the tuning point."""
    layout: list[dict[str, Any]]
    policy: dict[str, str]
    """How latencies are measured; entries of different policies are not compared."""
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one submitted point."""

    ticket: int
    status: str
    config: Config | None = None
    """The canonical config; None where the point has none."""
    latency_us: float | None = None
    cut: bool = False
    launches: int = 0
    codegen_s: float | None = None
    compile_s: float | None = None
    check_s: float | None = None
    time_s: float | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class FinalReading:
    """The interleaved samples of one finalist, in microseconds; empty where `error` says why."""

    config: Config
    samples_us: tuple[float, ...]
    resources: Mapping[str, int]
    error: str = ""


class Device(Protocol):
    """Carries out trials. One bucket is open at a time; its trials run in parallel."""

    id: DeviceId
    """The identity that entries are filed under."""

    def open(self, spec: KernelSpec, shape: Mapping[str, Value], seeds: Sequence[Config]) -> Opened:
        """Make the bucket ready; raises TuningError where the kernel can't run there."""
        ...

    def free(self) -> int:
        """How many more points it can usefully be given now."""
        ...

    def submit(self, ticket: int, point: Point, best_us: float | None) -> None:
        """Start a trial; `wait` gives its outcome. `best_us`: the best latency so far."""
        ...

    def wait(self, timeout_s: float) -> list[Outcome]:
        """The outcomes since the last call; waits up to `timeout_s` for the first."""
        ...

    def final(self, configs: Sequence[Config], rounds: int) -> list[FinalReading]:
        """Measure these configs in turn, `rounds` times, with the bucket's arguments."""
        ...

    def clock(self) -> float:
        """Seconds on the clock that budgets are counted by."""
        ...

    def close(self) -> None:
        """End every process that it started."""
        ...
