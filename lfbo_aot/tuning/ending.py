"""The last measurement of a bucket's best configs: at its tuning point, and at its probe points."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.regret import PointReadings
from lfbo_aot.tuning.regret import usable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence

    from lfbo_aot.tuning.devices.device import Config
    from lfbo_aot.tuning.devices.device import Station
    from lfbo_aot.tuning.limits import Limits
    from lfbo_aot.tuning.task import Manner
    from lfbo_aot.tuning.task import Task

logger = logging.getLogger(__name__)


def measure_again(
    station: Station,
    task: Task,
    default: Config,
    configs: Sequence[Config],
    *,
    manner: Manner,
    limits: Limits,
) -> list[PointReadings]:
    """The configs' readings, and the default's, at the tuning point and then at each probe point.

    Probe points are left out where none of the configs ran, and once `limits` are over.
    """
    readings = station.final([default, *configs], manner.rounds, manner.final_s)
    points = [PointReadings(task.shape, default, readings)]
    left = [r.config for r in readings if usable(r) and r.config != default]
    if left:
        points += _probed(station, task, left, manner=manner, limits=limits)
    return points


def _probed(
    station: Station, task: Task, configs: Sequence[Config], *, manner: Manner, limits: Limits
) -> Iterator[PointReadings]:
    """A point at which nothing can be run, such as one that `inputs=` refuses, is left out."""
    for shape in task.bucket.probes:
        if limits.over():
            return
        try:
            default, found = station.final_at(
                task.spec, shape, configs, manner.rounds, manner.final_s
            )
        except DeviceLostError:
            raise
        except TuningError as error:
            logger.warning("%s: not measured at %s: %s", task.bucket.key, shape, error)
            continue
        yield PointReadings(shape, default, found)
