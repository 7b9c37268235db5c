"""A job: what is to be tuned somewhere else, and where an archive comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.rules import fits
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import part_contains
from lfbo_aot.registry.devices import parse_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.database.contents import Contents
    from lfbo_aot.registry.devices import Target
    from lfbo_aot.registry.dims import Value

FORMAT = 1
"""Of archives; this version reads no other."""
KERNEL_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_FIELDS = ("format", "origin", "target", "tune", "missing", "modules")

Where = Mapping[str, tuple["Value", ...]]
"""Values of dims; a bucket is meant if it holds one of each."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A declared bucket without an entry that holds for the kernel as it is declared."""

    kernel_id: str
    bucket: str
    why: str


@dataclass(frozen=True, slots=True)
class Job:
    """What an archive says of itself."""

    origin: Mapping[str, str]
    """Which version of lfbo-aot wrote it, on which machine and day."""
    target: Target | None = None
    """What it is to be tuned on, where that was said."""
    kernels: tuple[str, ...] = ()
    where: Where = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    modules: tuple[str, ...] = ()
    """Files of kernels that come along, as text."""

    def tune_words(self) -> list[str]:
        """The words that limit `lfbo-aot tune` to this job."""
        dims = (f"{name}={','.join(map(_text, values))}" for name, values in self.where.items())
        return [*self.kernels, *dims]

    def to_json(self) -> dict[str, Any]:
        """The job as plain JSON data."""
        return {
            "format": FORMAT,
            "origin": dict(self.origin),
            "target": None if self.target is None else str(self.target),
            "tune": {
                "kernels": list(self.kernels),
                "dims": {name: list(values) for name, values in self.where.items()},
            },
            "missing": [
                {"kernel": m.kernel_id, "bucket": m.bucket, "why": m.why} for m in self.missing
            ],
            "modules": list(self.modules),
        }

    @classmethod
    def from_json(cls, data: object) -> Job:
        """The job that `data` describes; ValueError, naming the field, where it describes none."""
        page = _object(data, "the manifest")
        if type(page.get("format")) is int and page["format"] > FORMAT:
            msg = f"format {page['format']} is newer than {FORMAT}, the newest that this version reads"
            raise ValueError(msg)
        if page.get("format") != FORMAT or set(page) != set(_FIELDS):
            msg = f"the manifest isn't one of format {FORMAT}: its fields are {', '.join(page)}"
            raise ValueError(msg)
        tune = _object(page["tune"], "tune")
        dims = _object(tune.get("dims"), "tune.dims")
        target = page["target"]
        rows = [_object(row, "missing") for row in _list(page["missing"], "missing")]
        return cls(
            origin={_word(k): _word(v) for k, v in _object(page["origin"], "origin").items()},
            target=None if target is None else parse_target(_word(target)),
            kernels=tuple(_kernel(k) for k in _list(tune.get("kernels"), "tune.kernels")),
            where={_dim(name): tuple(map(_value, _list(v, name))) for name, v in dims.items()},
            missing=tuple(
                Missing(_kernel(r.get("kernel")), _bucket(r.get("bucket")), _word(r.get("why")))
                for r in rows
            ),
            modules=tuple(_word(name) for name in _list(page["modules"], "modules")),
        )


def find_missing(contents: Contents, target: Target | None, where: Where) -> tuple[Missing, ...]:
    """The declared buckets that aren't held for `target`, or, without one, for any device.

    Held is what `lfbo-aot tune` would not tune again: an equal box, measured, of the declared source
    and settings.
    """
    found = []
    for kernel_id, declaration in sorted(contents.declarations.items()):
        held: dict[str, str] = {}
        for place, entry in contents.entries.items():
            if place.kernel_id == kernel_id and on_target(place.device, target):
                why = ""
                if entry.status != "measured":
                    why = f"{entry.status}, not measured"
                elif not fits(entry, declaration):
                    source = entry.source != declaration.source
                    why = "source changed" if source else "settings changed"
                if held.get(place.bucket.key) != "":
                    held[place.bucket.key] = why
        for key in declaration.buckets:
            why = held.get(key, "missing")
            if why and admits(Bucket.parse(key), where):
                found.append(Missing(kernel_id, key, why))
    return tuple(found)


def on_target(device: object, target: Target | None) -> bool:
    """Whether entries of `device` are entries for `target`."""
    if target is None:
        return True
    if target.device is not None:
        return device == target.device
    return bool(getattr(device, "arch", None) == target.arch)


def admits(bucket: Bucket, where: Where) -> bool:
    """Whether the bucket holds one of the values for each dim that `where` names."""
    parts = dict(bucket.parts)
    return all(
        name in parts and any(part_contains(parts[name], value) for value in values)
        for name, values in where.items()
    )


def _text(value: Value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        msg = f"{name} is not an object"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
    return value


def _list(value: object, name: str) -> Sequence[Any]:
    if not isinstance(value, list):
        msg = f"{name} is not a list"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
    return value


def _word(value: object) -> str:
    """Text that can be shown: one line, without control characters."""
    if not isinstance(value, str) or not value.isprintable():
        msg = f"{value!r} is not printable text"
        raise ValueError(msg)
    return value


def _kernel(value: object) -> str:
    if not isinstance(value, str) or not KERNEL_ID.fullmatch(value):
        msg = f"{value!r} can't be the id of a kernel"
        raise ValueError(msg)
    return value


def _dim(value: str) -> str:
    if not value.isidentifier():
        msg = f"{value!r} can't be the name of a dim"
        raise ValueError(msg)
    return value


def _value(value: object) -> Value:
    if isinstance(value, (bool, int)):
        return value
    return Bucket.parse(f"d={_word(value)}").point["d"]


def _bucket(value: object) -> str:
    return Bucket.parse(_word(value)).key
