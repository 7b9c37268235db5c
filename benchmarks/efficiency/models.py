"""Recorded trials as training data, the families of models, and how well they foretell."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold

from benchmarks.efficiency.boosting import Boosting
from benchmarks.efficiency.features import features
from benchmarks.efficiency.gaussian import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.recorded import Recording
    from lfbo_aot.search import Point

FAMILIES: dict[str, Any] = {"boosting": Boosting, "gaussian": Gaussian}
# Deviations of a reading's logarithm. Configs recorded twice (two of them, 78 launches) differ by
# 3.3 and 3.8 %, a deviation of 2.5 % each; a first look of 3 launches is rougher.
FULL_NOISE = 0.025
QUICK_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Known:
    """A recording's distinct points and what is known of them; arrays by point."""

    points: tuple[Point, ...]
    rows: NDArray[np.float64]
    log_latency: NDArray[np.float64]  # of microseconds; NaN for failures
    noise: NDArray[np.float64]
    status: tuple[str, ...]
    compile_s: NDArray[np.float64]


def to_gap_root(log_latency: NDArray[np.float64]) -> NDArray[np.float64]:
    """The root of the logarithmic gap to the fastest: what the models are fitted to.

    Near the fastest a root spreads out what is slower by a few per cent, on which a search's end
    turns; and it makes of the fastest recorded a floor, as the memory's or the multipliers' rate is
    one, where a model of plain logarithms finds combinations faster than the device can be.
    """
    found: NDArray[np.float64] = np.sqrt(np.maximum(log_latency - np.nanmin(log_latency), 0.0))
    return found


def from_gap_root(root: NDArray[np.float64], fastest: float) -> NDArray[np.float64]:
    """Logarithms of latencies from what a model says; `fastest` is the logarithm of the fastest."""
    return fastest + np.maximum(root, 0.0) ** 2


def root_noise(root: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """The deviation of a root, given that of its logarithm; a root of nearly 0 isn't exact."""
    found: NDArray[np.float64] = noise / np.maximum(2 * np.nan_to_num(root), 0.3)
    return found


def known(recording: Recording) -> Known:
    """The recording with repeated points as one, its latency their median, failures told apart."""
    by_point: dict[Point, list[Any]] = {}
    for trial in recording.trials:
        by_point.setdefault(recording.space.canonical(trial.point), []).append(trial)
    usual = statistics.median(
        trial.compile_s for trial in recording.trials if trial.compile_s is not None
    )
    log_latency, noise, status, compile_s = [], [], [], []
    for trials in by_point.values():
        ok = [trial for trial in trials if trial.status == "ok"]
        full = [trial for trial in ok if not trial.cut] or ok
        latency = statistics.median(t.latency_us for t in full) if full else None
        log_latency.append(np.log(latency) if latency else np.nan)
        noise.append(QUICK_NOISE if not full or full[0].cut else FULL_NOISE)
        status.append("ok" if full else trials[0].status)
        timeout = status[-1] == "compile_timeout"
        seconds = [t.compile_s for t in trials if t.compile_s is not None]
        compile_s.append(8.0 if timeout else min(seconds[0], 8.0) if seconds else usual)
    points = tuple(by_point)
    return Known(
        points,
        features(recording.space, points),
        np.array(log_latency),
        np.array(noise),
        tuple(status),
        np.array(compile_s),
    )


class Model:
    """A model of one family, of a recording's trials or of some of them."""

    def __init__(self, family: str, data: Known, chosen: NDArray[np.intp] | slice) -> None:
        rows, log_latency = data.rows[chosen], data.log_latency[chosen]
        self._fastest = float(np.nanmin(log_latency))
        root = to_gap_root(log_latency)
        self._fitted = FAMILIES[family](rows, root, root_noise(root, data.noise[chosen]))

    def log_latency(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The logarithms of latencies."""
        return from_gap_root(self._fitted.values(rows), self._fastest)

    def failure(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """How likely each is to fail: a score to compare with a threshold."""
        found: NDArray[np.float64] = self._fitted.failure(rows)
        return found


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What models that haven't seen a point say of it, for every point, by five folds."""

    log_latency: NDArray[np.float64]
    failure: NDArray[np.float64]


def held_out(family: str, data: Known) -> HeldOut:
    """Five-fold predictions; lengths of the processes are chosen anew in each fold."""
    log_latency, failure = np.zeros(len(data.points)), np.zeros(len(data.points))
    for train, test in KFold(5, shuffle=True, random_state=0).split(data.rows):
        model = Model(family, data, train)
        log_latency[test] = model.log_latency(data.rows[test])
        failure[test] = model.failure(data.rows[test])
    return HeldOut(log_latency, failure)


def quality(family: str, data: Known) -> dict[str, float | None]:
    """R2 and rank correlation of logarithms, the rank correlation of the faster half, failures' AUC."""
    out = held_out(family, data)
    failed = np.isnan(data.log_latency)
    truth, told = data.log_latency[~failed], out.log_latency[~failed]
    fast = truth <= np.median(truth)
    auc = None
    if 5 <= failed.sum() < len(failed):
        auc = float(roc_auc_score(failed, out.failure))
    return {
        "points": len(data.points),
        "failures": int(failed.sum()),
        "r2": float(1 - ((truth - told) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()),
        "rank": float(spearmanr(truth, told).statistic),
        "rank_of_faster_half": float(spearmanr(truth[fast], told[fast]).statistic),
        "failure_auc": auc,
    }


def threshold(family: str, data: Known) -> float:
    """The score from which a point fails, so that held out as many fail as did."""
    failed = np.isnan(data.log_latency)
    if not failed.any():
        return float("inf")
    scores = held_out(family, data).failure
    return float(np.sort(scores)[-int(failed.sum())])
