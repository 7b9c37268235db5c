"""What several commands take: shapes as `dim=value`, and a database laid over the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.database.store import is_missing
from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import LfboAotError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.buckets import parse_part
from lfbo_aot.registry.dims import Interval
from lfbo_aot.runtime import state

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from collections.abc import Sequence

    from lfbo_aot.database.store import Store
    from lfbo_aot.registry.dims import Value
    from lfbo_aot.registry.spec import KernelSpec
    from lfbo_aot.runtime.environment import Environment


class UsageError(LfboAotError):
    """The command was called in a way that it can't be."""


def parse_dims(words: Iterable[str]) -> dict[str, Value]:
    """The shape written `m=4096 causal=true dtype=bfloat16`; UsageError where it isn't written so.

    Whole numbers and true/false are read as such, anything else as text: as in keys.
    """
    shape: dict[str, Value] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier() or not text:
            msg = f"{word!r} isn't written dim=value, such as m=4096"
            raise UsageError(msg)
        if name in shape:
            msg = f"dim {name!r} is given twice"
            raise UsageError(msg)
        shape[name] = _parse_value(name, text)
    return shape


def parse_where(words: Iterable[str]) -> dict[str, tuple[Value, ...]]:
    """The values written `n=4096,5120`, by dim; UsageError where they aren't written so."""
    found: dict[str, tuple[Value, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        for one in text.split(","):
            found[name] = (*found.get(name, ()), parse_dims([f"{name}={one}"])[name])
    return found


def add_database(parser: argparse.ArgumentParser) -> None:
    """The option `--database DIR`."""
    parser.add_argument(
        "--database", metavar="DIR", type=Path, help="lay the database in DIR over the rest"
    )


def pick_store(database: Path | None) -> Store:
    """The store of this process, with `database` over it; UsageError where that is no folder."""
    store = state.store()
    return store if database is None else store.over(existing_folder(database))


def existing_folder(path: Path) -> Path:
    """`path` as an absolute path; UsageError where it is no folder."""
    if is_missing(path):
        msg = f"no such folder: {path}"
        raise UsageError(msg)
    return path.absolute()


def is_read(folder: Path) -> bool:
    """Whether a layer of this process's look-ups is the database in `folder`."""
    return any(is_same(folder, layer.database.path) for layer in state.store().layers)


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one database."""
    return os.path.realpath(one) == os.path.realpath(other)


def unread_text(folder: Path) -> str:
    """What is to be said of a database that no look-up reads, such as a folder just written."""
    return f"no look-up reads {folder} yet: name it in LFBO_AOT_PATH"


def database_to_read(path: Path | None) -> Path:
    """`path`, or the user's database where none is named, as an absolute path.

    UsageError where it is no folder.
    """
    if path is not None:
        return existing_folder(path)
    from lfbo_aot.database.store import user_database

    mine = user_database()
    if not mine.is_dir():
        msg = f"you have no database of your own yet ({mine}); name one with --database"
        raise UsageError(msg)
    return mine


def find_kernels(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The ids of the kernels so called, by id or bare name, among those known.

    Raises AmbiguousKernelError where several have a bare name, UnknownNameError where none has.
    """
    found = []
    for name in names:
        ids = [k for k in known if k == name] or [k for k in known if k.endswith(f".{name}")]
        if not ids:
            kind = "kernel"
            near = known if "." in name else {k.rpartition(".")[2] for k in known}
            raise UnknownNameError(kind, name, near)
        if len(ids) > 1:
            raise AmbiguousKernelError(name, ids)
        found += ids
    return tuple(dict.fromkeys(found))


def load_specs(names: Sequence[str], modules: Sequence[str] | None) -> list[KernelSpec]:
    """The kernels named, or all that the modules, or else installed packages, declare.

    The modules are imported. UsageError where they declare none, UnknownNameError for a name that
    none of them has.
    """
    from lfbo_aot.registry import catalog
    from lfbo_aot.registry.discovery import load_kernels

    if modules:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    loaded = load_kernels(modules)
    if not loaded:
        msg = "no kernel is declared; name a module with --module, or install a package with one"
        raise UsageError(msg)
    if not names:
        return list(loaded)
    found = [catalog.find(name) for name in names]
    for name, spec in zip(names, found, strict=True):
        if spec not in loaded:
            kind = "kernel"
            raise UnknownNameError(kind, name, [s.kernel_id for s in loaded])
    return list(dict.fromkeys(found))


def with_announced(specs: Sequence[KernelSpec]) -> list[KernelSpec]:
    """These kernels, and those that installed packages announce, whose modules are imported."""
    from lfbo_aot.registry.discovery import load_kernels

    found = {spec.kernel_id: spec for spec in (*load_kernels(), *specs)}
    return [found[kernel_id] for kernel_id in sorted(found)]


def environment_of(spec: KernelSpec) -> Environment:
    """What the kernel's own look-ups compare entries with: source, settings, loaded versions."""
    from lfbo_aot.runtime.environment import Environment
    from lfbo_aot.runtime.versions import loaded_versions

    return Environment(source=spec.source, settings=spec.settings, versions=loaded_versions())


def write_file(path: Path, content: bytes) -> Path:
    """Write a whole file in one step, and its folder; where it is. DatabaseError if it can't be."""
    path = path.absolute()
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise DatabaseError(path, f"can't be written: {error.strerror or error}") from error
    return path


def _parse_value(name: str, text: str) -> Value:
    try:
        part = parse_part(text.lower() if text in ("True", "False") else text)
    except ValueError as error:
        msg = f"{name}={text}: {error}"
        raise UsageError(msg) from None
    if isinstance(part, Interval):
        msg = f"{name}={text} is an interval; give one value"
        raise UsageError(msg)
    return part


def seconds(text: str) -> float:
    """A number of seconds from 0 up; for argparse."""
    import argparse
    import math

    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        msg = f"{text!r} is not a number of seconds from 0 up"
        raise argparse.ArgumentTypeError(msg)
    return value


def positive(text: str) -> int:
    """A whole number from 1 up; for argparse."""
    import argparse

    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        msg = f"{text!r} is not a whole number from 1 up"
        raise argparse.ArgumentTypeError(msg)
    return int(text)
