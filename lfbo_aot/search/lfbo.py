"""LFBO Pattern Search: a pattern search whose neighbours are chosen by a classifier."""

from __future__ import annotations

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

_REMEMBERED = 64  # points picked that new ones must differ from


class LFBOPatternSearch(PatternSearch):
    """Each copy draws many neighbours and tries those that the classifier calls good, and unlike.

    The classifier is fitted anew inside `ask`, once enough results have come in since the last fit.
    "Unlike" is meant against the copy's own points that the model can't know of yet: those picked
    since the last fit, and those outstanding.
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
        self._fits = 0
        self._rows_tried = 0

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
        unlike = (
            [point for point, _ in copy.picked[-_REMEMBERED:]] if self.options.diversity else []
        )
        features = self.space.encode([*found, *unlike])
        scores = self._model.score(features)
        split = len(found)
        good = scores.good[:split]
        if self._failure_model is not None:
            good = good * (1.0 - self._failure_model.probability(features[:split]))
        return Pool(
            found,
            Scores(good, scores.leaves[:split]),
            diversity=self.options.diversity,
            picked=scores.leaves[split:],
        )
