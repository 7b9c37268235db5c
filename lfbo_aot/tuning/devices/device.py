"""The interface between a tuning run and what it runs on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any
from typing import Protocol

from lfbo_aot.search import Space

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from typing_extensions import Self

    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.search import Point

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Opened:
    """A bucket, ready to be tuned."""

    space: Space
    """The search space at the tuning point, the compiler's own seeds included."""
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


class Station(Protocol):
    """A place where one bucket at a time is tuned; its trials run in parallel."""

    id: DeviceId

    def open(self, spec: KernelSpec, shape: Mapping[str, Value]) -> Opened:
        """Make a bucket ready; raises TuningError where the kernel can't run there.

        Another station's bucket may be searched meanwhile.
        """
        ...

    def turn(self) -> AbstractContextManager[None]:
        """While inside, no other bucket is searched on the same piece of hardware."""
        ...

    def points(self, configs: Sequence[Config]) -> tuple[Point, ...]:
        """The points of those configs that fit the open bucket's space."""
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

    def final(
        self, configs: Sequence[Config], rounds: int, seconds: float | None = None
    ) -> list[FinalReading]:
        """Measure these configs in turn, `rounds` times, with the open bucket's arguments.

        Fewer times where that would take more than `seconds`. Trials that are not over are ended.
        """
        ...

    def final_at(
        self,
        spec: KernelSpec,
        shape: Mapping[str, Value],
        configs: Sequence[Config],
        rounds: int,
        seconds: float | None = None,
    ) -> tuple[Config, list[FinalReading]]:
        """(default config, readings of it and of these configs) at another shape of the kernel."""
        ...

    def leave(self) -> None:
        """Give back what the open bucket holds."""
        ...

    def clock(self) -> float:
        """Seconds on the clock that budgets are counted by."""
        ...


class Device(Protocol):
    """Carries out trials, at one or more stations."""

    id: DeviceId
    """The identity that entries are filed under."""

    @property
    def stations(self) -> Sequence[Station]:
        """Where buckets are tuned, one each; at least one."""
        ...

    @property
    def usage(self) -> dict[str, float]:
        """How busy it was; empty where that isn't counted."""
        ...

    def clock(self) -> float:
        """Seconds on the clock that budgets are counted by."""
        ...

    def close(self) -> None:
        """End every process that it started."""
        ...


class OneStation:
    """What a device that is its own and only station has nothing to do for."""

    @property
    def stations(self) -> tuple[Self, ...]:
        return (self,)

    @property
    def usage(self) -> dict[str, float]:
        return {}

    def turn(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def leave(self) -> None:
        """Nothing is held that the next bucket's opening doesn't replace."""


def with_default(default: Config, configs: Sequence[Config]) -> list[Config]:
    """The default, and those of the configs that are others."""
    return [default, *(config for config in configs if config != default)]


def final_readings(configs: Sequence[Config], reply: Mapping[str, Any]) -> list[FinalReading]:
    """A worker's final measurement, one reading a config."""
    rows = zip(configs, reply["samples"], reply["resources"], reply["errors"], strict=True)
    return [
        FinalReading(config, () if error else tuple(samples), resources, error or "")
        for config, samples, resources, error in rows
    ]


def make_opened(space: Mapping[str, Any], bench: Mapping[str, Any]) -> Opened:
    """What workers answered when a bucket was opened, as one value."""
    parsed = Space.from_json(space["space"])
    seeds = tuple(parsed.check(seed) for seed in space["seeds"])
    with_seeds = replace(parsed, seeds=seeds)
    return Opened(with_seeds, space["default"], bench["layout"], bench["policy"], space["versions"])


def frozen_point(values: Sequence[Any]) -> Point:
    """A point as it came in JSON."""
    return tuple(frozen_point(v) if isinstance(v, list) else v for v in values)


def to_outcome(ticket: int, reply: Mapping[str, Any]) -> Outcome:
    """A worker's answer as an `Outcome`."""
    names = ("config", "latency_us", "codegen_s", "compile_s", "check_s", "time_s")
    known: dict[str, Any] = {name: reply.get(name) for name in names}
    return Outcome(
        ticket,
        reply["status"],
        cut=reply.get("cut", False),
        launches=reply.get("launches", 0),
        resources=reply.get("resources", {}),
        error=reply.get("error", ""),
        **known,
    )
