"""A declaration: what the database says of a kernel itself, for look-ups without its module."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.entry import SCHEMA
from lfbo_aot.database.entry import check_schema
from lfbo_aot.database.files import read_file
from lfbo_aot.database.frozen import FrozenMapping
from lfbo_aot.database.frozen import check_json
from lfbo_aot.database.frozen import thaw
from lfbo_aot.database.text import dump_page
from lfbo_aot.database.text import load
from lfbo_aot.errors import DatabaseError
from lfbo_aot.registry.buckets import check_buckets
from lfbo_aot.registry.dims import dim_from_json

if TYPE_CHECKING:
    from lfbo_aot.registry.dims import Dim
    from lfbo_aot.registry.spec import KernelSpec

_FIELDS = ("schema", "kernel", "source", "settings", "dims", "buckets", "enumeration")
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Enumeration:
    """How a build can know that enumerating the kernel would give its declaration again."""

    digest: str
    """Of the declaration and all that it follows from: see `registry.enumeration`."""
    small: tuple[str, ...]
    """The keys of the buckets that the interpreter tunes."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The dims of a kernel in order, its buckets by key, its settings and its source digest."""

    kernel_id: str
    dims: Mapping[str, Dim]
    buckets: tuple[str, ...]
    settings: Mapping[str, Any]
    source: str
    schema: int = SCHEMA
    enumeration: Enumeration | None = None
    """None where it can't be known without a run, and in files of before there was one."""

    @classmethod
    def of(cls, spec: KernelSpec) -> Declaration:
        """What `spec` declares, and, where that can be told, how to know that it still does."""
        from lfbo_aot.registry.enumeration import enumeration_digest
        from lfbo_aot.registry.enumeration import told_otherwise

        found = cls(
            kernel_id=spec.kernel_id,
            dims={name: dim_from_json(dim.to_json()) for name, dim in spec.dims.items()},
            buckets=tuple(bucket.key for bucket in spec.buckets),
            settings=FrozenMapping(spec.settings),
            source=spec.source,
        )
        if told_otherwise(os.environ):
            return found
        small = tuple(dict.fromkeys(bucket.key for bucket in spec.small_buckets))
        declared = found.follows_from(small)
        digest = enumeration_digest(Path(spec.file), spec.module, spec.kernel_id, declared)
        if digest is None:
            return found
        return dataclasses.replace(found, enumeration=Enumeration(digest, small))

    def follows_from(self, small: tuple[str, ...]) -> str:
        """What the digest of the enumeration is of, besides source text: all else of the file."""
        return dump_page([self.bare().to_json(), list(small)])

    def bare(self) -> Declaration:
        """The same without the enumeration: what is declared, and nothing of how that is known."""
        return dataclasses.replace(self, enumeration=None)

    def to_json(self) -> dict[str, Any]:
        """The declaration as plain JSON data, fields in the order of the format."""
        page = {
            "schema": self.schema,
            "kernel": self.kernel_id,
            "source": self.source,
            "settings": thaw(self.settings),
            "dims": {name: dim.to_json() for name, dim in self.dims.items()},
            "buckets": list(self.buckets),
        }
        known = self.enumeration
        if known is not None:
            page["enumeration"] = {"digest": known.digest, "small": list(known.small)}
        return page

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
        check_json(data["settings"], "settings")
        dims = {name: _dim(name, dim) for name, dim in data["dims"].items()}
        if not dims:
            msg = "dims is empty"
            raise ValueError(msg)
        return cls(
            kernel_id=data["kernel"],
            dims=dims,
            buckets=_buckets(data["buckets"], dims, "buckets"),
            settings=FrozenMapping(data["settings"]),
            source=data["source"],
            schema=data["schema"],
            enumeration=_enumeration(data["enumeration"], dims) if "enumeration" in data else None,
        )

    def dumps(self) -> str:
        """The text of the file: the same for equal declarations."""
        return dump_page(self.to_json())

    @classmethod
    def read(cls, path: Path) -> Declaration:
        """The declaration in the file `path`; DatabaseError, naming it, where it is damaged."""
        content = read_file(path)
        try:
            return cls.from_json(load(content.decode()))
        except ValueError as error:
            line = getattr(error, "lineno", None)
            raise DatabaseError(path, str(error), line) from error


def _dim(name: str, data: object) -> Dim:
    try:
        return dim_from_json(data)
    except ValueError as error:
        msg = f"dims.{name}: {error}"
        raise ValueError(msg) from None


def _enumeration(data: object, dims: Mapping[str, Dim]) -> Enumeration:
    if not isinstance(data, Mapping) or set(data) != {"digest", "small"}:
        msg = "enumeration must be an object with the fields digest and small"
        raise ValueError(msg)
    digest, small = data["digest"], data["small"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        msg = f"enumeration.digest is {digest!r}; it must be sha256: and 64 hex digits"
        raise ValueError(msg)
    if not isinstance(small, list):
        msg = "enumeration.small isn't a list"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
    return Enumeration(digest, _buckets(small, dims, "enumeration.small"))


def _buckets(keys: list[object], dims: Mapping[str, Dim], where: str) -> tuple[str, ...]:
    found: list[str] = []
    for key in keys:
        if not isinstance(key, str):
            msg = f"{where} holds {key!r}, which isn't text"
            raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
        found.append(key)
    check_buckets(found, tuple(dims))
    return tuple(found)
