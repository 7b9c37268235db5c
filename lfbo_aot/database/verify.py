"""Verifying: everything in a database that no look-up could serve, or that a reader would stumble on."""

from __future__ import annotations

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
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.errors import suggestion
from lfbo_aot.registry.devices import KNOWN
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import identify
from lfbo_aot.registry.devices import normalize_arch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def verify(path: Path) -> tuple[Problem, ...]:
    """What is wrong with the database at `path`, by file and line; empty where nothing is.

    Raises DatabaseError where `path` is no folder.
    """
    if not path.is_dir():
        msg = (
            "no such folder; a database is a folder that holds kernels/ and a folder for each arch"
        )
        raise DatabaseError(path, msg)
    database = Database(path)
    found: list[Problem] = []
    for child in children(path):
        if child.name == KERNELS and child.is_dir():
            found += _declarations(database, child)
        elif is_arch_folder(child):
            found += _arch(database, child)
        elif child.name not in _BESIDE:
            found.append(Problem(child, None, "stray: no look-up reads it"))
    return tuple(found)


def _declarations(database: Database, folder: Path) -> Iterator[Problem]:
    for file in children(folder):
        if file.suffix != ".json" or not file.is_file():
            yield Problem(file, None, "stray: this folder holds <kernel id>.json files only")
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
        if file.suffix != ".jsonl" or not file.is_file():
            yield Problem(file, None, "stray: this folder holds <kernel id>.jsonl files only")
            continue
        yield from _shard(file, arch, _declared(database, file.stem))
        declared_in = declaration_path(database.path, file.stem)
        if not declared_in.is_file():
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
    if device not in KNOWN:
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
