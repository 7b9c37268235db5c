"""A declaration: what the database says of a kernel itself, for look-ups without its module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.entry import SCHEMA
from lfbo_aot.database.entry import check_schema
from lfbo_aot.database.frozen import FrozenMapping
from lfbo_aot.database.frozen import check_json
from lfbo_aot.database.frozen import thaw
from lfbo_aot.database.text import dump_page
from lfbo_aot.database.text import load
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.dims import dim_from_json

if TYPE_CHECKING:
    from pathlib import Path

    from lfbo_aot.registry.dims import Dim
    from lfbo_aot.registry.spec import KernelSpec

_FIELDS = ("schema", "kernel", "source", "settings", "dims", "buckets")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The dims of a kernel in order, its buckets by key, its settings and its source digest."""

    kernel_id: str
    dims: Mapping[str, Dim]
    buckets: tuple[str, ...]
    settings: Mapping[str, Any]
    source: str
    schema: int = SCHEMA

    @classmethod
    def of(cls, spec: KernelSpec) -> Declaration:
        """What `spec` declares."""
        return cls(
            kernel_id=spec.kernel_id,
            dims={name: dim_from_json(dim.to_json()) for name, dim in spec.dims.items()},
            buckets=tuple(bucket.key for bucket in spec.buckets),
            settings=FrozenMapping(spec.settings),
            source=spec.source,
        )

    def to_json(self) -> dict[str, Any]:
        """The declaration as plain JSON data, fields in the order of the format."""
        return {
            "schema": self.schema,
            "kernel": self.kernel_id,
            "source": self.source,
            "settings": thaw(self.settings),
            "dims": {name: dim.to_json() for name, dim in self.dims.items()},
            "buckets": list(self.buckets),
        }

    @classmethod
    def from_json(cls, data: object) -> Declaration:
        """The declaration that `data` describes.

        Raises SchemaError (a ValueError) on a schema that this version doesn't read, and ValueError,
        naming the field, on anything missing, unknown or of a wrong type.
        """
        if not isinstance(data, Mapping):
            msg = f"the declaration is a {type(data).__qualname__}; it must be an object"
            raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
        check_schema(data)
        check_json(data, "the declaration")
        for name in data:
            if name not in _FIELDS:
                msg = f"unknown field {name!r}"
                raise ValueError(msg)
        for name, kind, what in (
            ("kernel", str, "text"),
            ("source", str, "text"),
            ("settings", Mapping, "an object"),
            ("dims", Mapping, "an object"),
            ("buckets", list, "a list"),
        ):
            if not isinstance(data.get(name), kind):
                msg = f"the field {name!r} is missing or isn't {what}"
                raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
        dims = {name: _dim(name, dim) for name, dim in data["dims"].items()}
        if not dims:
            msg = "dims is empty"
            raise ValueError(msg)
        return cls(
            kernel_id=data["kernel"],
            dims=dims,
            buckets=tuple(_bucket(key, dims) for key in data["buckets"]),
            settings=FrozenMapping(data["settings"]),
            source=data["source"],
            schema=data["schema"],
        )

    def dumps(self) -> str:
        """The text of the file: the same for equal declarations."""
        return dump_page(self.to_json())

    @classmethod
    def read(cls, path: Path) -> Declaration:
        """The declaration in the file `path`; DatabaseError, naming it, where it is damaged."""
        try:
            return cls.from_json(load(path.read_bytes().decode()))
        except OSError as error:
            raise DatabaseError(path, f"can't be read: {error.strerror}") from error
        except ValueError as error:
            line = getattr(error, "lineno", None)
            raise DatabaseError(path, str(error), line) from error


def _dim(name: str, data: object) -> Dim:
    try:
        return dim_from_json(data)
    except ValueError as error:
        msg = f"dims.{name}: {error}"
        raise ValueError(msg) from None


def _bucket(key: object, dims: Mapping[str, Dim]) -> str:
    if not isinstance(key, str):
        msg = f"buckets holds {key!r}, which isn't text"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
    names = Bucket.parse(key).names
    if names != tuple(dims):
        msg = f"the bucket {key!r} has the dims {', '.join(names)}, not {', '.join(dims)}"
        raise ValueError(msg)
    return key
