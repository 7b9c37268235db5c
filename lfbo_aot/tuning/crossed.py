"""What every config of a kernel takes in one of its buckets, measured in one race.

The bucket's own best and Helion's default are in that race too: ratios are of samples of one round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.errors import TuningError
from lfbo_aot.registry.buckets import part_text
from lfbo_aot.tuning.regret import PointReadings
from lfbo_aot.tuning.regret import over_own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import Opened
    from lfbo_aot.tuning.devices.device import Station
    from lfbo_aot.tuning.limits import Limits
    from lfbo_aot.tuning.parts import Part
    from lfbo_aot.tuning.regret import Ratio

_LEAST_S = 0.2  # at one point


@dataclass(frozen=True, slots=True)
class Crossed:
    """A bucket's readings: at its tuning point, the first, and at its probe points."""

    part: Part
    opened: Opened
    points: tuple[PointReadings, ...]

    def cells(self, columns: Sequence[Config | None]) -> list[Ratio | None]:
        """Each column's latency over that of the bucket's own best, at the worst point.

        None where it fails at a point where the own best runs.
        """
        return [over_own(self.points, column, self.part.own) for column in columns]


def cross(
    station: Station,
    part: Part,
    configs: Sequence[Config],
    *,
    rounds: int,
    limits: Limits,
    points_left: int,
) -> Crossed | None:
    """The readings of these configs and of the default in a bucket; None where the time was up.

    `points_left` is how many points are still to be measured in what is left of the limits. Raises
    TuningError where one of the bucket's points, or its own best at one of them, can't be measured.
    """
    share_s = None if limits.left_s is None else max(_LEAST_S, limits.left_s / max(1, points_left))
    if limits.over():
        return None
    spec, shape = part.spec, part.bucket.point
    opened = station.open(spec, shape)
    wanted = [opened.default, *(c for c in configs if c != opened.default)]
    points = [PointReadings(shape, opened.default, station.final(wanted, rounds, share_s))]
    _check_own(points[0], part.own)
    for probe in part.bucket.probes:
        if probe not in part.probes:
            continue
        if limits.over():
            return None
        default, readings = station.final_at(spec, probe, configs, rounds, share_s)
        points.append(PointReadings(probe, default, readings))
        _check_own(points[-1], part.own)
    return Crossed(part, opened, tuple(points))


def _check_own(point: PointReadings, own: Config | None) -> None:
    """Without a reading of the own best nothing can be said of the others."""
    if point.of(own) is None:
        config = point.default if own is None else own
        errors = [r.error for r in point.readings if r.config == config and r.error]
        where = " ".join(f"{name}={part_text(value)}" for name, value in point.shape.items())
        msg = f"its own best doesn't run at {where}: {'; '.join(errors) or 'no reading'}"
        raise TuningError(msg)
