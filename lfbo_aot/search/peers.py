"""What other buckets of the same kernel know: their trials, as rows for this bucket's model."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.labels import label
from lfbo_aot.search.labels import training_set
from lfbo_aot.search.trial import FAILURES
from lfbo_aot.search.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lfbo_aot.search.options import LFBOOptions
    from lfbo_aot.search.space import Point
    from lfbo_aot.search.space import Space

NEAREST = 8  # peers that are looked at, by their contexts
_SHARE_OF_ROWS = 4  # a quarter of `max_training` is theirs


@dataclass(frozen=True, slots=True)
class Peer:
    """Another bucket of the same kernel: its shape as numbers, and its trials.

    Its points are of a space with the same tunables, whose bounds may differ. ValueError if
    `context` holds anything but finite numbers.
    """

    context: tuple[float, ...]
    trials: tuple[Trial, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", checked_context(self.context))
        object.__setattr__(self, "trials", tuple(self.trials))


@dataclass(frozen=True, slots=True)
class Experience:
    """The peers' trials in one bucket's terms.

    `features` are (n, width + context), with the label and the weight of each row; each peer's
    weights add up to the same, all of them to 1. `best` are the peers' fastest points, a peer's
    first before anyone's second, those of nearer peers before others'.
    """

    features: NDArray[np.float32]
    good: NDArray[np.bool_]
    weight: NDArray[np.float64]
    best: tuple[Point, ...]


def checked_context(context: Sequence[float]) -> tuple[float, ...]:
    """The context as floats; ValueError if one is not a finite number."""
    numbers = tuple(map(float, context))
    if not all(map(math.isfinite, numbers)):
        msg = f"context {tuple(context)!r}: not all of it are finite numbers"
        raise ValueError(msg)
    return numbers


def experience(
    space: Space,
    context: Sequence[float],
    peers: Sequence[Peer],
    options: LFBOOptions,
    rng: np.random.Generator,
) -> Experience | None:
    """What the `NEAREST` peers know of this space's points; None if none of them tells anything.

    A trial is good relative to those of its own bucket that this space has too: what is best there
    among other points can't be tried here. ValueError if a peer's context is of another length.
    """
    own = np.array(context)
    for peer in peers:
        if len(peer.context) != len(own):
            msg = (
                f"a peer's context has {len(peer.context)} numbers, that of the search {len(own)}:"
                " both must describe the shape in the same way"
            )
            raise ValueError(msg)
    nearest = heapq.nsmallest(
        NEAREST, peers, key=lambda peer: float(np.linalg.norm(np.array(peer.context) - own))
    )
    kept = [(peer.context, _here(space, peer.trials)) for peer in nearest]
    limit = max(2, options.max_training // _SHARE_OF_ROWS // max(1, len(kept)))
    found = []
    for of, trials in kept:
        rows = _rows(space, trials, options, limit, rng)
        if rows is not None:
            features, good, weight = rows
            found.append((with_context(features, of), good, weight))
    if not found:
        return None
    leaders = [
        [t.point for t in heapq.nsmallest(options.copies, filter(_timed, trials), key=_latency)]
        for _, trials in kept
    ]
    return Experience(
        np.concatenate([features for features, _, _ in found]),
        np.concatenate([good for _, good, _ in found]),
        np.concatenate([weight / weight.sum() / len(found) for _, _, weight in found]),
        tuple(dict.fromkeys(p for rank in zip_longest(*leaders) for p in rank if p is not None)),
    )


def _here(space: Space, trials: Sequence[Trial]) -> list[Trial]:
    """The trials whose points this space has, by their canonical points; a later reading stands."""
    found: dict[Point, Trial] = {}
    for trial in trials:
        if trial.status == "duplicate":
            continue
        try:
            point = space.canonical(trial.point)
        except ValueError:
            continue
        found[point] = Trial(point, trial.status, trial.latency_us, trial.cut, trial.compile_s)
    return list(found.values())


def _rows(
    space: Space,
    trials: Sequence[Trial],
    options: LFBOOptions,
    limit: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.float64]] | None:
    """One peer's features, labels and weights, at most `limit` rows; None where they tell nothing."""
    latency_us = np.array([np.nan if t.status in FAILURES else t.latency_us for t in trials], float)
    cut = np.array([t.cut and t.status not in FAILURES for t in trials], dtype=bool)
    labels = label(latency_us, cut, options)
    if labels is None or not space.width:
        return None
    chosen = training_set(labels, latency_us, options, rng, limit=limit)
    features = space.encode([trials[at].point for at in chosen.rows])
    return features, chosen.good, chosen.weight


def with_context(features: NDArray[np.float32], context: tuple[float, ...]) -> NDArray[np.float32]:
    """The rows with the context's numbers added to each."""
    added = np.broadcast_to(np.array(context, dtype=np.float32), (len(features), len(context)))
    return np.concatenate([features, added], axis=1)


def _timed(trial: Trial) -> bool:
    return trial.timed


def _latency(trial: Trial) -> float:
    return math.inf if trial.latency_us is None else trial.latency_us
