"""A manifest: what a built database says of how it came to be (`manifest.json`)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.entry import SCHEMA
from lfbo_aot.database.entry import check_schema
from lfbo_aot.database.text import load
from lfbo_aot.errors import DatabaseError

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"

__all__ = ["MANIFEST", "SCHEMA", "read_manifest"]


def read_manifest(root: Path) -> dict[str, Any] | None:
    """The manifest of the database at `root`; None where it has none.

    Raises DatabaseError where it is damaged, or of a schema that this version doesn't read.
    """
    path = root / MANIFEST
    try:
        return parse_manifest(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DatabaseError(path, f"can't be read: {error.strerror}") from error
    except ValueError as error:
        raise DatabaseError(path, str(error), getattr(error, "lineno", None)) from error


def parse_manifest(content: bytes) -> dict[str, Any]:
    """The manifest that `content` is; ValueError where it isn't one that this version reads."""
    data = load(content.decode())
    if not isinstance(data, dict):
        msg = f"the manifest is a {type(data).__qualname__}; it must be an object"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
    if "schema" in data:
        check_schema(data)
    return data
