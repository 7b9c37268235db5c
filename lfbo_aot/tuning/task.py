"""The tuning of one bucket as it is asked for, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import Opened
    from lfbo_aot.tuning.final import Choice


@dataclass(frozen=True, slots=True)
class Task:
    """One bucket to tune: what, at which shape."""

    spec: KernelSpec
    bucket: Bucket
    shape: Mapping[str, Value]
    seeds: tuple[Config, ...] = ()
    """Winners of neighbouring buckets."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a bucket is searched."""

    seed: int = 0
    algorithm: str = "lfbo"
    rounds: int = 60
    """Of the final measurement."""
    fresh: bool = False
    """Whether to ignore what the journal holds."""
    final_s: float | None = None
    """Seconds that the final measurement may take at one shape; None: as many as it takes."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the tuning of a bucket came to. `choice` is None where not even the default ran."""

    opened: Opened
    choice: Choice | None
    search: dict[str, Any]
    failures: dict[str, int]
    """By status, those of earlier sessions too."""
    candidate_ran: bool
    """Whether anything but the default did."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """News of a search for whoever watches."""

    trials: int
    best_us: float | None
    default_us: float | None
    failures: Mapping[str, int]
    stage: str = "search"
