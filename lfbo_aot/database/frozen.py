"""Read-only JSON: mappings that callers can hold and share, and can't change by accident."""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

DEEPEST = 32


class FrozenMapping(Mapping[str, Any]):
    """A read-only mapping over a private copy of JSON data.

    A list or object inside comes out as a fresh plain copy on each read, so `dict(mapping)` and
    `helion.Config(**mapping)` give data that may be changed, and nothing done to it reaches the
    mapping. Equal to any mapping with equal items.
    """

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self._data: dict[str, Any] = {} if data is None else thaw(data)

    def __getitem__(self, name: str) -> Any:
        value = self._data[name]
        return thaw(value) if type(value) in (list, dict) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMapping):
            return self._data == other._data
        return self._data == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(_hashable(self._data))

    def __repr__(self) -> str:
        return repr(self._data)

    def __reduce__(self) -> tuple[type[FrozenMapping], tuple[dict[str, Any]]]:
        return FrozenMapping, (self._data,)


EMPTY = FrozenMapping()


def thaw(value: Any) -> Any:
    """A plain, independent copy of JSON data: mappings as dicts, tuples and lists as lists."""
    if isinstance(value, Mapping):
        return {name: thaw(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((name, _hashable(item)) for name, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def check_json(value: object, where: str, depth: int = 0) -> None:
    """ValueError, naming the place inside `where`, unless `value` is finite plain JSON data."""
    if depth > DEEPEST:
        msg = f"{where} is nested too deeply"
        raise ValueError(msg)
    if value is None or isinstance(value, (bool, int, str)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            msg = f"{where} is {value!r}; numbers must be finite"
            raise ValueError(msg)
        return
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            check_json(item, f"{where}[{i}]", depth + 1)
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                msg = f"{where} has the name {name!r}, which isn't text"
                raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
            check_json(item, f"{where}.{name}", depth + 1)
        return
    msg = f"{where} is a {type(value).__qualname__}, which isn't JSON data"
    raise ValueError(msg)
