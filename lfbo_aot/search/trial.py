"""One point tried, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lfbo_aot.search.space import Point

# `duplicate`: generates the same code as an earlier trial, whose latency it carries.
STATUSES = (
    "ok",
    "invalid",
    "duplicate",
    "compile_error",
    "compile_timeout",
    "wrong_result",
    "crash",
    "timeout",
    "out_of_memory",
)
TIMEOUTS = frozenset({"compile_timeout", "timeout"})
FAILURES = frozenset(STATUSES) - {"ok", "duplicate"}


@dataclass(frozen=True, slots=True)
class Trial:
    """One point tried. ValueError for an unknown status, or `ok` without a positive latency.

    `latency_us` of a failure is ignored. `cut` marks a reading that was stopped early because the
    point was clearly slow: it counts as slow, never as good.
    """

    point: Point
    status: str
    latency_us: float | None = None
    cut: bool = False
    compile_s: float | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            msg = f"trial status {self.status!r} is none of {', '.join(STATUSES)}"
            raise ValueError(msg)
        latency = self.latency_us
        if self.status == "ok" and latency is None:
            msg = "a trial with status 'ok' has a latency"
            raise ValueError(msg)
        if self.status in FAILURES or latency is None:
            return
        if not (math.isfinite(latency) and latency > 0):
            msg = f"latency_us={latency!r} is not a positive, finite number of microseconds"
            raise ValueError(msg)

    @property
    def timed(self) -> bool:
        """Whether it ran to its end and its own latency was read in full: it may be a winner."""
        return self.status == "ok" and not self.cut
