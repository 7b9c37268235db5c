"""A search space: tunables, the conditions between them, and what a search asks of a space."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from typing import TypeAlias

import numpy as np

from lfbo_aot.search.neighbourhood import Neighbourhood
from lfbo_aot.search.sampling import sample_values
from lfbo_aot.search.scalars import Choice
from lfbo_aot.search.scalars import Integer
from lfbo_aot.search.scalars import PowerOfTwo
from lfbo_aot.search.sequences import ListOf
from lfbo_aot.search.sequences import Permutation
from lfbo_aot.search.spacefile import space_from_json
from lfbo_aot.search.spacefile import space_to_json
from lfbo_aot.search.values import Json
from lfbo_aot.search.values import Tunable
from lfbo_aot.search.values import Value
from lfbo_aot.search.values import same
from lfbo_aot.search.variation import Variation

__all__ = [
    "Choice",
    "Condition",
    "Integer",
    "ListOf",
    "Permutation",
    "Point",
    "PowerOfTwo",
    "Space",
    "Tunable",
    "Value",
]

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from collections.abc import Mapping
    from collections.abc import Sequence

    from numpy.typing import NDArray

# One value for each tunable, in the space's order, lists as tuples: hashable.
Point: TypeAlias = tuple[Value, ...]

_FEATURES_KEPT = 50_000


@dataclass(frozen=True, slots=True)
class Condition:
    """`name` counts only where `parent` is active and holds one of `values`."""

    name: str
    parent: str
    values: tuple[Value, ...]


@dataclass(frozen=True)  # no slots: cached properties need a __dict__
class Space:
    """The points that a search may try. ValueError where the parts don't fit together.

    `default` and `seeds` are brought to canonical form. Of a tunable with several conditions all
    must hold. Two points that differ only in inactive tunables are one point. `inert` names places
    that make no difference anywhere, as (tunable, place in its list; -1 for all of it): they keep
    the value that they have in `default`.
    """

    tunables: tuple[Tunable, ...]
    default: Point
    conditions: tuple[Condition, ...] = ()
    seeds: tuple[Point, ...] = ()
    inert: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tunables", tuple(self.tunables))
        if len(self._index) != len(self.tunables):
            names = [tunable.name for tunable in self.tunables]
            twice = sorted({name for name in names if names.count(name) > 1})
            msg = f"tunables are named twice: {', '.join(twice)}"
            raise ValueError(msg)
        object.__setattr__(self, "conditions", tuple(map(self._check_condition, self.conditions)))
        object.__setattr__(self, "default", self.check(self.default))
        object.__setattr__(self, "inert", tuple(map(self._check_inert, self.inert)))
        object.__setattr__(self, "default", self.canonical(self.default))
        seeds = dict.fromkeys(self.canonical(seed) for seed in self.seeds)
        object.__setattr__(self, "seeds", tuple(seeds))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {tunable.name: at for at, tunable in enumerate(self.tunables)}

    def _check_condition(self, condition: Condition) -> Condition:
        for name in (condition.name, condition.parent):
            if name not in self._index:
                msg = f"condition on {condition.name!r}: no tunable is named {name!r}"
                raise ValueError(msg)
        parent = self.tunables[self._index[condition.parent]]
        values = tuple(parent.check(value) for value in condition.values)
        return Condition(condition.name, condition.parent, values)

    def _check_inert(self, place: Sequence[object]) -> tuple[str, int]:
        name, at = place
        tunable = self.tunables[self._index[name]] if name in self._index else None
        length = getattr(tunable, "length", 0) if isinstance(tunable, ListOf) else 0
        if tunable is None or type(at) is not int or not -1 <= at < length:
            msg = f"inert {name!r}, {at!r}: no tunable has this name, or no such place"
            raise ValueError(msg)
        return str(name), at

    @cached_property
    def _kept(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Of each tunable with inert places its index and those places; (-1,) for all."""
        places: dict[int, list[int]] = {}
        for name, at in self.inert:
            places.setdefault(self._index[name], []).append(at)
        return tuple((index, (-1,) if -1 in at else tuple(at)) for index, at in places.items())

    @cached_property
    def _gates(self) -> tuple[tuple[int, tuple[tuple[int, tuple[Value, ...]], ...]], ...]:
        """For each conditional tunable its (parent, values), parents before children."""
        wanted: dict[int, list[tuple[int, tuple[Value, ...]]]] = {}
        for condition in self.conditions:
            gate = (self._index[condition.parent], condition.values)
            wanted.setdefault(self._index[condition.name], []).append(gate)
        ordered = []
        while wanted:
            ready = [at for at, gates in wanted.items() if not any(p in wanted for p, _ in gates)]
            if not ready:
                names = ", ".join(self.tunables[at].name for at in wanted)
                msg = f"conditions go in a circle among {names}"
                raise ValueError(msg)
            ordered += [(at, tuple(wanted.pop(at))) for at in ready]
        return tuple(ordered)

    def active(self, point: Point) -> tuple[bool, ...]:
        """For each tunable, whether it counts at this point."""
        flags = [True] * len(self.tunables)
        for at, gates in self._gates:
            flags[at] = all(
                flags[parent] and any(same(point[parent], value) for value in values)
                for parent, values in gates
            )
        for at, places in self._kept:
            flags[at] = flags[at] and places != (-1,)
        return tuple(flags)

    def check(self, point: Sequence[object]) -> Point:
        """The point with each value in its tunable's spelling; ValueError names what doesn't fit."""
        if len(point) != len(self.tunables):
            msg = f"a point of this space has {len(self.tunables)} values, not {len(point)}"
            raise ValueError(msg)
        return tuple(t.check(value) for t, value in zip(self.tunables, point, strict=True))

    def canonical(self, point: Sequence[object]) -> Point:
        """The checked point with inactive tunables at their defaults."""
        return self._settle(self.check(point))

    def _settle(self, point: Point) -> Point:
        # Before: what is conditional on a tunable that is kept depends on the value that it keeps.
        point = self._keep(point)
        if not self._gates:
            return point
        flags = self.active(point)
        kept = zip(self.tunables, point, flags, strict=True)
        return self._keep(tuple(value if on else tunable.default for tunable, value, on in kept))

    def _keep(self, point: Point) -> Point:
        """The point with inert places as they are in the default one."""
        if not self._kept:
            return point
        values = list(point)
        for index, places in self._kept:
            standard = self.default[index]
            if places == (-1,):
                values[index] = standard
                continue
            items = list(values[index])  # type: ignore[arg-type]
            for at in places:
                items[at] = standard[at]  # type: ignore[index]
            values[index] = tuple(items)
        return tuple(values)

    @cached_property
    def size(self) -> int:
        """How many values the tunables combine to: the number of points, if nothing is conditional."""
        return math.prod(tunable.size for tunable in self.tunables)

    @cached_property
    def count(self) -> int:
        """How many distinct points there are; lists them all: for small spaces."""
        return sum(1 for _ in self.points())

    def points(self) -> Iterator[Point]:
        """Every point once, in a fixed order: for small spaces."""
        found = dict.fromkeys(
            map(self._settle, itertools.product(*(tuple(t.values()) for t in self.tunables)))
        )
        return iter(found)

    def sample(self, rng: np.random.Generator) -> Point:
        """A random point whose block sizes fit the warps; see `sampling`."""
        return self._settle(sample_values(self.tunables, rng))

    def neighbours(
        self, point: Point, rng: np.random.Generator, radius: int, count: int = 1
    ) -> list[Point]:
        """Up to `count` distinct random neighbours of a canonical point; see `neighbourhood`."""
        around = Neighbourhood(self.tunables, point, self.active(point), radius)
        drawn = dict.fromkeys(map(self._settle, around.draw(rng, count)))
        drawn.pop(point, None)
        return list(drawn)

    def variations(
        self, point: Point, rng: np.random.Generator, radius: int, count: int = 1
    ) -> list[Point]:
        """Up to `count` distinct random variations of a canonical point; see `variation`."""
        around = Variation(self.tunables, point, self.active(point), radius)
        drawn = dict.fromkeys(map(self._settle, around.draw(rng, count)))
        drawn.pop(point, None)
        return list(drawn)

    @cached_property
    def width(self) -> int:
        """How many features a point has."""
        return sum(tunable.width for tunable in self.tunables)

    @cached_property
    def _features(self) -> tuple[dict[Value, tuple[float, ...]], ...]:
        return tuple({} for _ in self.tunables)

    def encode(self, points: Iterable[Point]) -> NDArray[np.float32]:
        """The points as an (n, width) array: logarithms, numbers, one-hot choices, list by list."""
        rows = [list(itertools.chain.from_iterable(self._row(point))) for point in points]
        return np.asarray(rows, dtype=np.float32).reshape(len(rows), self.width)

    def _row(self, point: Point) -> Iterator[tuple[float, ...]]:
        for tunable, value, known in zip(self.tunables, point, self._features, strict=True):
            if value not in known:
                if len(known) >= _FEATURES_KEPT:
                    known.clear()
                known[value] = tunable.features(value)
            yield known[value]

    @cached_property
    def digest(self) -> str:
        """`sha256:...` of each tunable's name, kind, length and choices; not of bounds or defaults."""
        signatures = [tunable.signature() for tunable in self.tunables]
        text = json.dumps(signatures, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Json]:
        """All of the space as JSON; `from_json` gives an equal one back."""
        return space_to_json(self)

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> Space:
        """The space that `to_json` wrote; ValueError says which field doesn't hold."""
        return space_from_json(record)
