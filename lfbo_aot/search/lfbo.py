"""LFBO Pattern Search: a pattern search whose neighbours are chosen by a classifier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.acquisition import Pool
from lfbo_aot.search.labels import label
from lfbo_aot.search.labels import training_set
from lfbo_aot.search.pattern_search import PatternSearch
from lfbo_aot.search.surrogate import Scores
from lfbo_aot.search.surrogate import Surrogate

if TYPE_CHECKING:
    from lfbo_aot.search.copies import Copy
    from lfbo_aot.search.options import LFBOOptions
    from lfbo_aot.search.space import Point
    from lfbo_aot.search.space import Space
    from lfbo_aot.search.surrogate import FailureModel
    from lfbo_aot.search.trial import Trial

_REMEMBERED = 64  # points picked that new ones must differ from
_ATTEMPTS = 3  # pools drawn before all variations count as tried
_NO_COPY = (-1, 0)


class LFBOPatternSearch(PatternSearch):
    """Draws many variations of the best points and tries those that a classifier calls good.

    The classifier is fitted anew inside `ask`, once enough results have come in since the last fit.
    What is tried shall also be unlike what the model can't know of yet: points outstanding, and
    those picked from the same pool.

    All draw from one pool of variations of the best `copies` points (`walk="shared"`). The search
    ends after `copies` times `patience` results without a gain of `min_delta`. With `walk="copies"`
    it is the published algorithm: each copy walks on its own, in the neighbourhood that pattern
    search uses too.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: LFBOOptions | None = None,
        *,
        failure_model: FailureModel | None = None,
    ) -> None:
        super().__init__(space, seed, options)
        self._failure_model = failure_model
        self._model: Surrogate | None = None
        self._pool: Pool | None = None
        self._anchor_us = math.inf  # what the next gain of the shared walk is measured from
        self._stale = 0
        self._fits = 0
        self._rows_tried = 0

    def _propose(self) -> tuple[Point, tuple[int, int]] | None:
        if self.options.walk == "copies":
            return super()._propose()
        if self._tired():
            return None
        self._refresh()
        for _ in range(_ATTEMPTS):
            if self._pool is None or self._pool.taken >= self._per_pool():
                self._pool = self._shared_pool()
            point = self._unseen(self._pool)
            if point is not None:
                return point, _NO_COPY
            self._pool = None
        drawn = self._random()  # every variation was tried
        return None if drawn is None else (drawn, _NO_COPY)

    def _tired(self) -> bool:
        """Whether the shared walk has gone on for too long without a gain."""
        return self._stale >= self.options.patience * self.options.copies

    def _told(self, trial: Trial, owner: tuple[int, int] | None) -> None:
        super()._told(trial, owner)
        if self.options.walk == "copies" or not self._launched:
            return
        best_us = self._history.best.latency_us if self._history.best else None
        if best_us is not None and best_us < self._anchor_us * (1.0 - self.options.min_delta):
            self._anchor_us = best_us
            self._stale = 0
        else:
            self._stale += 1

    def _ended(self) -> bool:
        if self.options.walk == "copies":
            return super()._ended()
        return self._tired() or self._drained

    def _shared_pool(self) -> Pool:
        """Variations of the best points, those that were seen left out."""
        parents = self._history.top(self.options.copies)
        each = max(1, self.options.neighbours // max(1, len(parents)))
        found: dict[Point, None] = {}
        for parent in parents:
            drawn = self.space.variations(parent.point, self._rng, self.options.radius, each)
            found.update((point, None) for point in drawn if point not in self._seen)
        points = list(found)
        if self._model is None or not points:
            return Pool([points[at] for at in self._rng.permutation(len(points))], None)
        return self._scored(points, list(self._outstanding))

    def _refresh(self) -> None:
        rows = len(self._history.latency_us)
        growth = self.options.refit_growth * self._rows_tried
        if rows - self._rows_tried < max(self.options.refit_every, growth) and self._rows_tried:
            return
        self._rows_tried = rows
        self._fit()

    def _fit(self) -> None:
        history = self._history
        labels = label(history.latency_us, history.cut, self.options)
        if labels is None or not self.space.width:
            return
        chosen = training_set(labels, history.latency_us, self.options, self._rng)
        self._model = Surrogate(
            history.features[chosen.rows],
            chosen.good,
            chosen.weight,
            trees=self.options.trees,
            random_state=self._random_state(),
        )
        if self._failure_model is not None:
            failed = np.isnan(history.latency_us)
            self._failure_model.fit(history.features, failed, self._random_state())
        self._fits += 1
        self._pool = None
        for copy in self._copies or ():
            copy.pool = None

    def _random_state(self) -> int:
        return int(self._rng.integers(2**31 - 1))

    def _pick(self, copy: Copy) -> Point | None:
        point = super()._pick(copy)
        if point is not None:
            copy.picked.append((point, self._fits))
        return point

    def _new_pool(self, copy: Copy) -> Pool:
        found = self._candidates(copy, self.options.neighbours)
        if self._model is None or not found:
            return Pool(found, None)
        copy.picked = [
            (point, fit)
            for point, fit in copy.picked
            if fit == self._fits or point in self._outstanding
        ]
        return self._scored(found, [point for point, _ in copy.picked[-_REMEMBERED:]])

    def _scored(self, points: list[Point], unlike: list[Point]) -> Pool:
        """The points with their scores; those picked shall be unlike the others given."""
        assert self._model is not None  # noqa: S101
        if not self.options.diversity:
            unlike = []
        features = self.space.encode([*points, *unlike])
        scores = self._model.score(features)
        split = len(points)
        good = scores.good[:split]
        if self._failure_model is not None:
            good = good * (1.0 - self._failure_model.probability(features[:split]))
        return Pool(
            points,
            Scores(good, scores.leaves[:split]),
            diversity=self.options.diversity,
            picked=scores.leaves[split:],
        )
