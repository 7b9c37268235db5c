"""Merging: how entries get into a database. Offline, under a lock, and the same bytes each time."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.database.database import KERNELS
from lfbo_aot.database.database import declaration_path
from lfbo_aot.database.database import shard_path
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.entry import SchemaError
from lfbo_aot.database.line import encode_line
from lfbo_aot.database.line import join_key
from lfbo_aot.database.line import parse_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.shard import join_lines
from lfbo_aot.database.shard import split_lines
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import LfboAotError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from collections.abc import Sequence

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.devices import DeviceId

    Entries = Mapping[str, Mapping[tuple[DeviceId, Bucket], Entry]]
    """For each kernel id, its entries by device and bucket."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_TEMPORARY = ".tmp"


def merge(path: Path | str, entries: Entries, declarations: Sequence[Declaration]) -> None:
    """Add `entries` and `declarations` to the database at `path`, in place of those they equal in key.

    Other lines stay as they are, byte for byte; files whose content doesn't change aren't touched.
    Each file is replaced as a whole, so a reader sees the old one or the new one. Two merges at a
    time wait for each other. Raises DatabaseError, before anything is written, where a file that
    would be written over is damaged or from a newer version, and where an entry's kernel isn't
    declared or has other dims.
    """
    root = real_path(Path(path))
    with locked(root):
        write(root, entries, declarations)


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the database at `root`, which need not be there yet, against every other merge."""
    try:
        from filelock import FileLock
    except ModuleNotFoundError as error:
        msg = 'writing a database takes filelock: pip install filelock, or "lfbo-aot[tune]"'
        raise LfboAotError(msg) from error
    root = real_path(root)
    lock = lock_path(root)
    root.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()  # where that can't be done, the lock would be waited for in vain
    with FileLock(lock):
        yield


def write(root: Path, entries: Entries, declarations: Sequence[Declaration]) -> None:
    """What `merge` does, for one that holds the lock."""
    root.mkdir(parents=True, exist_ok=True)
    _clean(root)
    declared = {declaration.kernel_id: declaration for declaration in declarations}
    files: dict[Path, bytes] = {}
    for kernel_id in sorted(declared):
        files[_declaration_file(root, kernel_id)] = declared[kernel_id].dumps().encode()
    for kernel_id in sorted(entries):
        known = declared.get(kernel_id) or _declaration_on_disk(root, kernel_id)
        files.update(_shards(root, known, entries[kernel_id]))
    for file in files:
        _refuse_links(file)
    # Declarations come first: an entry without one is an error, the reverse is not.
    for file, content in files.items():
        _replace(file, content)


def real_path(path: Path) -> Path:
    """The one path of a folder to which several lead: what is locked, and what is written to."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise DatabaseError(path, f"can't be followed: {error}") from error


def lock_path(root: Path) -> Path:
    """The lock of the database at `root`: beside it, as what is in it is shipped."""
    return root.parent / f".{root.name}.lock"


def _shards(
    root: Path, declaration: Declaration, entries: Mapping[tuple[DeviceId, Bucket], Entry]
) -> dict[Path, bytes]:
    """The new content of each shard of one kernel that `entries` belong to."""
    kernel_id, dims = declaration.kernel_id, tuple(declaration.dims)
    by_arch: dict[str, dict[str, Entry]] = {}
    for (device, bucket), entry in entries.items():
        if bucket.names != dims:
            names = ", ".join(bucket.names)
            msg = f"kernel {kernel_id!r} has the dims {', '.join(dims)}; an entry has {names}"
            raise DatabaseError(declaration_path(root, kernel_id), msg)
        by_arch.setdefault(device.arch, {})[join_key(device.name, bucket)] = entry
    files: dict[Path, bytes] = {}
    for arch, added in sorted(by_arch.items()):
        if arch == KERNELS or not _FILE_NAME.fullmatch(arch):
            msg = f"the arch {arch!r} can't be the name of a folder"
            raise DatabaseError(root, msg)
        file = shard_path(root, kernel_id, arch)
        lines = _lines_on_disk(file, added)
        lines.update({key: encode_line(key, entry).encode() for key, entry in added.items()})
        files[file] = join_lines(lines)
    return files


def _lines_on_disk(file: Path, replaced: Mapping[str, Entry]) -> dict[str, bytes]:
    """The lines of a shard by key, each one checked."""
    lines: dict[str, bytes] = {}
    with contextlib.suppress(FileNotFoundError):
        content = file.read_bytes()
        for number, raw in enumerate(split_lines(content), start=1):
            try:
                key = _check_line(raw, number, replaced)
            except ValueError as error:
                raise DatabaseError(file, str(error), number) from error
            if key in lines:
                msg = f"duplicate key {key!r}; keep one of the lines"
                raise DatabaseError(file, msg, number)
            lines[key] = raw
    return lines


def _check_line(raw: bytes, number: int, replaced: Mapping[str, Entry]) -> str:
    line = parse_line(raw, number)
    split_key(line.key)
    try:
        line.entry()
    except SchemaError as error:
        # A newer version's line is carried along; to write over it would lose what it says.
        if not error.newer or line.key in replaced:
            raise
    return line.key


def _declaration_file(root: Path, kernel_id: str) -> Path:
    file = declaration_path(root, kernel_id)
    if not _FILE_NAME.fullmatch(kernel_id):
        msg = f"the kernel id {kernel_id!r} can't be the name of a file"
        raise DatabaseError(root / KERNELS, msg)
    if file.exists():
        Declaration.read(file)
    return file


def _declaration_on_disk(root: Path, kernel_id: str) -> Declaration:
    file = declaration_path(root, kernel_id)
    if not file.is_file():
        msg = f"kernel {kernel_id!r} has entries and no declaration; pass its declaration too"
        raise DatabaseError(file, msg)
    return Declaration.read(file)


def _refuse_links(file: Path) -> None:
    """A link would be replaced by a file, or lead into a database whose lock isn't held."""
    for path in (file.parent, file):
        if path.is_symlink():
            target = os.path.realpath(path)
            msg = (
                f"is a link to {target}; put the files themselves here, or merge into that database"
            )
            raise DatabaseError(path, msg)


def _replace(file: Path, content: bytes) -> None:
    if file.is_file() and file.read_bytes() == content:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}{_TEMPORARY}")
    with temporary.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


def _clean(root: Path) -> None:
    """Delete what a merge that was killed left; under the lock none of it is in use."""
    for leftover in root.glob(f"*/.*{_TEMPORARY}"):
        leftover.unlink(missing_ok=True)
