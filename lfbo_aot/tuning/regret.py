"""What a config costs at several points of a bucket, against the best and against the default.

All of it is told from ratios of samples of one round: what drifts between rounds drifts for both.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.registry.dims import Value
    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import FinalReading

SIGMAS = 2.0
"""A difference counts beyond this many standard errors."""
LEAST = 0.002
"""And beyond this share: the clock's own resolution."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer one config takes than another: the median over rounds and its error."""

    middle: float
    error: float
    """One standard error, estimated from the median deviation."""

    @property
    def noise(self) -> float:
        """Differences up to this don't count."""
        return max(SIGMAS * self.error, LEAST)

    @property
    def slower(self) -> bool:
        """Whether it takes longer beyond the noise."""
        return self.middle - 1.0 > self.noise

    @property
    def even(self) -> bool:
        """Whether the two differ by no more than the noise."""
        return abs(self.middle - 1.0) <= self.noise


def usable(reading: FinalReading) -> bool:
    """Whether a reading holds samples, each a duration."""
    return bool(reading.samples_us) and all(0 < s < math.inf for s in reading.samples_us)


def paired(reading: FinalReading, base: FinalReading) -> Ratio:
    """`reading` over `base`, round by round."""
    if reading is base:
        return Ratio(1.0, 0.0)
    ratios = [a / b for a, b in zip(reading.samples_us, base.samples_us, strict=True)]
    middle = statistics.median(ratios)
    deviation = statistics.median(abs(r - middle) for r in ratios)
    # 1.4826: from a median deviation to a standard one; 1.2533: from a mean's error to a median's.
    return Ratio(middle, 1.4826 * 1.2533 * deviation / math.sqrt(len(ratios)))


def together(ratios: Sequence[Ratio]) -> Ratio:
    """The mean of independent ratios, one a point."""
    error = math.hypot(*(r.error for r in ratios)) / len(ratios)
    return Ratio(statistics.fmean(r.middle for r in ratios), error)


@dataclass(frozen=True, slots=True)
class PointReadings:
    """The readings of one interleaved measurement at one shape of a bucket."""

    shape: Mapping[str, Value]
    default: Config
    """Helion's own default config at this shape; `readings` holds it too."""
    readings: Sequence[FinalReading]

    @property
    def timed(self) -> list[FinalReading]:
        """Those that are usable."""
        return [r for r in self.readings if usable(r)]

    def of(self, config: Config | None) -> FinalReading | None:
        """The usable reading of a config, of this point's default for None; None without one."""
        wanted = self.default if config is None else config
        return next((r for r in self.timed if r.config == wanted), None)

    def over_best(self, readings: Sequence[FinalReading | None]) -> list[float]:
        """How many times longer each takes than the best reading here, from 1 up; inf for None."""
        timed = self.timed
        base = self.of(None) or min(timed, key=lambda r: statistics.median(r.samples_us))
        # By way of one base, so that the ratios order configs in one and the same way.
        best = min(paired(r, base).middle for r in timed)
        return [math.inf if r is None else paired(r, base).middle / best for r in readings]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to serve a bucket: a config at every point, or each point's own default."""

    config: Config | None
    """None: Helion's default at each shape."""
    at: tuple[FinalReading | None, ...]
    """Its usable reading at each point; None where it fails."""
    regret: tuple[float, ...]
    """Its latency over that of the best reading there, less 1; inf where it fails."""

    @property
    def runs(self) -> bool:
        """Whether it runs at every point."""
        return None not in self.at

    @property
    def rank(self) -> tuple[float, float]:
        """What to order by: the worst regret, then the mean one."""
        return max(self.regret), statistics.fmean(self.regret)


def contestants(points: Sequence[PointReadings]) -> list[Contestant]:
    """All that ran at the first of `points`, the tuning point, those of least worst regret first.

    The default counts once, with each point's own; where these differ, the tuning point's also
    counts as a config like any other. At every point something must have run.
    """
    tuning, *probes = points
    configs: list[Config | None] = []
    for reading in tuning.timed:
        if reading.config == tuning.default:
            configs.append(None)
        if reading.config != tuning.default or any(p.default != tuning.default for p in probes):
            configs.append(reading.config)
    rows = [[p.of(config) for config in configs] for p in points]
    ratios = [p.over_best(row) for p, row in zip(points, rows, strict=True)]
    made = [
        Contestant(config, tuple(at), tuple(r - 1.0 for r in over))
        for config, at, over in zip(
            configs, zip(*rows, strict=True), zip(*ratios, strict=True), strict=True
        )
    ]
    return sorted(made, key=lambda c: c.rank)


def over_own(
    points: Sequence[PointReadings], config: Config | None, own: Config | None
) -> Ratio | None:
    """How many times longer a bucket takes with `config` than with its winner, at the worst point.

    As an argument None stands for each point's own default. The answer is None where `config` fails
    at a point where `own` runs, or where `own` runs at none. Such ratios and their errors are the
    cells that `cover.smallest_set` takes.
    """
    ratios: list[Ratio] = []
    for point in points:
        theirs = point.of(own)
        if theirs is None:
            continue
        ours = point.of(config)
        if ours is None:
            return None
        ratios.append(paired(ours, theirs))
    return max(ratios, key=lambda r: r.middle, default=None)
