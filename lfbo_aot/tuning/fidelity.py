"""How many launches a candidate is worth, and what they add up to."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Launches for a first look, and for a candidate that may be among the best.

    A candidate whose first look is slower than the best so far by more than `slack` is cut there:
    it is recorded with what was seen, and never labelled good.
    """

    warmup: int = 1
    quick: int = 3
    full: int = 16
    slack: float = 1.3
    longest_us: float = 400_000.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one measurement gave; `cut` where it was stopped early."""

    samples_us: tuple[float, ...]
    cut: bool = False


def read(time: Callable[[int], list[float]], best_us: float | None, fidelity: Fidelity) -> Reading:
    """Time a candidate at the fidelity that its first launches earn it."""
    warmup = time(fidelity.warmup) if fidelity.warmup else [0.0]
    if best_us is not None and warmup[-1] > 8 * fidelity.slack * best_us:
        return Reading(tuple(warmup[-1:]), cut=True)
    samples = time(fidelity.quick)
    if best_us is not None and median(samples) > fidelity.slack * best_us:
        return Reading(tuple(samples), cut=True)
    left = int(fidelity.longest_us / max(median(samples), 1e-3))
    more = max(0, min(fidelity.full - fidelity.quick, left))
    return Reading(tuple(samples + (time(more) if more else [])))


def median(samples: Sequence[float]) -> float:
    """The middle of the samples, in their unit."""
    return float(statistics.median(samples))
