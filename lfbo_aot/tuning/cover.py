"""The fewest configs that serve all buckets of a kernel, from what each takes in each bucket.

With fewer configs a serving process compiles less. What that costs is a config's regret in a
bucket: its latency over that of the bucket's own best, less 1.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.tuning.regret import SIGMAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Rows = Array
    """Regret of each config (column) in each bucket (row); `_FAILS` where it fails."""

EXACT = 16
"""Up to so many configs, those left out that another beats everywhere, all sets are looked at."""
_FAILS = 1e6  # beyond any regret, and still fit to be summed
_ROUNDING = 1e-9  # 1.02 / 1.0 - 1.0 is more than 0.02


@dataclass(frozen=True, slots=True)
class Cover:
    """Configs that serve all buckets, by their columns; buckets are in the order of the rows."""

    configs: tuple[int, ...]
    assignment: tuple[int | None, ...]
    """For each bucket the column that serves it; None where none of `configs` runs."""
    regrets: tuple[float, ...]
    """For each bucket, upper limits where errors were given; inf where nothing serves it."""
    reached: bool
    """Whether each bucket is served, and within the regret asked for if one was."""

    @property
    def worst_regret(self) -> float:
        """The largest of `regrets`; 0 without buckets."""
        return max(self.regrets, default=0.0)


def smallest_set(
    latency_us: Sequence[Sequence[float | None]],
    *,
    regret: float | None = None,
    most: int | None = None,
    own: Sequence[int] | None = None,
    error: Sequence[Sequence[float]] | None = None,
) -> Cover:
    """The fewest configs with which every bucket is within `regret` of its own best.

    Of several such sets, the one of least worst, then least mean regret. With `most` alone: at most
    so many configs, of least worst, then least mean regret; the fewest of those. With both, the
    former if it needs no more than `most`, else the latter, and `reached` is false. Where `most`
    configs can't serve all buckets, they serve as many as they can. Of equal configs, and where two
    serve a bucket equally well, the first one is taken.

    `latency_us[bucket][config]` is in any unit that is the same along a row, so ratios do as well;
    None or inf where the config fails. `own[bucket]` is the column of the bucket's own best, which
    is the least of its row if left out. `error[bucket][config]` is the standard error of that
    latency over the own best's, as a share. With it a regret is its upper limit, two errors higher:
    "within" is then a promise that poor measurements make dearer, not cheaper.

    Exact for up to `EXACT` configs, by looking at all sets; beyond, greedy with exchanges. Raises
    ValueError on a matrix or limits that make no sense.
    """
    if regret is None and most is None:
        msg = "smallest_set needs regret= or most=, or both"
        raise ValueError(msg)
    if regret is not None and not 0 <= regret < _FAILS:
        msg = f"regret is {regret!r}; it must be a share from 0 up, such as 0.02"
        raise ValueError(msg)
    if most is not None and most < 1:
        msg = f"most is {most!r}; it must be at least 1"
        raise ValueError(msg)
    limit = None if regret is None else regret + _ROUNDING
    rows = _regrets(latency_us, own, error)
    if not rows:
        return Cover((), (), (), reached=True)
    table = np.array(rows)
    columns = _undominated(table)
    search = _exact if len(columns) <= EXACT else _greedy
    chosen = sorted(columns[c] for c in search(table[:, columns], limit, most))
    found = [min(chosen, key=row.__getitem__) for row in rows]
    taken = [row[c] for row, c in zip(rows, found, strict=True)]
    return Cover(
        configs=tuple(chosen),
        assignment=tuple(c if r < _FAILS else None for c, r in zip(found, taken, strict=True)),
        regrets=tuple(r if r < _FAILS else math.inf for r in taken),
        reached=max(taken) < _FAILS if limit is None else max(taken) <= limit,
    )


def _regrets(
    latency_us: Sequence[Sequence[float | None]],
    own: Sequence[int] | None,
    error: Sequence[Sequence[float]] | None,
) -> list[list[float]]:
    width = len(latency_us[0]) if latency_us else 0
    for name, given in (("latency_us", latency_us), ("error", error)):
        if given is not None and [len(row) for row in given] != [width] * len(latency_us):
            msg = f"{name} must have {len(latency_us)} rows of {width} cells, one a config"
            raise ValueError(msg)
    if own is not None and len(own) != len(latency_us):
        msg = f"own has {len(own)} columns; it must have one for each of {len(latency_us)} buckets"
        raise ValueError(msg)
    found = []
    for b, row in enumerate(latency_us):
        cells = [math.inf if us is None or math.isnan(us) else us for us in row]
        best = min(range(width), key=cells.__getitem__, default=0) if own is None else own[b]
        if not 0 <= best < width or min(cells) <= 0 or cells[best] == math.inf:
            msg = f"bucket {b}: latencies must be above 0, and its own best must run there"
            raise ValueError(msg)
        spare = [SIGMAS * e for e in error[b]] if error else [0.0] * width
        spare[best] = 0.0
        limits = (us / cells[best] - 1.0 + more for us, more in zip(cells, spare, strict=True))
        found.append([min(max(limit, 0.0), _FAILS) for limit in limits])
    return found


def _undominated(rows: Rows) -> list[int]:
    """The columns that no other, or no equal one before, is as good as in every bucket."""
    kept = []
    for j in range(rows.shape[1]):
        ours = rows[:, j : j + 1]
        as_good = np.all(rows <= ours, axis=0)
        better = as_good & (rows < ours).any(axis=0)
        if not (better.any() or as_good[:j].any()):
            kept.append(j)
    return kept


def _exact(rows: Rows, limit: float | None, most: int | None) -> list[int]:
    """The best of all sets, each a number whose bits are its columns."""
    count = rows.shape[1]
    worst, total = np.zeros(2**count), np.zeros(2**count)
    size = np.zeros(1, dtype=np.int64)
    for _ in range(count):
        size = np.concatenate([size, size + 1])
    for row in rows:
        least = np.array([_FAILS])
        for value in row:
            least = np.concatenate([least, np.minimum(least, value)])
        worst = np.maximum(worst, least)
        total += least
    sets = np.flatnonzero((size > 0) & (size <= (most or count)))
    keys = (worst, total, size)
    if limit is not None and (within := sets[worst[sets] <= limit]).size:
        sets, keys = within, (size, worst, total)
    for key in keys:
        sets = sets[key[sets] == key[sets].min()]
    return [c for c in range(count) if int(sets[0]) >> c & 1]


def _greedy(rows: Rows, limit: float | None, most: int | None) -> list[int]:
    """A set that no exchange of one config makes better."""
    if limit is not None:
        fewest = _covering(rows, limit)
        if most is None or len(fewest) <= most:
            return _exchanged(rows, fewest)
    most = min(most or rows.shape[1], rows.shape[1])
    grown: list[int] = []
    while len(grown) < most and (added := _best_added(rows, grown)[1]) not in grown:
        grown.append(added)
    # Growing is led by the mean; the least worst regret is looked for by bisection.
    steps = np.unique(rows)
    at = bisect.bisect_left(steps, True, key=lambda step: len(_covering(rows, step)) <= most)
    ends = [_exchanged(rows, start) for start in (grown, _covering(rows, float(steps[at])))]
    return min(ends, key=lambda chosen: (*_cost(rows, chosen), len(chosen)))


def _least(rows: Rows, chosen: Sequence[int]) -> Array:
    """Each bucket's regret when it takes the best of the chosen."""
    least: Array = rows[:, list(chosen)].min(axis=1, initial=_FAILS)
    return least


def _cost(rows: Rows, chosen: Sequence[int]) -> tuple[float, float]:
    """(worst, summed) regret."""
    least = _least(rows, chosen)
    return float(least.max()), float(sum(least))


def _best_added(rows: Rows, chosen: Sequence[int]) -> tuple[tuple[float, float], int]:
    """(cost, column): the column that lowers the cost most by joining the chosen, the first such.

    It may be one of the chosen where none lowers it.
    """
    least = np.minimum(rows, _least(rows, chosen)[:, None])
    worst = least.max(axis=0)
    lowest = np.flatnonzero(worst == worst.min())
    total = sum(least[:, lowest])  # in the rows' order, so that equal sets have equal sums
    best = int(lowest[np.argmin(total)])
    return _cost(rows, [*chosen, best]), best


def _covering(rows: Rows, limit: float) -> list[int]:
    """Few columns with one within `limit` in each row: greedy, then one for two."""
    within = rows <= limit
    chosen: list[int] = []
    left = np.ones(len(rows), dtype=bool)
    while left.any():
        chosen.append(int(np.argmax(within[left].sum(axis=0))))
        left &= ~within[:, chosen[-1]]
    while (smaller := _smaller(chosen, within)) is not None:
        chosen = smaller
    return chosen


def _smaller(chosen: list[int], within: NDArray[np.bool_]) -> list[int] | None:
    """The same cover with one column for two of the chosen, perhaps one of these; None without."""
    for pair in itertools.combinations(chosen, 2):
        rest = [c for c in chosen if c not in pair]
        left = ~within[:, rest].any(axis=1)
        instead = np.flatnonzero(within[left].all(axis=0))
        if instead.size:
            return [*rest, int(instead[0])]
    return None


def _exchanged(rows: Rows, chosen: list[int]) -> list[int]:
    """Swap the best one for one while that helps, then leave out what serves no bucket."""
    cost = _cost(rows, chosen)
    while True:
        rests = [chosen[:i] + chosen[i + 1 :] for i in range(len(chosen))]
        swaps = [(*_best_added(rows, rest), rest) for rest in rests]
        lower, added, rest = min(swaps, key=lambda swap: swap[0])
        if lower >= cost:
            break
        chosen, cost = [*rest, added], lower
    for c in sorted(chosen, reverse=True):
        fewer = [other for other in chosen if other != c]
        if fewer and _cost(rows, fewer) <= cost:
            chosen = fewer
    return chosen
