"""Which of a search's trials are measured again at its end: the fastest, and the fastest of other kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.search import Space
    from lfbo_aot.search import Trial

_FASTEST = 5  # whatever they are like
_WITHIN = 1.15  # of the fastest; what is slower at the tuning point won't win


def finalists(ranked: Sequence[Trial], space: Space, count: int) -> list[Trial]:
    """Up to `count` of the trials, given fastest first.

    The fastest of a search are much alike, and what is fast at the tuning point may be slow at the
    other end of the bucket. So after the first five come the fastest with other block sizes, numbers
    of warps and reduction loops than those taken: the kinds that shapes tell apart.
    """
    chosen = list(ranked[:_FASTEST])
    if not chosen:
        return []
    kinds = {_kind(trial, space) for trial in chosen}
    most_us = _WITHIN * (chosen[0].latency_us or 0.0)
    for trial in ranked[_FASTEST:]:
        if len(chosen) >= count or (trial.latency_us or 0.0) > most_us:
            break
        kind = _kind(trial, space)
        if kind not in kinds:
            kinds.add(kind)
            chosen.append(trial)
    left = [trial for trial in ranked[_FASTEST:] if trial not in chosen]
    return [*chosen, *left[: max(0, count - len(chosen))]][:count]


def _kind(trial: Trial, space: Space) -> tuple[object, ...]:
    pairs = zip(space.tunables, trial.point, strict=True)
    return tuple(value for tunable, value in pairs if tunable.kind == "power_of_two")
