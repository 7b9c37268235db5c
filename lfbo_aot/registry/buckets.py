"""Buckets: boxes of shapes, their text form, and how a kernel's dims are cut into them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING

from lfbo_aot.errors import DeclarationError
from lfbo_aot.registry.dims import Dim
from lfbo_aot.registry.dims import Interval
from lfbo_aot.registry.dims import Part
from lfbo_aot.registry.dims import Range
from lfbo_aot.registry.values import INTEGER
from lfbo_aot.registry.values import Value
from lfbo_aot.registry.values import check_dtype
from lfbo_aot.registry.values import check_text
from lfbo_aot.registry.values import normalize_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence


# `dim=lo..hi` or `dim=number`, as `part_text` writes them.
_WHOLE = r"(0|-?[1-9][0-9]{0,18})"
_NUMERIC = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*)={_WHOLE}(?:\.\.{_WHOLE})?")


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """A box of shapes: for each dim, in declared order, an interval or one exact value.

    Two buckets are equal if their keys are; so `1` and `True` differ, as does the order of dims.
    """

    parts: tuple[tuple[str, Part], ...]
    key: str = field(init=False, repr=False)
    """The text form: `m=1025..4096|n=5120|dtype=bfloat16`."""

    def __post_init__(self) -> None:
        key = "|".join(f"{name}={part_text(part)}" for name, part in self.parts)
        object.__setattr__(self, "key", key)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Bucket) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.key

    @classmethod
    def parse(cls, text: str) -> Bucket:
        """The bucket whose key is `text`; ValueError where it is no bucket's key."""
        parts: list[tuple[str, Part]] = []
        names: set[str] = set()
        for piece in text.split("|"):
            name, equals, written = piece.partition("=")
            if not equals or not name.isidentifier():
                msg = f"bucket {text!r}: {piece!r} isn't written dim=value"
                raise ValueError(msg)
            if name in names:
                msg = f"bucket {text!r}: dim {name!r} stands there twice"
                raise ValueError(msg)
            names.add(name)
            try:
                parts.append((name, parse_part(written)))
            except ValueError as error:
                msg = f"bucket {text!r}: dim {name!r}: {error}"
                raise ValueError(msg) from None
        return cls(tuple(parts))

    @property
    def names(self) -> tuple[str, ...]:
        """The dims' names in declared order."""
        return tuple(name for name, _ in self.parts)

    def contains(self, shape: Mapping[str, Value]) -> bool:
        """Whether `shape` has exactly these dims and each value lies in its part."""
        if len(shape) != len(self.parts):
            return False
        return all(name in shape and part_contains(part, shape[name]) for name, part in self.parts)

    def overlaps(self, other: Bucket) -> bool:
        """Whether a shape lies in both."""
        mine, theirs = dict(self.parts), dict(other.parts)
        return mine.keys() == theirs.keys() and all(
            _overlap(part, theirs[name]) for name, part in mine.items()
        )

    @property
    def volume(self) -> int:
        """How many shapes the box holds."""
        return math.prod(_length(part) for _, part in self.parts)

    @property
    def point(self) -> dict[str, Value]:
        """The shape to tune at: the upper end of each interval."""
        return self._corner(lambda interval: interval.hi)

    @property
    def probes(self) -> tuple[dict[str, Value], ...]:
        """The shapes to check the winner at: all lower ends, and all geometric middles.

        Without the tuning point, and without the same shape twice; none for an exact box.
        """
        found: list[dict[str, Value]] = []
        for pick in (lambda interval: interval.lo, _middle):
            corner = self._corner(pick)
            if corner != self.point and corner not in found:
                found.append(corner)
        return tuple(found)

    def _corner(self, pick: Callable[[Interval], int]) -> dict[str, Value]:
        return {n: pick(p) if isinstance(p, Interval) else p for n, p in self.parts}


def check_buckets(keys: Sequence[str], names: Sequence[str]) -> None:
    """ValueError unless each of `keys` is the key of a bucket with these dims in this order.

    Each piece that many keys have in common is parsed once.
    """
    pieces = "|".join(keys).split("|")
    found = {piece: _piece_name(piece) for piece in set(pieces)}
    separators = len(names) - 1
    as_declared = [found[piece] for piece in pieces] == [*names] * len(keys)
    if as_declared and all(key.count("|") == separators for key in keys):
        return
    for key in keys:
        theirs = Bucket.parse(key).names
        if theirs != tuple(names):
            msg = f"the bucket {key!r} has the dims {', '.join(theirs)}, not {', '.join(names)}"
            raise ValueError(msg)


def _piece_name(piece: str) -> str:
    """The dim of one piece of a key; empty where it isn't written as `Bucket.parse` takes it."""
    number = _NUMERIC.fullmatch(piece)
    if number is not None and (number[3] is None or int(number[2]) <= int(number[3])):
        return number[1]
    try:
        return Bucket.parse(piece).names[0]
    except ValueError:
        return ""


def part_text(part: Part) -> str:
    """A part as it stands in a key: `1025..4096`, `5120`, `true`, `bfloat16`."""
    if isinstance(part, bool):
        return "true" if part else "false"
    return str(part)


def parse_part(text: str) -> Part:
    """The part written `text`; ValueError where `part_text` never writes that."""
    lo, dots, hi = text.partition("..")
    part: Part
    if dots:
        if not (INTEGER.fullmatch(lo) and INTEGER.fullmatch(hi)):
            msg = f"{text!r} isn't an interval written lo..hi"
            raise ValueError(msg)
        part = Interval(int(lo), int(hi))
        if part.lo > part.hi:
            msg = f"the interval {text!r} is empty"
            raise ValueError(msg)
    elif text in ("true", "false"):
        part = text == "true"
    elif INTEGER.fullmatch(text):
        part = int(text)
    else:
        try:
            part = check_text(text)
        except DeclarationError as error:
            raise ValueError(error.reason) from None
    if part_text(part) != text:
        msg = f"{text!r} should be written {part_text(part)!r}"
        raise ValueError(msg)
    return part


def part_contains(part: Part, value: object) -> bool:
    """Whether `value` lies in `part`; a bool is never the whole number that equals it."""
    if isinstance(part, Interval):
        return value in part
    return type(part) is type(value) and part == value


def enumerate_buckets(
    dims: Mapping[str, Dim], listed: Sequence[Mapping[str, object]] | None = None
) -> tuple[Bucket, ...]:
    """The buckets of a kernel: the product of the dims' parts, or those listed.

    A listed item gives for each dim a value, or `(lo, hi)`. Raises DeclarationError, naming the dim
    where it is one dim's fault, on an impossible dim, an item that doesn't fit the dims, and items
    that overlap.
    """
    if not dims:
        msg = "no dims are declared; dims= names what a config depends on"
        raise DeclarationError(msg)
    parts = {name: dim_parts(name, dim) for name, dim in dims.items()}
    if listed is None:
        names = tuple(parts)
        product = itertools.product(*parts.values())
        return tuple(Bucket(tuple(zip(names, corner, strict=True))) for corner in product)
    if not listed:
        msg = "buckets= is an empty list; leave it out for the dims' product"
        raise DeclarationError(msg)
    buckets = tuple(_listed(dims, parts, item, i) for i, item in enumerate(listed))
    for (i, one), (j, other) in itertools.combinations(enumerate(buckets), 2):
        if one.overlaps(other):
            msg = (
                f"buckets[{i}] ({one.key}) and buckets[{j}] ({other.key}) overlap; "
                "a shape in both would have two answers"
            )
            raise DeclarationError(msg)
    return buckets


def dim_parts(name: str, dim: Dim) -> tuple[Part, ...]:
    """The parts of dim `name`, checked; DeclarationError that names the dim."""
    if not isinstance(name, str) or not name.isidentifier():
        msg = f"the dim name {name!r} isn't a Python identifier"
        raise DeclarationError(msg)
    if not name.isascii():
        msg = f"the dim name {name!r} isn't ASCII, and keys are"
        raise DeclarationError(msg)
    parts_of = getattr(dim, "parts", None)
    if parts_of is None:
        msg = f"{dim!r} is neither a Range nor an Exact"
        raise DeclarationError(msg, dim=name)
    try:
        parts: tuple[Part, ...] = parts_of()
    except DeclarationError as error:
        raise DeclarationError(error.reason, dim=name) from None
    for part in parts:
        if not isinstance(part, Interval):
            check_dtype(name, part)
        elif name == "dtype":
            msg = "a dtype can't be a Range; use Exact"
            raise DeclarationError(msg, dim=name)
    return parts


def _listed(
    dims: Mapping[str, Dim],
    parts: Mapping[str, tuple[Part, ...]],
    item: Mapping[str, object],
    index: int,
) -> Bucket:
    """The bucket that item `index` of `buckets=` describes, with the dims in declared order."""
    what = f"buckets[{index}]"
    if not isinstance(item, Mapping):
        msg = f"{what} is {item!r}; expected a mapping of dims to values"
        raise DeclarationError(msg)
    check_names(what, dims, item)
    box: list[tuple[str, Part]] = []
    for name, dim in dims.items():
        try:
            part = _given(item[name])
        except DeclarationError as error:
            msg = f"{what}: {error.reason}"
            raise DeclarationError(msg, dim=name) from None
        inside = (
            _within(dim, part)
            if isinstance(dim, Range)
            else any(part_contains(known, part) for known in parts[name])
        )
        if not inside:
            msg = f"{what}: {part_text(part)} lies outside {dim}"
            raise DeclarationError(msg, dim=name)
        box.append((name, part))
    return Bucket(tuple(box))


def check_names(what: str, dims: Mapping[str, Dim], given: Mapping[str, object]) -> None:
    """DeclarationError unless `given` has exactly the names of `dims`."""
    for name in dims:
        if name not in given:
            msg = f"{what} doesn't give the dim"
            raise DeclarationError(msg, dim=name)
    for name in given:
        if name not in dims:
            msg = f"{what} gives {name!r}, which isn't declared; declared: {', '.join(dims)}"
            raise DeclarationError(msg)


def _given(value: object) -> Part:
    if isinstance(value, Interval):
        value = (value.lo, value.hi)
    if not isinstance(value, (tuple, list)):
        return check_text(normalize_value(value))
    if len(value) != 2:  # noqa: PLR2004 - an interval has two ends
        msg = f"{value!r} isn't an interval; expected (lo, hi)"
        raise DeclarationError(msg)
    return Range(*value).parts()[0]


def _within(dim: Range, part: Part) -> bool:
    ends = (part.lo, part.hi) if isinstance(part, Interval) else (part,)
    return all(end in Interval(dim.lo, dim.hi) for end in ends)


def _overlap(a: Part, b: Part) -> bool:
    if isinstance(a, Interval) and isinstance(b, Interval):
        return a.lo <= b.hi and b.lo <= a.hi
    return part_contains(b, a) if isinstance(b, Interval) else part_contains(a, b)


def _length(part: Part) -> int:
    # Not by len(), which takes no number of 2**63 or more.
    return part.hi - part.lo + 1 if isinstance(part, Interval) else 1


def _middle(interval: Interval) -> int:
    """The geometric middle, rounded down; the axis starts at 1 where the interval starts at 0."""
    return math.isqrt(max(interval.lo, 1) * interval.hi) if interval.hi else 0
