"""The tunables with several values: an order, and a list of values of one kind."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from lfbo_aot.search.scalars import Choice
    from lfbo_aot.search.scalars import Integer
    from lfbo_aot.search.scalars import PowerOfTwo
    from lfbo_aot.search.values import Json
    from lfbo_aot.search.values import Value


def _check_length(name: str, length: object) -> None:
    if type(length) is not int or length < 0:
        msg = f"tunable {name!r}: {length!r} is not a length"
        raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Permutation:
    """An order of 0..length-1; a step swaps two places."""

    name: str
    length: int
    kind: ClassVar[str] = "permutation"

    def __post_init__(self) -> None:
        _check_length(self.name, self.length)

    @property
    def default(self) -> Value:
        return tuple(range(self.length))

    @property
    def size(self) -> int:
        return math.factorial(self.length)

    @property
    def width(self) -> int:
        return self.length

    def values(self) -> Iterator[Value]:
        return itertools.permutations(range(self.length))

    def check(self, value: object) -> tuple[int, ...]:
        given = tuple(value) if isinstance(value, list | tuple) else ()
        if any(type(item) is not int for item in given) or sorted(given) != [*range(self.length)]:
            msg = f"tunable {self.name!r}: {value!r} is not an order of 0..{self.length - 1}"
            raise ValueError(msg)
        return given

    def moves(self, value: Value, radius: int) -> tuple[Value, ...]:  # noqa: ARG002
        """The orders that one swap gives."""
        at = self.check(value)
        found = []
        for i, j in itertools.combinations(range(self.length), 2):
            swapped = list(at)
            swapped[i], swapped[j] = at[j], at[i]
            found.append(tuple(swapped))
        return tuple(found)

    def sample(self, rng: np.random.Generator) -> Value:
        return tuple(int(item) for item in rng.permutation(self.length))

    def features(self, value: Value) -> tuple[float, ...]:
        """The place of each item."""
        at = self.check(value)
        return tuple(float(at.index(item)) for item in range(self.length))

    def signature(self) -> Json:
        return [self.kind, self.name, self.length]

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "name": self.name, "length": self.length}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of `length` values of one kind; a step changes one place or makes all places equal."""

    name: str
    inner: PowerOfTwo | Integer | Choice | Permutation
    length: int
    kind: ClassVar[str] = "list"

    def __post_init__(self) -> None:
        _check_length(self.name, self.length)
        if getattr(self.inner, "role", ""):
            msg = f"tunable {self.name!r}: a role belongs to a tunable of its own, not to a list's"
            raise ValueError(msg)

    @property
    def default(self) -> Value:
        return (self.inner.default,) * self.length

    @property
    def size(self) -> int:
        return int(self.inner.size**self.length)

    @property
    def width(self) -> int:
        return self.inner.width * self.length

    def values(self) -> Iterator[Value]:
        return itertools.product(*(tuple(self.inner.values()) for _ in range(self.length)))

    def check(self, value: object) -> tuple[Value, ...]:
        if not isinstance(value, list | tuple) or len(value) != self.length:
            msg = f"tunable {self.name!r}: {value!r} is not a list of {self.length} values"
            raise ValueError(msg)
        try:
            return tuple(self.inner.check(item) for item in value)
        except ValueError as error:
            msg = f"tunable {self.name!r}: {error}"
            raise ValueError(msg) from error

    def moves(self, value: Value, radius: int) -> tuple[Value, ...]:
        """One place moved, or every place given a value that is in the list or next to one in it."""
        at = self.check(value)
        found: dict[Value, None] = {}  # a dict for its order: a set's would vary between processes
        for place, item in enumerate(at):
            for moved in self.inner.moves(item, radius):
                changed = (*at[:place], moved, *at[place + 1 :])
                found[changed] = None
        for item in dict.fromkeys(at):
            for moved in (item, *self.inner.moves(item, radius)):
                found[(moved,) * self.length] = None
        found.pop(at, None)
        return tuple(found)

    def sample(self, rng: np.random.Generator) -> Value:
        return tuple(self.inner.sample(rng) for _ in range(self.length))

    def features(self, value: Value) -> tuple[float, ...]:
        """The features of each place in turn."""
        places = (self.inner.features(item) for item in self.check(value))
        return tuple(itertools.chain.from_iterable(places))

    def signature(self) -> Json:
        return [self.kind, self.name, self.length, self.inner.signature()]

    def to_json(self) -> dict[str, Json]:
        inner: Json = self.inner.to_json()
        return {"kind": self.kind, "name": self.name, "inner": inner, "length": self.length}
