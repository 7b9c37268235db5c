"""An entry: what the database says of one kernel, bucket and device."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import cast

from lfbo_aot.database.frozen import EMPTY
from lfbo_aot.database.frozen import FrozenMapping
from lfbo_aot.database.frozen import check_json
from lfbo_aot.database.frozen import thaw

SCHEMA = 1
"""The schema that this version writes; it reads every older one."""

STATUSES = ("measured", "imported", "transferred")
RESOURCES = ("shared", "regs", "spills", "threads")
_OBJECTS = ("config", "resources", "settings", "versions", "policy", "search")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.+Z-]+)?")
_SHOWN = 80
_LISTS = ("alternates", "probes", "layout")


class SchemaError(ValueError):
    """A schema number that this version doesn't read; `newer` tells which way."""

    def __init__(self, schema: int) -> None:
        self.schema = schema
        self.newer = schema > SCHEMA
        if self.newer:
            text = f"schema {schema} is newer than {SCHEMA}, the newest that this version reads"
            text += "; upgrade lfbo-aot"
        else:
            text = f"schema {schema} is older than any that was ever written"
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The winner for one (kernel, bucket, device), how it was found, and what it holds for.

    Latencies are in microseconds of device time. Raises ValueError, naming the field, on data of a
    wrong type or a number that isn't finite. Everything in it is read-only.
    """

    config: Mapping[str, Any]
    """A Helion config: the one to serve."""
    latency_us: float
    """Of `config`, at the bucket's tuning point."""
    default_us: float | None
    """Of Helion's own default config, at the same point and under the same policy; None where that
    doesn't run on the device, and `config` does."""
    source: str
    """Digest of the kernel's source, `sha256:...`."""
    space: str
    """Digest of the search space at the tuning point, `sha256:...`."""
    measured: str
    """The day, `2026-12-01`, perhaps with the time."""
    alternates: Sequence[Mapping[str, Any]] = ()
    """The runners-up, best first, for when `config` doesn't work where it is served."""
    default: bool = False
    """Whether the winner is Helion's default; `config` then spells it out."""
    spread: float = 0.0
    """Spread of the winner's readings, relative to their median."""
    near_tie: bool = False
    probes: Sequence[Mapping[str, Any]] = ()
    """What was measured at the bucket's probe points."""
    resources: Mapping[str, int] = EMPTY
    """Of `config`: `shared` (bytes a block), `regs` (a thread), `spills`, `threads` (a block)."""
    settings: Mapping[str, Any] = EMPTY
    """Helion settings that change the code: a hard validator."""
    layout: Sequence[Mapping[str, Any]] = ()
    """Dtype, stride order and contiguity of each tensor argument; see `registry.layout`."""
    versions: Mapping[str, str] = EMPTY
    """Of `helion`, `triton`, `torch` and `runtime` (CUDA or ROCm): a soft validator."""
    policy: Mapping[str, Any] = EMPTY
    """How it was timed."""
    search: Mapping[str, Any] = EMPTY
    """How it was found."""
    status: str = "measured"
    note: str | None = None
    """Why there is nothing better than the default, where nothing else worked."""
    pinned: bool = False
    """Whether someone chose it: it is served before what is fresher, or in a layer above."""

    def __post_init__(self) -> None:
        for name in _OBJECTS:
            self._set(name, _frozen(getattr(self, name), name))
        for name in _LISTS:
            self._set(name, _frozen_list(getattr(self, name), name))
        self._set("latency_us", _number(self.latency_us, "latency_us", positive=True))
        self._set("spread", _number(self.spread, "spread", positive=False))
        if self.default_us is not None or self.default is True:
            self._set("default_us", _number(self.default_us, "default_us", positive=True))
        for name in ("default", "near_tie", "pinned"):
            value = getattr(self, name)
            _expect(isinstance(value, bool), name, value, "true or false")
        for name in ("source", "space"):
            value = getattr(self, name)
            digest = isinstance(value, str) and value.startswith("sha256:")
            _expect(digest, name, value, "a digest written sha256:...")
        _expect(_is_day(self.measured), "measured", self.measured, "a day written 2026-12-01")
        _expect(self.status in STATUSES, "status", self.status, "one of " + ", ".join(STATUSES))
        _expect(self.note is None or isinstance(self.note, str), "note", self.note, "text")
        for name, number in self.resources.items():
            if name not in RESOURCES:
                msg = f"resources has the unknown field {name!r}; known: {', '.join(RESOURCES)}"
                raise ValueError(msg)
            whole = type(number) is int and number >= 0
            _expect(whole, f"resources.{name}", number, "a whole number from 0 up")
        for name, version in self.versions.items():
            _expect(isinstance(version, str), f"versions.{name}", version, "a version as text")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def gain(self) -> float | None:
        """How many times faster than the default; None where that doesn't run."""
        return None if self.default_us is None else self.default_us / self.latency_us

    def to_json(self) -> dict[str, Any]:
        """The entry as plain JSON data, fields in the order of the format."""
        data: dict[str, Any] = {"schema": SCHEMA}
        for name in _ORDER:
            value = getattr(self, name)
            if name not in _OPTIONAL or value != _OPTIONAL[name]:
                data[name] = thaw(value)
        return data

    @classmethod
    def from_json(cls, data: object) -> Entry:
        """The entry that `data` describes.

        Raises SchemaError (a ValueError) on a schema that this version doesn't read, and ValueError,
        naming the field, on a field that is missing, unknown or of a wrong type.
        """
        if not isinstance(data, Mapping):
            msg = f"the entry is a {type(data).__qualname__}; it must be an object"
            raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
        check_schema(data)
        for name in data:
            if name not in _ORDER and name not in _HEAD:
                msg = f"unknown field {name!r}"
                raise ValueError(msg)
        for name in _ORDER:
            if name not in data and name not in _OPTIONAL:
                msg = f"the field {name!r} is missing"
                raise ValueError(msg)
        _expect(data.get("note", "") is not None, "note", None, "text, or left out")
        return cls(**{name: value for name, value in data.items() if name not in _HEAD})


_HEAD = ("schema", "key")
# `key` repeats the line's key, so that the checksum covers that too; it is the shard's affair.
_ORDER = (
    "config",
    "alternates",
    "default",
    "latency_us",
    "default_us",
    "spread",
    "near_tie",
    "probes",
    "resources",
    "source",
    "space",
    "settings",
    "layout",
    "versions",
    "policy",
    "search",
    "measured",
    "status",
    "note",
    "pinned",
)
_OPTIONAL = {"note": None, "pinned": False}
"""Fields that are left out where they have this value."""


def check_schema(data: Mapping[str, Any]) -> None:
    """SchemaError unless `data` has a schema number that this version reads."""
    if "schema" not in data:
        msg = "the field 'schema' is missing"
        raise ValueError(msg)
    schema = data["schema"]
    _expect(type(schema) is int, "schema", schema, "a whole number")
    if not 1 <= schema <= SCHEMA:
        raise SchemaError(schema)


def _frozen(value: object, name: str) -> FrozenMapping:
    if isinstance(value, FrozenMapping):
        return value
    check_json(value, name)
    _expect(isinstance(value, Mapping), name, value, "an object")
    return FrozenMapping(cast("Mapping[str, Any]", value))


def _frozen_list(value: object, name: str) -> tuple[FrozenMapping, ...]:
    _expect(isinstance(value, (list, tuple)), name, value, "a list")
    items = cast("Sequence[object]", value)
    return tuple(_frozen(item, f"{name}[{i}]") for i, item in enumerate(items))


def _number(value: object, name: str, *, positive: bool) -> float:
    _expect(
        isinstance(value, (int, float)) and not isinstance(value, bool), name, value, "a number"
    )
    try:
        number = float(cast("float", value))
    except OverflowError:
        number = math.inf
    fits = math.isfinite(number) and number >= 0 and not (positive and number == 0)
    _expect(fits, name, value, "finite and above 0" if positive else "finite and from 0 up")
    return number


def _is_day(text: object) -> bool:
    return isinstance(text, str) and _DAY.fullmatch(text) is not None


def _expect(ok: bool, name: str, value: object, expected: str) -> None:
    if not ok:
        written = repr(value)
        if len(written) > _SHOWN:
            written = written[: _SHOWN - 3] + "..."
        msg = f"{name} is {written}; it must be {expected}"
        raise ValueError(msg)
