"""Ratios of latencies that were measured in turn, with the interval that they are known to.

A ratio is the median of the ratios within each round, so that what drifts between rounds, drifts
out of it. Intervals are percentiles of a bootstrap: over rounds for one kernel, and over kernels and
their rounds for a geometric mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 2000
_LEVELS = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio and the limits that hold it with 95 % probability."""

    value: float
    lower95: float
    upper95: float


def per_round(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs in each round."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def median_ratio(rounds: Sequence[float]) -> Ratio:
    """The median of the ratios within rounds."""
    import numpy as np

    values = np.asarray(rounds)
    drawn = values[np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))]
    return _ratio(float(np.median(values)), np.median(drawn, axis=1))


def geomean_ratio(kernels: Sequence[Sequence[float]]) -> Ratio:
    """The geometric mean, over kernels, of each one's median ratio within its rounds."""
    import numpy as np

    rng = np.random.default_rng(0)
    values = [np.asarray(rounds) for rounds in kernels]
    sums = np.zeros(RESAMPLES)
    picked = rng.integers(len(values), size=(RESAMPLES, len(values)))
    for place in range(len(values)):
        for kernel, rounds in enumerate(values):
            rows = np.flatnonzero(picked[:, place] == kernel)
            drawn = rounds[rng.integers(len(rounds), size=(len(rows), len(rounds)))]
            sums[rows] += np.log(np.median(drawn, axis=1))
    return _ratio(geomean([float(np.median(v)) for v in values]), np.exp(sums / len(values)))


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _ratio(value: float, drawn: Any) -> Ratio:
    import numpy as np

    lower, upper = np.percentile(drawn, _LEVELS)
    return Ratio(value, float(lower), float(upper))
