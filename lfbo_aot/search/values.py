"""What a tunable is: its values, which of them lie near a given one, and how one reads as numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from typing import ClassVar
from typing import Protocol
from typing import TypeAlias
from typing import TypeVar

# A value of a tunable: a JSON scalar, or a tuple of them where JSON has a list.
Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | None"
Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

T = TypeVar("T")


def freeze(value: object) -> Value:
    """The JSON value with its lists as tuples; TypeError for anything that JSON can't hold."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    msg = f"{value!r} ({type(value).__name__}) is not a value that JSON can hold"
    raise TypeError(msg)


def thaw(value: Value) -> Json:
    """The value with its tuples as lists, ready for JSON."""
    return [thaw(item) for item in value] if isinstance(value, tuple) else value


def same(a: Value, b: Value) -> bool:
    """Whether two values are one: True is not 1, and 1 is not 1.0."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def pick(items: list[T] | tuple[T, ...], share: float) -> T:
    """The item that `share`, a number in [0, 1), falls on."""
    return items[int(share * len(items))]


class Tunable(Protocol):
    """What the space asks of each of its tunables."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The name, unique within a space."""

    @property
    def default(self) -> Value:
        """The value that an inactive tunable takes."""

    @property
    def size(self) -> int:
        """How many values there are."""

    @property
    def width(self) -> int:
        """How many numbers `features` gives."""

    def values(self) -> Iterator[Value]:
        """Every value, in a fixed order."""

    def check(self, value: object) -> Value:
        """The value in its own spelling; ValueError says why it isn't one."""

    def moves(self, value: Value, radius: int) -> tuple[Value, ...]:
        """The values up to `radius` steps away, without the value itself."""

    def sample(self, rng: np.random.Generator) -> Value:
        """A value, each as likely as any other."""

    def features(self, value: Value) -> tuple[float, ...]:
        """The value as numbers for a model."""

    def signature(self) -> Json:
        """What of it counts in the digest of a space: no bounds and no defaults."""

    def to_json(self) -> dict[str, Json]:
        """All of it, for `from_json` in the space's module."""
