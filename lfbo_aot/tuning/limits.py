"""How far a search may go, and the clock that says so."""

from __future__ import annotations

import time
from dataclasses import dataclass
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Limits:
    """Ends of a search; None: no such end. `ends` is a reading of `clock`, in seconds."""

    ends: float | None = None
    trials: int | None = None
    clock: Callable[[], float] = time.monotonic

    def over(self) -> bool:
        """Whether the time is up."""
        return self.ends is not None and self.clock() >= self.ends

    def within(self, seconds: float | None) -> Limits:
        """These limits, and no more than `seconds` from now."""
        if seconds is None:
            return self
        ends = self.clock() + seconds
        return replace(self, ends=ends if self.ends is None else min(ends, self.ends))

    @property
    def left_s(self) -> float | None:
        """Seconds that are left; None for no end."""
        return None if self.ends is None else max(0.0, self.ends - self.clock())
