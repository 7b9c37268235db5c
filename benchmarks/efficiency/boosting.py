"""The first family of truths: gradient boosting, of a value and of failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.ensemble import GradientBoostingRegressor

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHAPE = {"max_depth": 5, "learning_rate": 0.05, "subsample": 0.7, "random_state": 0}


class Boosting:
    """Boosted trees fitted to all trials; `failure` is constant where (nearly) nothing failed."""

    def __init__(
        self,
        rows: NDArray[np.float64],
        values: NDArray[np.float64],
        noise: NDArray[np.float64],
    ) -> None:
        """`rows` (n, width); `values` NaN for failures; `noise`: the values' deviations."""
        failed = np.isnan(values)
        weight = (noise[~failed].min() / noise[~failed]) ** 2
        self._latency = GradientBoostingRegressor(
            n_estimators=600, max_features=0.5, min_samples_leaf=2, **_SHAPE
        ).fit(rows[~failed], values[~failed], sample_weight=weight)
        self._failure: GradientBoostingClassifier | None = None
        if failed.sum() > 1:
            self._failure = GradientBoostingClassifier(
                n_estimators=150, max_features=0.5, min_samples_leaf=2, **_SHAPE
            ).fit(rows, failed)

    def values(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values."""
        found: NDArray[np.float64] = self._latency.predict(rows)
        return found

    def failure(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """How likely each is to fail: a score to compare with a threshold."""
        if self._failure is None:
            return np.zeros(len(rows))
        found: NDArray[np.float64] = self._failure.predict_proba(rows)[:, 1]
        return found
