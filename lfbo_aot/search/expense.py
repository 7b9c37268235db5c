"""What trying a point may cost: the chance that it fails, and how long it takes to compile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from lfbo_aot.search.surrogate import Surrogate

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TREES = 50  # of compile times
_TIE = 0.01  # of a probability, for each doubling of the time
_DEAR = 2.0  # times the median, and more
_FEWEST = 3  # failures, before a model of them says anything
_LARGEST_SEED = np.iinfo(np.int32).max


class FailureForest:
    """A random forest on failed or not; certain of success until a few points have failed."""

    def __init__(self, trees: int = 25) -> None:
        self._trees = trees
        self._model: Surrogate | None = None

    def fit(
        self, features: NDArray[np.float32], failed: NDArray[np.bool_], random_state: int
    ) -> None:
        """Learn from all trials, told as (n, width) features and n booleans."""
        self._model = None
        if failed.sum() >= _FEWEST and not failed.all():
            weight = np.ones(len(failed))
            self._model = Surrogate(
                features, failed, weight, trees=self._trees, random_state=random_state
            )

    def probability(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """The probability of failing for each of n points."""
        if self._model is None:
            return np.zeros(len(features))
        return self._model.score(features).good


class CompileTimes:
    """Expected compile times relative to the median one: regression trees on their logarithms."""

    def __init__(
        self, features: NDArray[np.float32], compile_s: NDArray[np.float64], state: int
    ) -> None:
        """`compile_s`: seconds, NaN where unknown; at least one is known."""
        known = ~np.isnan(compile_s)
        rows = np.ascontiguousarray(features[known], dtype=np.float32)
        logs = np.log(np.maximum(compile_s[known], 1e-3))
        logs -= np.median(logs)
        rng = np.random.RandomState(state)
        self._trees = []
        for seed in rng.randint(_LARGEST_SEED, size=_TREES).tolist():
            drawn = np.random.RandomState(seed).randint(len(rows), size=len(rows))
            counts = np.bincount(drawn, minlength=len(rows)).astype(np.float64)
            tree = DecisionTreeRegressor(max_features=0.5, min_samples_leaf=2, random_state=seed)
            tree.fit(rows, logs, sample_weight=counts, check_input=False)
            self._trees.append(tree.tree_)

    def relative(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """For each of n points its expected time over the median trial's, geometric mean of trees."""
        logs = np.mean([tree.predict(features)[:, 0] for tree in self._trees], axis=0)
        found: NDArray[np.float64] = np.exp(logs)
        return found


def weigh_by_time(
    score: NDArray[np.float64], relative: NDArray[np.float64], cost: str
) -> NDArray[np.float64]:
    """Scores with expected compile times taken into account, relative to the median trial's.

    `ties`: a doubling costs a hundredth, which decides only between nearly equal scores. `rate`:
    the score per time, but only what takes more than twice the median loses by it.
    """
    if cost == "ties":
        return score - _TIE * np.log2(relative)
    return score / np.maximum(1.0, relative / _DEAR)
