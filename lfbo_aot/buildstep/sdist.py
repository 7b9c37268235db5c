"""Source archives of equal bytes for equal files, where SOURCE_DATE_EPOCH asks for it.

setuptools puts each file's own time, mode and owner into the archive, and the time of the build into
its gzip header. A checkout made again then gives another archive.
"""

from __future__ import annotations

import gzip
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VARIABLE = "SOURCE_DATE_EPOCH"
SUFFIX = ".tar.gz"


def normalize(archive: Path, epoch: int) -> None:
    """Rewrite a `.tar.gz`: the same files, sorted, all of time `epoch`, of nobody, with plain modes.

    The archive is replaced as a whole, or, where that fails, left as it is.
    """
    temporary = archive.with_name(f".{archive.name}.tmp")
    try:
        with (
            temporary.open("wb") as raw,
            # The header holds no name: it would be that of the temporary file.
            gzip.GzipFile(
                filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=epoch
            ) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
            tarfile.open(archive) as old,
        ):
            for member in _members(old, epoch):
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
        temporary.replace(archive)
    finally:
        temporary.unlink(missing_ok=True)


def _members(archive: tarfile.TarFile, epoch: int) -> Iterator[tarfile.TarInfo]:
    for member in sorted(archive.getmembers(), key=lambda member: member.name):
        runs = member.isdir() or member.mode & 0o100
        member.mode = 0o755 if runs else 0o644
        member.mtime = epoch
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.pax_headers = {}  # a time to the nanosecond, among others
        yield member
