"""Contents: a database read whole and checked, from a folder or from an archive's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import TYPE_CHECKING
from typing import NamedTuple

from lfbo_aot.database.database import KERNELS
from lfbo_aot.database.database import Database
from lfbo_aot.database.database import children
from lfbo_aot.database.database import is_arch_folder
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.entry import SchemaError
from lfbo_aot.database.files import read_file
from lfbo_aot.database.line import encode_line
from lfbo_aot.database.line import join_key
from lfbo_aot.database.line import parse_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.shard import join_lines
from lfbo_aot.database.shard import split_lines
from lfbo_aot.database.text import load
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import normalize_arch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.registry.buckets import Bucket

Files = Mapping[str, bytes]
"""The files of a database by their path in it, such as `sm90/mykern.scale.jsonl`."""


class Place(NamedTuple):
    """What an entry is for."""

    kernel_id: str
    device: DeviceId
    bucket: Bucket

    @property
    def order(self) -> tuple[str, str, str]:
        """What places are sorted by."""
        return self.kernel_id, str(self.device), self.bucket.key


@dataclass(frozen=True, slots=True)
class Contents:
    """All that one database holds. `name` says which one, for messages."""

    name: str
    declarations: Mapping[str, Declaration] = field(default_factory=dict)
    entries: Mapping[Place, Entry] = field(default_factory=dict)
    unread: Mapping[Place, str] = field(default_factory=dict)
    """Lines that a newer version wrote, and what there is to say of them."""

    def kernels(self) -> tuple[str, ...]:
        """The ids of the kernels declared or held, sorted."""
        return tuple(sorted({*self.declarations, *(place.kernel_id for place in self.entries)}))

    def only(self, wanted: Callable[[Place], bool], kernels: frozenset[str]) -> Contents:
        """Those entries, and the declarations of those kernels."""
        return Contents(
            self.name,
            {k: found for k, found in self.declarations.items() if k in kernels},
            {place: entry for place, entry in self.entries.items() if wanted(place)},
        )


def read_folder(path: Path) -> Contents:
    """What the database at `path` holds; DatabaseError, with file and line, where it is damaged.

    Also where `path` is no folder, or one that holds nothing of a database.
    """
    files = folder_files(path)
    if not files:
        msg = (
            "no database: a database is a folder that holds kernels/ and a folder for each arch"
            if path.is_dir()
            else "no such folder"
        )
        raise DatabaseError(path, msg)
    return read_files(str(path), files)


def folder_files(path: Path) -> dict[str, bytes]:
    """The declarations and shards of the database at `path`; none where there is no such folder.

    DatabaseError where one is there and can't be read, such as a broken link: left out, it would
    look as if it held nothing.
    """
    for error in Database(path).unreadable():
        raise error
    found: dict[str, bytes] = {}
    for folder in children(path):
        if folder.name == KERNELS or is_arch_folder(folder):
            suffix = ".json" if folder.name == KERNELS else ".jsonl"
            for file in children(folder):
                if file.suffix == suffix and not file.name.startswith("."):
                    found[f"{folder.name}/{file.name}"] = read_file(file)
    return found


def read_files(name: str, files: Files) -> Contents:
    """What these files of the database called `name` hold; DatabaseError where one is damaged."""
    declarations: dict[str, Declaration] = {}
    entries: dict[Place, Entry] = {}
    unread: dict[Place, str] = {}
    for path in sorted(files):
        folder, _, file = path.partition("/")
        where = f"{name}/{path}"
        if folder == KERNELS:
            kernel_id = file.removesuffix(".json")
            declarations[kernel_id] = _declaration(where, kernel_id, files[path])
            continue
        try:
            arch = normalize_arch(folder)
        except UnknownNameError as error:
            raise DatabaseError(where, str(error)) from None
        if arch != folder:
            msg = f"no look-up reads it: the folder of this arch is {arch!r}"
            raise DatabaseError(where, msg)
        _shard(where, (file.removesuffix(".jsonl"), arch), files[path], (entries, unread))
    return Contents(name, declarations, entries, unread)


def _declaration(where: str, kernel_id: str, content: bytes) -> Declaration:
    try:
        found = Declaration.from_json(load(content.decode()))
    except ValueError as error:
        raise DatabaseError(where, str(error), getattr(error, "lineno", None)) from error
    if found.kernel_id != kernel_id:
        msg = f"the file declares {found.kernel_id!r}, not {kernel_id!r}"
        raise DatabaseError(where, msg)
    return found


def _shard(
    where: str,
    whose: tuple[str, str],
    content: bytes,
    into: tuple[dict[Place, Entry], dict[Place, str]],
) -> None:
    """Read the lines of a shard of (kernel id, arch) into (entries, what can't be read)."""
    kernel_id, arch = whose
    entries, unread = into
    lines = split_lines(content)
    if content and not content.endswith(b"\n"):
        msg = "the last line is cut: it doesn't end in a newline"
        raise DatabaseError(where, msg, len(lines))
    for number, raw in enumerate(lines, start=1):
        try:
            line = parse_line(raw, number)
            device_name, bucket = split_key(line.key)
            place = Place(kernel_id, DeviceId(arch, device_name), bucket)
            if place in entries or place in unread:
                msg = f"duplicate key {line.key!r}; keep one of the lines"
                raise DatabaseError(where, msg, number)
            try:
                entries[place] = line.entry()
            except SchemaError as error:
                if not error.newer:
                    raise
                unread[place] = str(error)
        except ValueError as error:
            raise DatabaseError(where, str(error), number) from error


def to_files(contents: Contents) -> dict[str, bytes]:
    """The files of a database that holds these contents, by path; lines that weren't read aside."""
    files = {
        f"{KERNELS}/{kernel_id}.json": declaration.dumps().encode()
        for kernel_id, declaration in contents.declarations.items()
    }
    shards: dict[str, dict[str, bytes]] = {}
    for place, entry in contents.entries.items():
        key = join_key(place.device.name, place.bucket)
        lines = shards.setdefault(f"{place.device.arch}/{place.kernel_id}.jsonl", {})
        lines[key] = encode_line(key, entry).encode()
    files.update({path: join_lines(lines) for path, lines in shards.items()})
    return dict(sorted(files.items()))
