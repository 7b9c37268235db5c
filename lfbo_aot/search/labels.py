"""Which trials are good, and what each weighs: the training set of the classifier.

Likelihood-free Bayesian optimization (Song et al. 2022, "A General Recipe for Likelihood-free
Bayesian Optimization") fits a weighted classifier whose odds are the expected utility of a point
over a threshold; the utility is the weight of a good trial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lfbo_aot.search.options import LFBOOptions


@dataclass(frozen=True, slots=True)
class Labels:
    """Which trials are good (n booleans), and their weights (n floats; 1 where not good)."""

    good: NDArray[np.bool_]
    weight: NDArray[np.float64]
    threshold_us: float


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Rows of trials, a label and a weight for each; a row may occur as good and as not good."""

    rows: NDArray[np.intp]
    good: NDArray[np.bool_]
    weight: NDArray[np.float64]


def label(
    latency_us: NDArray[np.float64], cut: NDArray[np.bool_], options: LFBOOptions
) -> Labels | None:
    """The labels of trials, given latencies (NaN for failures) and which readings were cut short.

    Good are the uncut readings at or under the `quantile` of all readings, failures not counted.
    None where they tell nothing apart: fewer readings than `min_trials`, none good, or all good.
    """
    read = ~np.isnan(latency_us)
    count = int(read.sum())
    if count < options.min_trials:
        return None
    share = max(options.quantile, min(1.0, (options.min_good - 1) / max(1, count - 1)))
    threshold = float(np.quantile(latency_us[read], share))
    good = read & ~cut
    good[read] &= latency_us[read] <= threshold
    if not good.any() or good.all():
        return None
    weight = np.ones(len(latency_us))
    weight[good] = _weigh(latency_us[good], threshold, options)
    return Labels(good, weight, threshold)


def _weigh(
    latency_us: NDArray[np.float64], threshold_us: float, options: LFBOOptions
) -> NDArray[np.float64]:
    """The weights of the good, mean 1; all 1 where the gaps are all zero."""
    if options.weights == "none":
        return np.ones(len(latency_us))
    if options.weights == "log_gap":
        gap = np.log(threshold_us / latency_us)
    else:
        gap = threshold_us - latency_us
    mean = gap.mean()
    return gap / mean if mean > 0 else np.ones(len(latency_us))


def training_set(
    labels: Labels,
    latency_us: NDArray[np.float64],
    options: LFBOOptions,
    rng: np.random.Generator,
    *,
    limit: int | None = None,
) -> TrainingSet:
    """The rows to fit to, at most `limit` trials (else `max_training`), with labels and weights.

    Fitting costs time in proportion to the rows, so a long search would spend its time on fits. Over
    the limit half the rows go to the fastest trials (they hold the good ones), a quarter to the most
    recent (the region that the search is in), and a quarter to a random sample of the rest, whose
    weight grows so that it stands for all of the rest.
    """
    count = len(latency_us)
    limit = options.max_training if limit is None else limit
    weight = labels.weight.copy()
    if count <= limit:
        rows = np.arange(count)
    else:
        rows, factor = _subset(latency_us, limit, rng)
        weight[rows] *= factor
    good = labels.good[rows]
    if options.negatives == "all":
        again = rows[good]
        plain = np.ones(len(again))
        return TrainingSet(
            np.concatenate([rows, again]),
            np.concatenate([good, np.zeros(len(again), dtype=bool)]),
            np.concatenate([weight[rows], plain]),
        )
    return TrainingSet(rows, good, weight[rows])


def _subset(
    latency_us: NDArray[np.float64], limit: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The rows kept, ascending, and the factor on each one's weight."""
    count = len(latency_us)
    fastest = np.argsort(latency_us, kind="stable")[: limit // 2]  # NaN sorts last
    factor = np.zeros(count)
    factor[fastest] = 1.0
    factor[count - limit // 4 :] = 1.0
    rest = np.flatnonzero(factor == 0)
    room = limit - int((factor > 0).sum())
    drawn = rng.choice(rest, size=min(room, len(rest)), replace=False)
    factor[drawn] = len(rest) / max(1, len(drawn))
    rows = np.flatnonzero(factor)
    return rows, factor[rows]
