"""Reading a file of a database, whatever stands in its place."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from lfbo_aot.errors import DatabaseError

if TYPE_CHECKING:
    from pathlib import Path


def read_file(path: Path) -> bytes:
    """The content of the regular file at `path`; DatabaseError, naming it, where there is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise DatabaseError(path, "can't be read: not a file")
        return path.read_bytes()
    except OSError as error:
        raise DatabaseError(path, f"can't be read: {error.strerror or error}") from error
