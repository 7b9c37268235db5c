"""LFBO Pattern Search: a pattern search whose neighbours are chosen by a classifier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.acquisition import Pool
from lfbo_aot.search.expense import CompileTimes
from lfbo_aot.search.expense import FailureForest
from lfbo_aot.search.expense import weigh_by_time
from lfbo_aot.search.pattern_search import PatternSearch
from lfbo_aot.search.peers import experience
from lfbo_aot.search.peers import with_context
from lfbo_aot.search.surrogate import Scores
from lfbo_aot.search.surrogate import Surrogate
from lfbo_aot.search.training import own_rows
from lfbo_aot.search.training import shared_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lfbo_aot.search.copies import Copy
    from lfbo_aot.search.options import LFBOOptions
    from lfbo_aot.search.peers import Peer
    from lfbo_aot.search.space import Point
    from lfbo_aot.search.space import Space
    from lfbo_aot.search.surrogate import FailureModel
    from lfbo_aot.search.trial import Trial

_REMEMBERED = 64  # points picked that new ones must differ from
_ATTEMPTS = 3  # pools drawn before all variations count as tried
_RANDOM_EVERY = 5  # of the points of a start that peers lead, one is random
_FEWER_TREES = 4  # the classifier has so many times the trees of the model of failure
_NO_COPY = (-1, 0)
BY_MODEL = (-1, 1)  # no copy's own either, but ranked by the model


class LFBOPatternSearch(PatternSearch):
    """Draws many variations of the best points and tries those that a classifier calls good.

    The classifier is fitted anew inside `ask`, once enough results have come in since the last fit.
    What is tried shall also be unlike what the model can't know of yet: points outstanding, and
    those picked from the same pool.

    All draw from one pool of variations of the best `copies` points (`walk="shared"`). The search
    ends when model and measurements agree: the last `agree` results that the model had proposed
    brought no gain of `min_delta`; at the latest after `copies` times `patience` results of any
    kind without one. With `walk="copies"` it is the published algorithm: each copy walks on its
    own, in the neighbourhood that pattern search uses too.

    With `peers`, other buckets of the kernel, the classifier is fitted to their trials as well, each
    with its bucket's `context` among the features and good relative to its own bucket. They lead
    the start in place of random points. ValueError if a peer's context is of another length.
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        options: LFBOOptions | None = None,
        *,
        context: Sequence[float] = (),
        peers: Sequence[Peer] = (),
        failure_model: FailureModel | None = None,
    ) -> None:
        super().__init__(space, seed, options, context=context, peers=peers)
        # Drawn from a state of its own: without peers a search is what it was before there were any.
        rng = np.random.Generator(np.random.PCG64([seed, len(self.peers)]))
        self._experience = experience(space, self.context, self.peers, self.options, rng)
        self._opened = 0
        # A model that is put in learns from failures of every kind.
        self._of_timeouts = failure_model is None and self.options.failure == "timeouts"
        if failure_model is None and self.options.failure != "off":
            failure_model = FailureForest(max(1, self.options.trees // _FEWER_TREES))
        self._failure_model = failure_model
        self._compile_times: CompileTimes | None = None
        self._model: Surrogate | None = None
        self._pool: Pool | None = None
        self._anchor_us = math.inf  # what the next gain of the shared walk is measured from
        self._stale = 0  # results since then
        self._agreed = 0  # those of them that the model had proposed
        self._fits = 0
        self._rows_tried = -1  # never

    def _propose(self) -> tuple[Point, tuple[int, int]] | None:
        if self.options.walk == "copies":
            return super()._propose()
        if self._tired():
            return None
        self._refresh()
        for _ in range(_ATTEMPTS):
            if self._pool is None or self._pool.taken >= self._per_pool():
                self._pool = self._pool_around(self._parents())
            point = self._unseen(self._pool)
            if point is not None:
                return point, _NO_COPY if self._model is None else BY_MODEL
            self._pool = None
        drawn = self._random()  # every variation was tried
        return None if drawn is None else (drawn, _NO_COPY)

    def _opening(self) -> tuple[Point, tuple[int, int]] | None:
        """With peers, what they make look good, and now and then a random point."""
        if self._experience is None:
            return super()._opening()
        self._opened += 1
        if self._opened % _RANDOM_EVERY:
            self._refresh()
            if self._pool is None or self._pool.taken >= self._per_pool():
                self._pool = self._pool_around(self._parents())
            point = self._unseen(self._pool)
            if point is not None:
                return point, _NO_COPY
            self._pool = None
        return super()._opening()

    def _tired(self) -> bool:
        """Whether the shared walk has gone on for too long without a gain."""
        agree = self.options.agree
        if agree is not None and self._agreed >= agree:
            return True
        return self._stale >= self.options.patience * self.options.copies

    def _told(self, trial: Trial, owner: tuple[int, int] | None) -> None:
        super()._told(trial, owner)
        if self.options.walk == "copies" or not self._launched:
            return
        best_us = self._history.best.latency_us if self._history.best else None
        if best_us is not None and best_us < self._anchor_us * (1.0 - self.options.min_delta):
            self._anchor_us = best_us
            self._stale = self._agreed = 0
        else:
            self._stale += 1
            self._agreed += owner == BY_MODEL

    def _ended(self) -> bool:
        if self.options.walk == "copies":
            return super()._ended()
        return self._tired() or self._drained

    def _parents(self) -> list[Point]:
        """The points that are varied: the best, before the walk begins those of the peers too."""
        best = [trial.point for trial in self._history.top(self.options.copies)]
        if self._experience is None or self._launched:
            return best
        return list(dict.fromkeys([*best, *self._experience.best]))

    def _pool_around(self, parents: list[Point]) -> Pool:
        """The points and variations of them, those that were seen left out."""
        each = max(1, self.options.neighbours // max(1, len(parents)))
        found = dict.fromkeys(point for point in parents if point not in self._seen)
        for parent in parents:
            drawn = self.space.variations(parent, self._rng, self.options.radius, each)
            found.update((point, None) for point in drawn if point not in self._seen)
        points = list(found)
        if self._model is None or not points:
            return Pool([points[at] for at in self._rng.permutation(len(points))], None)
        return self._scored(points, list(self._outstanding))

    def _refresh(self) -> None:
        rows = len(self._history.latency_us)
        growth = self.options.refit_growth * self._rows_tried
        if self._rows_tried >= 0 and rows - self._rows_tried < max(
            self.options.refit_every, growth
        ):
            return
        self._rows_tried = rows
        self._fit()

    def _fit(self) -> None:
        history = self._history
        if not self.space.width:
            return
        if self._experience is not None:
            rows = shared_rows(history, self.context, self._experience, self.options, self._rng)
        else:
            own = own_rows(history, self.options, self._rng)
            if own is None:
                return
            rows = own
        self._model = Surrogate(
            rows.features,
            rows.good,
            rows.weight,
            trees=self.options.trees,
            random_state=self._random_state(),
        )
        self._fit_expense()
        self._fits += 1
        self._pool = None
        for copy in self._copies or ():
            copy.pool = None

    def _fit_expense(self) -> None:
        """Seeded apart from the walk: where nothing fails, a model of failure changes nothing."""
        history = self._history
        if self._failure_model is not None:
            failed = history.timeout if self._of_timeouts else np.isnan(history.latency_us)
            self._failure_model.fit(history.features, failed, self._fits)
        if self.options.cost != "off" and not np.isnan(history.compile_s).all():
            self._compile_times = CompileTimes(history.features, history.compile_s, self._fits)

    def _encode(self, points: list[Point]) -> NDArray[np.float32]:
        """The points as the model takes them."""
        features = self.space.encode(points)
        return features if self._experience is None else with_context(features, self.context)

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
        features = self._encode([*points, *unlike])
        scores = self._model.score(features)
        split = len(points)
        good = scores.good[:split]
        plain = features[:split, : self.space.width]
        if self._failure_model is not None:
            good = good * (1.0 - self._failure_model.probability(plain))
        if self._compile_times is not None:
            good = weigh_by_time(good, self._compile_times.relative(plain), self.options.cost)
        return Pool(
            points,
            Scores(good, scores.leaves[:split]),
            diversity=self.options.diversity,
            picked=scores.leaves[split:],
        )
