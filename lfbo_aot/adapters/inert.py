"""Which tunables make no difference for a kernel: found by generating code, which takes no compiler.

Helion offers a value for each load of a kernel, and much else, whether or not a load can use it:
of the layer norm of 4096 x 5120 on an H200 eleven of fourteen tunables' worth of lists, so that six
of ten candidates of a search had code that had been tried before. Whatever changes the code at none
of several points, at each with another value, is taken to change it nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lfbo_aot.search.space import Choice
from lfbo_aot.search.space import Integer
from lfbo_aot.search.space import ListOf

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence

    from lfbo_aot.search.space import Point
    from lfbo_aot.search.space import Space
    from lfbo_aot.search.values import Value

Place = tuple[str, int]

_BASES = 4  # points at which a place is tried, the default among them


def find_inert(
    space: Space,
    digests: Callable[[Sequence[Point]], Sequence[str | None]],
    known: Sequence[Sequence[object]] = (),
) -> tuple[Place, ...]:
    """The inert places of a space (see `Space.inert`).

    `digests` tells the code of points by a digest each; None where there is no code. `known`: what
    was found for another shape of the kernel; if it holds here too, no more is looked for.
    """
    rng = np.random.default_rng(0)
    bases = [space.default, *(space.sample(rng) for _ in range(_BASES - 1))]
    places = [*_whole(space), *_parts(space)]
    trusted = [place for place in places if list(place) in [list(each) for each in known]]
    if trusted and _hold(space, trusted, bases, digests):
        return tuple(trusted)
    left, tries = set(places), dict.fromkeys(places, 0)
    # Two at a time: most places matter at the first, and each round takes the time of a fork.
    for first in range(0, _BASES, 2):
        tried: list[tuple[Place | None, int, Point]] = []
        for number in range(first, first + 2):
            tried.append((None, number, bases[number]))
            changed = ((place, _changed(space, bases[number], place, number)) for place in places)
            tried += [(p, number, point) for p, point in changed if p in left and point is not None]
        found = digests([point for _, _, point in tried])
        codes = {n: code for (p, n, _), code in zip(tried, found, strict=True) if p is None}
        for (place, number, _), code in zip(tried, found, strict=True):
            if place is None or code is None or codes[number] is None:
                continue
            tries[place] += 1
            if code != codes[number]:
                left.discard(place)
    inert = {place for place in left if tries[place] >= 2}  # noqa: PLR2004 - at more than one base
    # Where all of a list makes no difference, its places need no mention.
    lists = {name for name, at in inert if at < 0}
    return tuple(p for p in places if p in inert and (p[1] < 0 or p[0] not in lists))


def _whole(space: Space) -> list[Place]:
    return [(t.name, -1) for t in space.tunables if isinstance(t, Choice | Integer | ListOf)]


def _parts(space: Space) -> list[Place]:
    lists = [t for t in space.tunables if isinstance(t, ListOf)]
    return [(t.name, at) for t in lists for at in range(t.length)]


def _hold(
    space: Space,
    places: Sequence[Place],
    bases: Sequence[Point],
    digests: Callable[[Sequence[Point]], Sequence[str | None]],
) -> bool:
    """Whether all of these places together make no difference, at two bases at least."""
    changed = []
    for number, base in enumerate(bases):
        point = base
        for place in places:
            point = _changed(space, point, place, number) or point
        changed.append(point)
    found = digests([*bases, *changed])
    pairs = list(zip(found[: len(bases)], found[len(bases) :], strict=True))
    told = [(before, after) for before, after in pairs if None not in (before, after)]
    return len(told) >= 2 and all(before == after for before, after in told)  # noqa: PLR2004


def _changed(space: Space, base: Point, place: Place, number: int) -> Point | None:
    """The base with another value at the place, another one for each number; None: none counts."""
    name, at = place
    index = next(i for i, tunable in enumerate(space.tunables) if tunable.name == name)
    tunable, value = space.tunables[index], base[index]
    if isinstance(tunable, ListOf):
        items = list(value)  # type: ignore[arg-type]
        for i in range(tunable.length) if at < 0 else (at,):
            items[i] = _other(tuple(tunable.inner.values()), items[i], number + i)
        value = tuple(items)
    else:
        value = _other(tuple(tunable.values()), value, number)
    changed = space.canonical((*base[:index], value, *base[index + 1 :]))
    return None if changed == base else changed


def _other(choices: Sequence[Value], value: Value, number: int) -> Value:
    others = [other for other in choices if other != value]
    return others[number % len(others)] if others else value
