"""The classifier: how likely a point is to be good, and which points look alike to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_SEED = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Scores:
    """For n points: the probability of being good (n), and the leaf in each tree (n, trees)."""

    good: NDArray[np.float64]
    leaves: NDArray[np.intp]


class FailureModel(Protocol):
    """A model of failure: an optimizer multiplies a point's score by its probability not to fail.

    `expense.FailureForest` is the one that `LFBOOptions.failure` asks for.
    """

    def fit(
        self, features: NDArray[np.float32], failed: NDArray[np.bool_], random_state: int
    ) -> None:
        """Learn from all trials, told as (n, width) features and n booleans."""

    def probability(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """The probability of failing for each of n points."""


class Surrogate:
    """A random forest fitted to weighted labels; it is never changed after that.

    Each tree is grown on as many rows as there are, drawn with replacement, a row's chance being its
    weight, and looks at the root of the number of features at a split. That is what scikit-learn's
    RandomForestClassifier does since 1.9; before, it drew all rows alike and weighed them in the
    tree. Drawn here, a search proposes the same under every version that grows the same trees, and
    a fit takes half the time: the classifier's own checks and copies cost more than its trees.
    """

    def __init__(
        self,
        features: NDArray[np.float32],
        good: NDArray[np.bool_],
        weight: NDArray[np.float64],
        *,
        trees: int,
        random_state: int,
    ) -> None:
        from sklearn.tree import DecisionTreeClassifier  # seconds, which a start can do without

        rng = np.random.RandomState(random_state)
        rows = np.ascontiguousarray(features, dtype=np.float32)
        labels = good.astype(np.float64)
        chance = weight / weight.sum()
        self._trees = []
        for seed in rng.randint(_LARGEST_SEED, size=trees).tolist():
            drawn = np.random.RandomState(seed).choice(len(rows), len(rows), p=chance)
            tree = DecisionTreeClassifier(
                criterion="log_loss", max_features="sqrt", random_state=seed
            )
            counts = np.bincount(drawn, minlength=len(rows)).astype(np.float64)
            tree.fit(rows, labels, sample_weight=counts, check_input=False)
            self._trees.append(tree.tree_)
        self._odds = [_share_of_good(tree.value[:, 0, :]) for tree in self._trees]

    def score(self, features: NDArray[np.float32]) -> Scores:
        """The scores of n points, given as (n, width) features.

        The same numbers as the forest's predict_proba and apply, but each tree is walked once and
        inputs are not validated anew: a third of the time.
        """
        leaves = np.empty((len(features), len(self._trees)), dtype=np.intp)
        good = np.zeros(len(features))
        for at, (tree, odds) in enumerate(zip(self._trees, self._odds, strict=True)):
            leaves[:, at] = tree.apply(features)
            good += odds[leaves[:, at]]
        return Scores(good / len(self._trees), leaves)


def _share_of_good(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each node the share of class 1: older scikit-learn holds weights there, not shares."""
    total = value.sum(axis=1)
    share: NDArray[np.float64] = value[:, 1] / np.where(total > 0, total, 1.0)
    return share
