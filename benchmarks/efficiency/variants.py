"""Variants of LFBOPatternSearch that options can't make: what was tried, docs/search.md says how it went.

None of them is part of the package. Each overrides as little as it can, so that the rest is the
search that is held against it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
from scipy.linalg import cho_factor
from scipy.linalg import cho_solve
from scipy.linalg import solve_triangular
from scipy.special import ndtr
from scipy.special import ndtri
from sklearn.ensemble import RandomForestClassifier
from sklearn.ensemble import RandomForestRegressor

from lfbo_aot.search import LFBOPatternSearch
from lfbo_aot.search.acquisition import Pool
from lfbo_aot.search.surrogate import Scores
from lfbo_aot.search.surrogate import Surrogate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lfbo_aot.search import LFBOOptions
    from lfbo_aot.search import Point
    from lfbo_aot.search import Space
    from lfbo_aot.search import Trial

    Floats = NDArray[np.float64]

_TREES = 50  # of the forests beside the classifier
_LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)  # of a Gaussian process, times the root of the width
_NOISES = (1e-3, 1e-2, 1e-1)
_SHARE_CROSSED = 0.2
_FRESH = 15


class FailureForest:
    """A random forest on failed or not; certain of success while nothing, or all, has failed."""

    def __init__(self) -> None:
        self._model: Any = None

    def fit(self, features: NDArray[np.float32], failed: NDArray[np.bool_], state: int) -> None:
        """Learn from all trials."""
        self._model = None
        if failed.any() and not failed.all():
            forest = RandomForestClassifier(_TREES, max_features="sqrt", random_state=state)
            self._model = forest.fit(features, failed)

    def probability(self, features: NDArray[np.float32]) -> Floats:
        """The probability of failing."""
        if self._model is None:
            return np.zeros(len(features))
        found: Floats = self._model.predict_proba(features)[:, 1]
        return found


def with_failures(space: Space, seed: int, options: LFBOOptions) -> LFBOPatternSearch:
    """The search with a model of failure."""
    return LFBOPatternSearch(space, seed, options, failure_model=FailureForest())


class _Rescored(Surrogate):
    """The classifier's leaves, but another score: a function of its score and the features."""

    def __init__(self, plain: Surrogate, rescore: Any) -> None:
        self._plain = plain
        self._rescore = rescore

    def score(self, features: NDArray[np.float32]) -> Scores:
        """The scores of n points."""
        scores = self._plain.score(features)
        return Scores(self._rescore(scores.good, features), scores.leaves)


class _Remodelled(LFBOPatternSearch):
    """Something else is asked for the score, fitted whenever the classifier is."""

    def _fit(self) -> None:
        before = self._fits
        super()._fit()
        if self._fits != before and self._model is not None:
            self._model = self._remodel(self._model)

    def _remodel(self, plain: Surrogate) -> Surrogate:
        raise NotImplementedError

    def _utility(self) -> Floats:
        """Each trial's share of trials that are slower, 0 for failures; the fastest has nearly 1."""
        latency = self._history.latency_us
        worst = np.where(np.isnan(latency), np.inf, latency)
        place = np.searchsorted(np.sort(worst), worst)  # ties: the least
        return np.where(np.isnan(latency), 0.0, 1.0 - (place + 0.5) / len(latency))


class Cost(_Remodelled):
    """The score over the root of the expected compile time, that of the median trial being 1."""

    power = 0.5

    def __init__(self, space: Space, seed: int, options: LFBOOptions) -> None:
        super().__init__(space, seed, options)
        self._compiled: dict[Point, float] = {}

    def _told(self, trial: Trial, owner: tuple[int, int] | None) -> None:
        super()._told(trial, owner)
        if trial.compile_s is not None:
            self._compiled[trial.point] = math.log(max(trial.compile_s, 1e-3))

    def _remodel(self, plain: Surrogate) -> Surrogate:
        logs = np.array(list(self._compiled.values()))
        rows = self.space.encode(list(self._compiled))
        forest = RandomForestRegressor(_TREES, max_features=0.5, random_state=self._fits)
        forest.fit(rows, logs - np.median(logs))
        return _Rescored(
            plain, lambda good, rows: good * np.exp(-self.power * forest.predict(rows))
        )


class CostInFull(Cost):
    """The same, over the expected compile time itself."""

    power = 1.0


class Ranking(_Remodelled):
    """A regression forest on ranks in place of the classifier; its mean is the score."""

    def _remodel(self, plain: Surrogate) -> Surrogate:  # noqa: ARG002
        forest = RandomForestRegressor(
            self.options.trees, max_features="sqrt", random_state=self._fits
        )
        forest.fit(self._history.features, self._utility())
        return _RankForest(forest)


class _RankForest(Surrogate):
    def __init__(self, forest: Any) -> None:
        self._trees = [tree.tree_ for tree in forest.estimators_]

    def score(self, features: NDArray[np.float32]) -> Scores:
        """Mean ranks, and the leaves of the trees that gave them."""
        leaves = np.stack([tree.apply(features) for tree in self._trees], axis=1)
        each = [tree.value[leaves[:, at], 0, 0] for at, tree in enumerate(self._trees)]
        return Scores(np.mean(each, axis=0), leaves)


class Neighbours(_Remodelled):
    """The weighted share of good ones among the ten nearest trials, nearer ones counting more."""

    nearest = 10

    def _remodel(self, plain: Surrogate) -> Surrogate:
        utility = self._utility()
        good = (utility >= 1.0 - self.options.quantile).astype(np.float64)
        scale = np.maximum(self._history.features.std(axis=0), 1e-6)
        known = self._history.features / scale

        def rescore(_good: Floats, rows: NDArray[np.float32]) -> Floats:
            distance = np.sqrt(((rows[:, None] / scale - known[None]) ** 2).sum(axis=2))
            near = np.argsort(distance, axis=1)[:, : self.nearest]
            weight = 1.0 / (0.1 + np.take_along_axis(distance, near, axis=1))
            found: Floats = (weight * good[near]).sum(axis=1) / weight.sum(axis=1)
            return found

        return _Rescored(plain, rescore)


class Process(_Remodelled):
    """A Gaussian process on normal scores of ranks; the score is the chance to be in the best tenth.

    Matern 3/2 with one length; it and the noise are those of a small grid with the largest marginal
    likelihood. Leaves, for diversity, stay the classifier's.
    """

    def _remodel(self, plain: Surrogate) -> Surrogate:
        utility = self._utility()
        target = ndtri(np.clip(utility, 0.5 / len(utility), 1.0))
        target = (target - target.mean()) / max(float(target.std()), 1e-9)
        scale = np.maximum(self._history.features.std(axis=0), 1e-6) * math.sqrt(self.space.width)
        known = self._history.features / scale
        gaps = _distances(known, known)
        best: tuple[float, float, Any, Floats] | None = None
        for length in _LENGTHS:
            cover = _matern(gaps / length)
            for noise in _NOISES:
                factor = cho_factor(cover + noise * np.eye(len(cover)), lower=True)
                weights = cho_solve(factor, target)
                fit = -0.5 * target @ weights - np.log(np.diag(factor[0])).sum()
                if best is None or fit > best[0]:
                    best = fit, length, factor, weights
        assert best is not None
        _, length, factor, weights = best
        threshold = np.quantile(target, 1.0 - self.options.quantile)

        def rescore(_good: Floats, rows: NDArray[np.float32]) -> Floats:
            cross = _matern(_distances(rows / scale, known) / length)
            half = solve_triangular(factor[0], cross.T, lower=True)
            deviation = np.sqrt(np.maximum(1.0 - (half**2).sum(axis=0), 1e-6))
            found: Floats = ndtr((cross @ weights - threshold) / deviation)
            return found

        return _Rescored(plain, rescore)


def _distances(a: NDArray[Any], b: NDArray[Any]) -> Floats:
    a, b = a.astype(np.float64), b.astype(np.float64)
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2.0 * a @ b.T
    found: Floats = np.sqrt(np.maximum(square, 0.0))
    return found


def _matern(distance: Floats) -> Floats:
    scaled = math.sqrt(3.0) * distance
    found: Floats = (1.0 + scaled) * np.exp(-scaled)
    return found


class Thompson(LFBOPatternSearch):
    """Each pick is scored by one tree drawn anew, the whole forest deciding between equals."""

    drawn = 1

    def _scored(self, points: list[Point], unlike: list[Point]) -> Pool:
        pool = super()._scored(points, unlike)
        assert self._model is not None
        assert pool._scores is not None  # noqa: SLF001
        odds = self._model._odds  # noqa: SLF001
        leaves = pool._scores.leaves  # noqa: SLF001
        each = np.stack([odd[leaves[:, at]] for at, odd in enumerate(odds)], axis=1)
        return _DrawnPool(pool, each, self.drawn, np.random.default_rng(self._random_state()))


class ThompsonTen(Thompson):
    """The same with ten trees a pick."""

    drawn = 10


class _DrawnPool(Pool):
    def __init__(self, pool: Pool, each: Floats, drawn: int, rng: np.random.Generator) -> None:
        self.__dict__.update(pool.__dict__)
        assert pool._scores is not None  # noqa: SLF001
        self._mean = pool._scores.good  # noqa: SLF001
        self._each = each
        self._drawn = drawn
        self._rng = rng

    def pick(self) -> Point | None:
        """The best candidate left by trees drawn for this pick."""
        assert self._scores is not None
        drawn = self._rng.integers(self._each.shape[1], size=self._drawn)
        good = self._each[:, drawn].mean(axis=1) + 1e-3 * self._mean
        self._scores = Scores(good, self._scores.leaves)
        return super().pick()


class Crossover(LFBOPatternSearch):
    """A fifth of the pool takes each tunable from one of two of the best points."""

    def _pool_around(self, parents: list[Point]) -> Pool:
        crossed = round(_SHARE_CROSSED * self.options.neighbours) if len(parents) > 1 else 0
        each = max(1, (self.options.neighbours - crossed) // max(1, len(parents)))
        drawn: list[Point] = []
        for parent in parents:
            drawn += self.space.variations(parent, self._rng, self.options.radius, each)
        for _ in range(crossed):
            one, other = self._rng.choice(len(parents), 2, replace=False)
            first = self._rng.random(len(self.space.tunables)) < 0.5
            pairs = zip(first, parents[one], parents[other], strict=True)
            drawn.append(self.space.canonical([a if at else b for at, a, b in pairs]))
        points = list(dict.fromkeys(point for point in drawn if point not in self._seen))
        if self._model is None or not points:
            return Pool([points[at] for at in self._rng.permutation(len(points))], None)
        return self._scored(points, list(self._outstanding))


class Restarts(LFBOPatternSearch):
    """Where the shared walk would end, it starts anew at 15 random points, with what was learnt.

    The new walk varies the best of its own points, and ends as the first did, by its own best.
    """

    def __init__(self, space: Space, seed: int, options: LFBOOptions) -> None:
        super().__init__(space, seed, options)
        self._walk = 0
        self._fresh = 0
        self._own: list[Trial] = []
        self._quiet = 0
        self._own_best_us = math.inf

    def _tired(self) -> bool:
        return False

    def _propose(self) -> tuple[Point, tuple[int, int]] | None:
        if self._quiet >= self.options.patience * self.options.copies:
            self._walk += 1
            self._fresh = _FRESH
            self._own, self._quiet, self._own_best_us = [], 0, math.inf
            self._pool = None
        found: tuple[Point, Any] | None
        if self._walk and (self._fresh or not self._own):
            self._fresh = max(0, self._fresh - 1)
            drawn = self._random()
            found = None if drawn is None else (drawn, None)
        else:
            found = super()._propose()
        return None if found is None else (found[0], (-1, self._walk))

    def _told(self, trial: Trial, owner: tuple[int, int] | None) -> None:
        super()._told(trial, owner)
        if not self._launched or (self._walk and (owner is None or owner[1] != self._walk)):
            return
        best_us = trial.latency_us if trial.timed else None
        if not self._walk:
            best_us = self._history.best.latency_us if self._history.best else None
        elif best_us is not None:
            self._own.append(trial)
        if best_us is not None and best_us < self._own_best_us * (1.0 - self.options.min_delta):
            self._own_best_us = best_us
            self._quiet = 0
        else:
            self._quiet += 1

    def _parents(self) -> list[Point]:
        if not self._walk:
            return super()._parents()
        best = sorted(self._own, key=lambda t: t.latency_us or math.inf)[: self.options.copies]
        return [trial.point for trial in best]
