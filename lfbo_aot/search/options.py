"""What a search may be told to do differently. docs/search.md says why the defaults are what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from typing import TypeAlias
from typing import get_args

Weights: TypeAlias = Literal["log_gap", "raw_gap", "none"]
Negatives: TypeAlias = Literal["others", "all"]
Failure: TypeAlias = Literal["off", "timeouts", "all"]
Cost: TypeAlias = Literal["off", "ties", "rate"]
Walk: TypeAlias = Literal["shared", "copies"]

_CHOICES = {
    "weights": Weights,
    "negatives": Negatives,
    "failure": Failure,
    "cost": Cost,
    "walk": Walk,
}
_START = 15
_MAY_BE_NONE = ("max_trials", "n_initial", "agree")
_LEAST = {
    "max_failures": 1,
    "min_trials": 2,
    "min_good": 1,
    "trees": 1,
    "max_training": 20,
    "refit_every": 1,
    "copies": 1,
    "neighbours": 1,
    "radius": 1,
    "patience": 1,
    "agree": 1,
    "max_trials": 1,
    "n_initial": 1,
}


@dataclass(frozen=True, slots=True)
class LFBOOptions:
    """The options of a search; each optimizer reads those that concern it. ValueError if unusable.

    The start
        `max_trials`: points that `ask` gives at most, None for no limit. `n_initial`: points tried
        before neighbours are, the default and the seeds among them; None for 15, or a quarter of
        `max_trials` if that is less (but 10, if there are so many). `launch_share`: share of them
        that must be told before that; until then `ask` goes on with random points.
        `max_failures`: the search gives up after so many trials of which none succeeded.
    Labels and weights
        `quantile`: share of the readings that is good. `min_trials`: readings needed for labels.
        `min_good`: good trials at least. `weights`: a good trial weighs ln(threshold/latency)
        (`log_gap`), threshold - latency (`raw_gap`), both scaled to mean 1, or 1 (`none`).
        `negatives`: the trials that aren't good (`others`), or `all`, good ones too (Song's loss).
    The model
        `trees`; `max_training`: rows to fit to at most; `refit_every` results, or `refit_growth`
        times the rows of the last fit if that is more, lead to a new fit. `peer_weight`: as many
        own trials as all trials of the peers together weigh.
    What trying a point may cost
        `failure`: a candidate's score is multiplied by its probability not to be killed at a
        deadline (`timeouts`), or not to fail in any way (`all`); `off`: by nothing. `cost`:
        expected compile time decides between candidates of nearly equal score (`ties`), or the
        score is divided by it where it is more than twice the usual (`rate`).
    The walk
        `walk`: neighbours of the best `copies` points in one pool (`shared`), or `copies` that walk
        each on its own, as published (`copies`; pattern search always walks so). A pool, or a copy,
        draws `neighbours` with `radius`, has the best `share` of them tried, then draws anew. A
        copy ends after `patience` results without a gain of `min_delta` (relative), the shared walk
        after `copies` times as many, or after `agree` results without one that the model had
        proposed, which is sooner; None turns that off. `diversity`: how much likeness to points
        already picked costs; 0 turns it off.
    """

    max_trials: int | None = None
    n_initial: int | None = None
    launch_share: float = 0.5
    max_failures: int = 500
    quantile: float = 0.1
    min_trials: int = 15
    min_good: int = 1
    weights: Weights = "log_gap"
    negatives: Negatives = "others"
    trees: int = 100
    max_training: int = 2000
    peer_weight: float = 30.0
    refit_every: int = 10
    refit_growth: float = 0.05
    copies: int = 5
    neighbours: int = 300
    share: float = 0.1
    radius: int = 2
    patience: int = 60
    agree: int | None = 90
    min_delta: float = 0.005
    diversity: float = 1.0
    failure: Failure = "timeouts"
    cost: Cost = "off"
    walk: Walk = "shared"

    def __post_init__(self) -> None:
        for name, low in _LEAST.items():
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if type(value) is not int or value < low:
                self._refuse(name, f"an integer of at least {low}")
        for name in ("launch_share", "quantile", "share"):
            if not 0 < getattr(self, name) <= 1:
                self._refuse(name, "more than 0 and at most 1")
        for name in ("refit_growth", "min_delta", "diversity", "peer_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                self._refuse(name, "0 or more")
        for name, kind in _CHOICES.items():
            if getattr(self, name) not in get_args(kind):
                self._refuse(name, "one of " + ", ".join(get_args(kind)))

    def _refuse(self, name: str, wanted: str) -> None:
        msg = f"option {name}={getattr(self, name)!r}: must be {wanted}"
        raise ValueError(msg)

    @property
    def start_points(self) -> int:
        """How many points are tried before neighbours are."""
        if self.n_initial is not None:
            return self.n_initial
        if self.max_trials is None:
            return _START
        return min(_START, max(10, self.max_trials // 4))
