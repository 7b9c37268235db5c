"""Verifying: everything in a database that no look-up could serve, or that a reader would stumble on."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.database.database import KERNELS
from lfbo_aot.database.database import Database
from lfbo_aot.database.database import children
from lfbo_aot.database.database import declaration_path
from lfbo_aot.database.database import is_arch_folder
from lfbo_aot.database.line import Line
from lfbo_aot.database.line import parse_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.problem import Problem
from lfbo_aot.database.shard import split_lines
from lfbo_aot.database.store import is_missing
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.errors import suggestion
from lfbo_aot.registry.devices import KNOWN
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import can_be
from lfbo_aot.registry.devices import identify
from lfbo_aot.registry.devices import normalize_arch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lfbo_aot.database.declaration import Declaration

__all__ = ["Problem", "verify"]

_BESIDE = (
    "__init__.py",
    "__pycache__",
    "manifest.json",
    "origins.jsonl",
    ".gitattributes",
    ".gitignore",
)


_MARKS = (KERNELS, "manifest.json", "origins.jsonl")
_WHAT_IT_IS = "a database is a folder that holds kernels/ and a folder for each arch"


def verify(path: Path) -> tuple[Problem, ...]:
    """What is wrong with the database at `path`, by file and line; empty where nothing is.

    Raises DatabaseError where `path` is no folder.
    """
    if is_missing(path):
        msg = f"no such folder; {_WHAT_IT_IS}"
        raise DatabaseError(path, msg)
    database = Database(path)
    found = [Problem(Path(e.path), None, e.reason) for e in database.unreadable()]
    if not found and not _is_database(path):
        return (Problem(path, None, f"isn't a database: {_WHAT_IT_IS}"),)
    for child in children(path):
        if child.name == KERNELS and os.path.isdir(child):  # noqa: PTH112 - is_dir() may raise
            found += _declarations(database, child)
        elif is_arch_folder(child):
            found += _arch(database, child)
        elif child.name not in _BESIDE:
            found.append(Problem(child, None, "stray: no look-up reads it"))
    return tuple(found)


def _is_database(path: Path) -> bool:
    """Whether the folder holds anything that only a database does."""
    inside = children(path)
    return any(child.name in _MARKS for child in inside) or any(
        file.suffix == ".jsonl"
        for child in inside
        if is_arch_folder(child)
        for file in children(child)
    )


def _not_a_file(file: Path, suffix: str) -> str:
    """Why no look-up reads `file` as a declaration or a shard; empty where one does."""
    try:
        if file.suffix == suffix and stat.S_ISREG(file.stat().st_mode):
            return ""
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    return f"stray: this folder holds <kernel id>{suffix} files only"


def _declarations(database: Database, folder: Path) -> Iterator[Problem]:
    for file in children(folder):
        reason = _not_a_file(file, ".json")
        if reason:
            yield Problem(file, None, reason)
            continue
        try:
            database.declaration(file.stem)
        except DatabaseError as error:
            yield Problem(file, error.line, error.reason)


def _arch(database: Database, folder: Path) -> Iterator[Problem]:
    try:
        arch = normalize_arch(folder.name)
    except UnknownNameError as error:
        yield Problem(folder, None, str(error))
        return
    if arch != folder.name:
        yield Problem(folder, None, f"no look-up reads it: the folder of this arch is {arch!r}")
        return
    for file in children(folder):
        reason = _not_a_file(file, ".jsonl")
        if reason:
            yield Problem(file, None, reason)
            continue
        yield from _shard(file, arch, _declared(database, file.stem))
        declared_in = declaration_path(database.path, file.stem)
        if not os.path.isfile(declared_in):  # noqa: PTH113
            yield Problem(file, 1, f"a shard without a declaration: {declared_in} is missing")


def _declared(database: Database, kernel_id: str) -> Declaration | None:
    """The declaration to check against; a damaged one is a problem of its own file."""
    try:
        return database.declaration(kernel_id)
    except DatabaseError:
        return None


def _shard(file: Path, arch: str, declaration: Declaration | None) -> Iterator[Problem]:
    try:
        content = file.read_bytes()
    except OSError as error:
        yield Problem(file, None, f"can't be read: {error.strerror}")
        return
    first: dict[str, int] = {}
    before = ""
    lines = split_lines(content)
    for number, raw in enumerate(lines, start=1):
        try:
            line = parse_line(raw, number)
        except ValueError as error:
            yield Problem(file, number, str(error))
            continue
        for reason in (_key(line, arch, declaration), _entry(line)):
            if reason:
                yield Problem(file, number, reason)
        if line.key in first:
            reason = f"duplicate key {line.key!r}: it stands on line {first[line.key]} too"
            yield Problem(file, number, reason)
        elif line.key < before:
            yield Problem(file, number, f"not sorted: {line.key!r} belongs before {before!r}")
        first.setdefault(line.key, number)
        before = max(before, line.key)
    if content and not content.endswith(b"\n"):
        yield Problem(file, len(lines), "the last line is cut: it doesn't end in a newline")


def _entry(line: Line) -> str:
    try:
        line.entry()
    except ValueError as error:
        return str(error)
    return ""


def _key(line: Line, arch: str, declaration: Declaration | None) -> str:
    """Why no look-up gets to this key; empty where one does."""
    try:
        name, bucket = split_key(line.key)
    except ValueError as error:
        return str(error)
    device = DeviceId(arch, name)
    if not can_be(device):
        return _unknown_device(device)
    if declaration is not None and bucket.names != tuple(declaration.dims):
        declared = ", ".join(declaration.dims)
        return f"unreachable: the dims are {', '.join(bucket.names)}, and {declared} are declared"
    return ""


def _unknown_device(device: DeviceId) -> str:
    elsewhere = [known.arch for known in KNOWN if known.name == device.name]
    if elsewhere:
        return f"device {device.name!r} is of arch {elsewhere[0]}, not {device.arch}"
    same = identify(device.arch, device.name)
    if same in KNOWN:
        return f"unknown device {device.name!r}: look-ups call it {same.name!r}"
    near = suggestion(device.name, [known.name for known in KNOWN if known.arch == device.arch])
    return f"unknown device {device.name!r} of arch {device.arch}. {near}".strip()
