"""Spaces to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import cast

from lfbo_aot.search.scalars import Choice
from lfbo_aot.search.scalars import Integer
from lfbo_aot.search.scalars import PowerOfTwo
from lfbo_aot.search.sequences import ListOf
from lfbo_aot.search.sequences import Permutation
from lfbo_aot.search.values import freeze
from lfbo_aot.search.values import thaw

if TYPE_CHECKING:
    from lfbo_aot.search.space import Space
    from lfbo_aot.search.values import Json
    from lfbo_aot.search.values import Tunable
    from lfbo_aot.search.values import Value

_KINDS = {kind.kind: kind for kind in (PowerOfTwo, Integer, Choice, Permutation, ListOf)}


def space_to_json(space: Space) -> dict[str, Json]:
    """The space as JSON-able lists and dictionaries."""
    conditions: list[Json] = [
        {"name": c.name, "parent": c.parent, "values": thaw(c.values)} for c in space.conditions
    ]
    found: dict[str, Json] = {
        "tunables": [tunable.to_json() for tunable in space.tunables],
        "default": thaw(space.default),
        "conditions": conditions,
        "seeds": [thaw(seed) for seed in space.seeds],
    }
    if space.inert:
        found["inert"] = [list(place) for place in space.inert]
    return found


def space_from_json(record: Mapping[str, object]) -> Space:
    """The space of a record; ValueError says which field doesn't hold."""
    from lfbo_aot.search.space import Condition
    from lfbo_aot.search.space import Space

    return Space(
        tunables=tuple(map(tunable_from_json, _list(record, "tunables"))),
        default=_tuple(_list(record, "default")),
        conditions=tuple(
            Condition(
                _field(item, "name", str),
                _field(item, "parent", str),
                _tuple(_list(item, "values")),
            )
            for item in map(_mapping, _list(record, "conditions"))
        ),
        seeds=tuple(_tuple(cast("Sequence[object]", item)) for item in _list(record, "seeds")),
        inert=tuple(_place(item) for item in record.get("inert", ())),  # type: ignore[attr-defined]
    )


def _place(item: object) -> tuple[str, int]:
    match item:
        case [str(name), int(at)] if type(at) is int:
            return name, at
    msg = f"field 'inert': {item!r} is not a tunable's name and a place"
    raise ValueError(msg)


def tunable_from_json(record: object) -> Tunable:
    """The tunable of a record; ValueError says which field doesn't hold."""
    fields = dict(_mapping(record))
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        msg = f"tunable of kind {kind!r}: known kinds are {', '.join(_KINDS)}"
        raise ValueError(msg)
    _field(fields, "name", str)
    if kind == ListOf.kind:
        fields["inner"] = tunable_from_json(fields.get("inner"))
    if kind == Choice.kind:
        fields["choices"] = _tuple(_list(fields, "choices"))
        fields["default"] = freeze(fields.get("default"))
    try:
        made: Tunable = _KINDS[kind](**fields)  # type: ignore[arg-type]
    except TypeError as error:
        msg = f"tunable {fields['name']!r} of kind {kind!r}: {error}"
        raise ValueError(msg) from error
    return made


def _mapping(item: object) -> Mapping[str, object]:
    if not isinstance(item, Mapping):
        msg = f"{item!r} is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - a file's contents are at fault, not a caller's types
    return item


def _field(record: Mapping[str, object], key: str, kind: type[str]) -> str:
    value = record.get(key)
    if not isinstance(value, kind):
        msg = f"field {key!r}: {value!r} is not of type {kind.__name__}"
        raise ValueError(msg)  # noqa: TRY004
    return value


def _list(record: Mapping[str, object], key: str) -> Sequence[object]:
    value = record.get(key)
    if not isinstance(value, list | tuple):
        msg = f"field {key!r}: {value!r} is not a list"
        raise ValueError(msg)  # noqa: TRY004
    return value


def _tuple(items: Sequence[object]) -> tuple[Value, ...]:
    try:
        return tuple(freeze(item) for item in items)
    except TypeError as error:
        msg = f"{items!r}: {error}"
        raise ValueError(msg) from error
