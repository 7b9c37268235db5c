"""The dims of a kernel: what values each one takes, and how they are cut into parts.

`Range` and `Exact` only hold what was written. `parts()` checks it, so that the error can be raised
where the kernel and the dim are known, and name both.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.errors import DeclarationError
from lfbo_aot.registry.values import Value
from lfbo_aot.registry.values import check_dtype
from lfbo_aot.registry.values import check_text
from lfbo_aot.registry.values import normalize_value

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Dim",
    "Exact",
    "Interval",
    "Part",
    "Range",
    "Value",
    "check_dtype",
    "check_text",
    "dim_from_json",
    "normalize_value",
]


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The whole numbers from `lo` to `hi`, both included."""

    lo: int
    hi: int

    def __contains__(self, value: object) -> bool:
        return type(value) is int and self.lo <= value <= self.hi

    def __len__(self) -> int:
        return self.hi - self.lo + 1

    def __str__(self) -> str:
        return f"{self.lo}..{self.hi}"


Part = Interval | Value
"""One dim's side of a bucket: an interval, or one exact value."""


@dataclass(frozen=True, slots=True)
class Range:
    """A whole-numbered dim from `lo` to `hi`, cut by `factor` or after each of `edges`.

    `Range(1, 65536, factor=4)` has the parts 1..4, 5..16, 17..64 and so on; `edges=[16, 256]` gives
    `lo`..16, 17..256, 257..`hi`. With neither, the range is one part.
    """

    lo: int
    hi: int
    factor: int | None = field(default=None, kw_only=True)
    edges: Sequence[int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.edges is not None:
            object.__setattr__(self, "edges", tuple(self.edges))

    def parts(self) -> tuple[Interval, ...]:
        """The intervals, in ascending order; DeclarationError where the range can't hold."""
        lo, hi = _whole("lo", self.lo), _whole("hi", self.hi)
        if lo < 0:
            msg = f"{self} starts below 0; sizes are whole numbers from 0 up"
            raise DeclarationError(msg)
        if lo > hi:
            msg = f"{self} is empty: lo={lo} is above hi={hi}"
            raise DeclarationError(msg)
        if self.factor is not None and self.edges is not None:
            msg = f"{self} has both factor= and edges=; give one of them"
            raise DeclarationError(msg)
        uppers = [*self._uppers(lo, hi), hi]
        lowers = [lo, *(upper + 1 for upper in uppers[:-1])]
        return tuple(Interval(a, b) for a, b in zip(lowers, uppers, strict=True))

    def _uppers(self, lo: int, hi: int) -> list[int]:
        """The upper ends of all parts but the last."""
        if self.factor is not None:
            factor = _whole("factor", self.factor)
            if factor < 2:  # noqa: PLR2004 - a factor of 1 never ends
                msg = f"{self}: factor={factor} must be 2 or more"
                raise DeclarationError(msg)
            uppers = []
            upper = max(lo, 1) * factor
            while upper < hi:
                uppers.append(upper)
                upper *= factor
            return uppers
        edges = [_whole("edges", edge) for edge in self.edges or ()]
        for before, after in itertools.pairwise(edges):
            if before >= after:
                msg = (
                    f"{self}: edges must ascend, and {after} follows {before}: the parts would "
                    "overlap or be empty"
                )
                raise DeclarationError(msg)
        for edge in edges:
            if not lo <= edge < hi:
                msg = (
                    f"{self}: edge {edge} must lie in {lo}..{hi - 1}, else a part is empty "
                    "(an edge is the last value of its part)"
                )
                raise DeclarationError(msg)
        return edges

    def to_json(self) -> dict[str, Any]:
        """What was declared, for the database: `{"range": [lo, hi], "factor": 4}`."""
        out: dict[str, Any] = {"range": [self.lo, self.hi]}
        if self.factor is not None:
            out["factor"] = self.factor
        if self.edges is not None:
            out["edges"] = list(self.edges)
        return out

    def __str__(self) -> str:
        more = f", factor={self.factor}" if self.factor is not None else ""
        more += f", edges={list(self.edges)}" if self.edges is not None else ""
        return f"Range({self.lo}, {self.hi}{more})"


@dataclass(frozen=True, slots=True, init=False)
class Exact:
    """A dim that takes only the values listed, each of which is a part of its own.

    Whole numbers, texts, bools and torch dtypes (kept by name).
    """

    values: tuple[object, ...]

    def __init__(self, *values: object) -> None:
        object.__setattr__(self, "values", values)

    def parts(self) -> tuple[Value, ...]:
        """The values in the order listed; DeclarationError where one can't be a value."""
        if not self.values:
            msg = "Exact() is empty; list the values that the dim takes"
            raise DeclarationError(msg)
        parts = tuple(check_text(normalize_value(value)) for value in self.values)
        seen: set[tuple[type, Value]] = set()
        for part in parts:
            if (type(part), part) in seen:
                msg = f"{self} lists {part!r} twice; the parts would overlap"
                raise DeclarationError(msg)
            seen.add((type(part), part))
        return parts

    def to_json(self) -> dict[str, Any]:
        """What was declared, for the database: `{"exact": [2048, 4096]}`."""
        return {"exact": list(self.parts())}

    def __str__(self) -> str:
        return f"Exact({', '.join(map(repr, self.values))})"


Dim = Range | Exact
"""What may be declared of a dim."""


def dim_from_json(data: object) -> Dim:
    """The `Range` or `Exact` whose `to_json()` is `data`; ValueError where it is neither."""
    if isinstance(data, Mapping):
        names = set(data)
        exact = data.get("exact")
        if names == {"exact"} and isinstance(exact, list):
            dim: Dim = Exact(*exact)
            return _valid(dim)
        bounds = data.get("range")
        if names <= {"range", "factor", "edges"} and isinstance(bounds, list):
            edges = data.get("edges")
            if len(bounds) == 2 and (edges is None or isinstance(edges, list)):  # noqa: PLR2004
                return _valid(Range(*bounds, factor=data.get("factor"), edges=edges))
    msg = f"{data!r} describes no dim: expected {{'range': [lo, hi]}} or {{'exact': [...]}}"
    raise ValueError(msg)


def _whole(what: str, value: object) -> int:
    number = normalize_value(value)
    if isinstance(number, bool) or not isinstance(number, int):
        msg = f"{what}={value!r} must be a whole number"
        raise DeclarationError(msg)
    return number


def _valid(dim: Dim) -> Dim:
    try:
        dim.parts()
    except DeclarationError as error:
        raise ValueError(error.reason) from error
    return dim
