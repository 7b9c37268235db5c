"""What the classifier is fitted to: the bucket's own trials, and what its peers know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.labels import label
from lfbo_aot.search.labels import training_set
from lfbo_aot.search.peers import with_context

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lfbo_aot.search.history import History
    from lfbo_aot.search.options import LFBOOptions
    from lfbo_aot.search.peers import Experience


@dataclass(frozen=True, slots=True)
class Rows:
    """Features (n, width), whether each row is good (n), and its weight (n)."""

    features: NDArray[np.float32]
    good: NDArray[np.bool_]
    weight: NDArray[np.float64]


def own_rows(history: History, options: LFBOOptions, rng: np.random.Generator) -> Rows | None:
    """The bucket's own trials; None while they tell nothing apart."""
    labels = label(history.latency_us, history.cut, options)
    if labels is None:
        return None
    chosen = training_set(labels, history.latency_us, options, rng)
    return Rows(history.features[chosen.rows], chosen.good, chosen.weight)


def shared_rows(
    history: History,
    context: tuple[float, ...],
    peers: Experience,
    options: LFBOOptions,
    rng: np.random.Generator,
) -> Rows:
    """The own trials and the peers', all with their context.

    A row of the bucket's own weighs about 1; the peers' together weigh `peer_weight`, as much as
    so many trials, however many they are. They lead the start and fade as own trials come in. Before
    those can be labelled, the failures among them count as not good.
    """
    room = options.max_training - len(peers.good)
    labels = label(history.latency_us, history.cut, options)
    if labels is not None:
        chosen = training_set(labels, history.latency_us, options, rng, limit=room)
        own = Rows(history.features[chosen.rows], chosen.good, chosen.weight)
    else:
        failed = history.features[np.isnan(history.latency_us)][:room]
        own = Rows(failed, np.zeros(len(failed), dtype=bool), np.ones(len(failed)))
    return Rows(
        np.concatenate([with_context(own.features, context), peers.features]),
        np.concatenate([own.good, peers.good]),
        np.concatenate([own.weight, peers.weight * options.peer_weight]),
    )
