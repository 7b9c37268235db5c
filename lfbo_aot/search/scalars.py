"""The tunables with one value: a power of two, an integer, a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import ClassVar

from lfbo_aot.search.values import Json
from lfbo_aot.search.values import Value
from lfbo_aot.search.values import freeze
from lfbo_aot.search.values import same
from lfbo_aot.search.values import thaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

ROLES = ("", "block", "warps")


def _check_integer(name: str, value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        msg = f"tunable {name!r}: {value!r} is not an integer in {low}..{high}"
        raise ValueError(msg)
    return value


def _is_power(value: object) -> bool:
    return type(value) is int and value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """A power of two in low..high; a step doubles or halves it. Its role may be block or warps."""

    name: str
    low: int
    high: int
    default: int
    role: str = ""
    kind: ClassVar[str] = "power_of_two"

    def __post_init__(self) -> None:
        if not (_is_power(self.low) and _is_power(self.high) and self.low <= self.high):
            msg = f"tunable {self.name!r}: {self.low!r}..{self.high!r} is not a range of powers of two"
            raise ValueError(msg)
        if self.role not in ROLES:
            msg = f"tunable {self.name!r}: role {self.role!r} is none of {', '.join(map(repr, ROLES))}"
            raise ValueError(msg)
        self.check(self.default)

    @property
    def size(self) -> int:
        return self.high.bit_length() - self.low.bit_length() + 1

    @property
    def width(self) -> int:
        return 1

    def values(self) -> Iterator[Value]:
        return (self.low << step for step in range(self.size))

    def check(self, value: object) -> int:
        if not _is_power(value):
            msg = f"tunable {self.name!r}: {value!r} is not a power of two"
            raise ValueError(msg)
        return _check_integer(self.name, value, self.low, self.high)

    def moves(self, value: Value, radius: int) -> tuple[Value, ...]:
        """The value halved and doubled up to `radius` times."""
        at = self.check(value).bit_length()
        first = max(self.low.bit_length(), at - radius)
        last = min(self.high.bit_length(), at + radius)
        return tuple(1 << (bits - 1) for bits in range(first, last + 1) if bits != at)

    def sample(self, rng: np.random.Generator) -> int:
        return self.low << int(rng.integers(self.size))

    def features(self, value: Value) -> tuple[float, ...]:
        """The base-2 logarithm."""
        return (float(self.check(value).bit_length() - 1),)

    def signature(self) -> Json:
        return [self.kind, self.name]

    def to_json(self) -> dict[str, Json]:
        bounds: dict[str, Json] = {"low": self.low, "high": self.high, "default": self.default}
        return {"kind": self.kind, "name": self.name, **bounds, "role": self.role}


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer in low..high; a step adds or takes one."""

    name: str
    low: int
    high: int
    default: int
    kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        if type(self.low) is not int or type(self.high) is not int or self.low > self.high:
            msg = f"tunable {self.name!r}: {self.low!r}..{self.high!r} is not a range of integers"
            raise ValueError(msg)
        self.check(self.default)

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def width(self) -> int:
        return 1

    def values(self) -> Iterator[Value]:
        return iter(range(self.low, self.high + 1))

    def check(self, value: object) -> int:
        return _check_integer(self.name, value, self.low, self.high)

    def moves(self, value: Value, radius: int) -> tuple[Value, ...]:
        """The integers at most `radius` away."""
        at = self.check(value)
        near = range(max(self.low, at - radius), min(self.high, at + radius) + 1)
        return tuple(number for number in near if number != at)

    def sample(self, rng: np.random.Generator) -> int:
        return self.low + int(rng.integers(self.size))

    def features(self, value: Value) -> tuple[float, ...]:
        """The number itself."""
        return (float(self.check(value)),)

    def signature(self) -> Json:
        return [self.kind, self.name]

    def to_json(self) -> dict[str, Json]:
        bounds: dict[str, Json] = {"low": self.low, "high": self.high, "default": self.default}
        return {"kind": self.kind, "name": self.name, **bounds}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several unordered values; every other choice is one step away."""

    name: str
    choices: tuple[Value, ...]
    default: Value
    kind: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", freeze(self.choices))
        # Points are compared and hashed, where False equals 0: such choices couldn't be told apart.
        if not self.choices or len(set(self.choices)) != len(self.choices):
            msg = f"tunable {self.name!r}: {list(self.choices)!r} is empty or names a value twice"
            raise ValueError(msg)
        object.__setattr__(self, "default", self.check(self.default))

    @property
    def size(self) -> int:
        return len(self.choices)

    @property
    def width(self) -> int:
        return len(self.choices) if len(self.choices) > 2 else len(self.choices) - 1  # noqa: PLR2004

    def values(self) -> Iterator[Value]:
        return iter(self.choices)

    def check(self, value: object) -> Value:
        try:
            frozen = freeze(value)
        except TypeError as error:
            msg = f"tunable {self.name!r}: {error}"
            raise ValueError(msg) from error
        for choice in self.choices:
            if same(choice, frozen):
                return choice
        msg = f"tunable {self.name!r}: {value!r} is none of {list(self.choices)!r}"
        raise ValueError(msg)

    def moves(self, value: Value, radius: int) -> tuple[Value, ...]:  # noqa: ARG002
        """Every other choice: there is no order to step along."""
        at = self.check(value)
        return tuple(choice for choice in self.choices if not same(choice, at))

    def sample(self, rng: np.random.Generator) -> Value:
        return self.choices[int(rng.integers(self.size))]

    def features(self, value: Value) -> tuple[float, ...]:
        """A one in the place of the choice, zeros elsewhere."""
        at = self.check(value)
        hot = tuple(float(same(choice, at)) for choice in self.choices)
        return hot if self.width == self.size else hot[1:]

    def signature(self) -> Json:
        return [self.kind, self.name, thaw(self.choices)]

    def to_json(self) -> dict[str, Json]:
        choices = thaw(self.choices)
        default = thaw(self.default)
        return {"kind": self.kind, "name": self.name, "choices": choices, "default": default}
