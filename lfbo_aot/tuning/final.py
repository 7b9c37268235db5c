"""The final choice among a bucket's best: by interleaved, paired measurement, never by search logs.

Readings taken during a search flatter by several per cent, and dozens of configs lie within that.
So the best few and the default are measured in turn, round by round; what drifts between rounds
drifts for all of them, and ratios within a round don't see it.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import FinalReading

_SIGMAS = 2.0  # a difference counts beyond this many standard errors
_LEAST_GAIN = 0.002  # and beyond this share: the clock's own resolution


@dataclass(frozen=True, slots=True)
class Choice:
    """The winner of a bucket."""

    config: Config
    latency_us: float
    default_us: float | None
    """None where the default doesn't run."""
    is_default: bool
    spread: float
    near_tie: bool
    alternates: tuple[Config, ...]
    resources: dict[str, int]
    note: str = ""


def choose(readings: Sequence[FinalReading], default: Config, alternates: int = 3) -> Choice | None:
    """The winner of interleaved readings; None where none of them ran.

    The default wins unless another one is faster by more than the noise of their paired ratios.
    """
    timed = [r for r in readings if _usable(r)]
    if not timed:
        return None
    ours = next((r for r in timed if r.config == default), None)
    broken = next((r for r in readings if r.config == default and not _usable(r)), None)
    base = ours or min(timed, key=lambda r: statistics.median(r.samples_us))
    ranked = sorted(timed, key=lambda r: _ratio(r, base)[0])
    winner = ranked[0]
    if ours is not None and winner is not ours:
        ratio, error = _ratio(winner, ours)
        if 1.0 - ratio <= max(_SIGMAS * error, _LEAST_GAIN):
            winner = ours
    others = [r for r in ranked if r is not winner]
    tie = any(_within_noise(r, winner) for r in others)
    note = (
        f"the default config doesn't run: {broken.error or 'no reading'}"
        if broken is not None
        else ""
    )
    return Choice(
        config=winner.config,
        latency_us=round(statistics.median(winner.samples_us), 4),
        default_us=round(statistics.median(ours.samples_us), 4) if ours is not None else None,
        is_default=winner.config == default,
        spread=round(_spread(winner.samples_us), 5),
        near_tie=tie,
        alternates=tuple(r.config for r in others[:alternates]),
        resources=dict(winner.resources),
        note=note,
    )


def _usable(reading: FinalReading) -> bool:
    return bool(reading.samples_us) and all(0 < s < math.inf for s in reading.samples_us)


def _ratio(reading: FinalReading, base: FinalReading) -> tuple[float, float]:
    """(median of the paired ratios, its standard error estimated from their median deviation)."""
    if reading is base:
        return 1.0, 0.0
    pairs = zip(reading.samples_us, base.samples_us, strict=True)
    ratios = [a / b for a, b in pairs]
    middle = statistics.median(ratios)
    deviation = statistics.median(abs(r - middle) for r in ratios)
    # 1.4826: from a median deviation to a standard one; 1.2533: from a mean's error to a median's.
    return middle, 1.4826 * 1.2533 * deviation / math.sqrt(len(ratios))


def _within_noise(reading: FinalReading, winner: FinalReading) -> bool:
    ratio, error = _ratio(reading, winner)
    return abs(ratio - 1.0) <= max(_SIGMAS * error, _LEAST_GAIN)


def _spread(samples: Sequence[float]) -> float:
    """The middle half's width over the median."""
    if len(samples) < 4:  # noqa: PLR2004 - quartiles need as many
        return (max(samples) - min(samples)) / statistics.median(samples)
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle
