"""A database: the folder that holds declarations (`kernels/`) and shards (a folder for each arch)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.shard import Shard
from lfbo_aot.errors import DatabaseError

KERNELS = "kernels"


class Database:
    """The declarations and shards below one folder, each read when first asked for, and kept.

    A folder that isn't there is an empty database. Nothing is ever written through it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._archs: tuple[str, ...] | None = None
        self._kernels: tuple[str, ...] | None = None
        self._listed: dict[str, frozenset[str]] = {}
        self._declarations: dict[str, Declaration | DatabaseError | None] = {}
        self._shards: dict[tuple[str, str], Shard | None] = {}
        self._unreadable: dict[Path, DatabaseError] = {}

    def __repr__(self) -> str:
        return f"Database({str(self.path)!r})"

    def archs(self) -> tuple[str, ...]:
        """The archs that have a folder, sorted."""
        if self._archs is None:
            found = sorted(name for name in self._files("") if _may_be_arch(name))
            self._archs = tuple(name for name in found if self._is_folder(self.path / name))
        return self._archs

    def kernels(self) -> tuple[str, ...]:
        """The ids of the kernels that have a declaration or a shard, sorted."""
        if self._kernels is None:
            found = _ids(self._declared_files(), ".json")
            for arch in self.archs():
                found |= _ids(self._files(arch), ".jsonl")
            self._kernels = tuple(sorted(found))
        return self._kernels

    def has(self, kernel_id: str) -> bool:
        """Whether a kernel of this id has a declaration or a shard."""
        if f"{kernel_id}.json" in self._declared_files():
            return True
        return any(f"{kernel_id}.jsonl" in self._files(arch) for arch in self.archs())

    def unreadable(self, arch: str | None = None) -> tuple[DatabaseError, ...]:
        """What of the database is there and can't be listed: for look-ups on `arch`, or all of it."""
        self._declared_files()
        for name in self.archs():
            if arch in (None, name):
                self._files(name)
        mine = None if arch is None else (self.path, self.path / arch)
        return tuple(e for path, e in self._unreadable.items() if mine is None or path in mine)

    def declaration(self, kernel_id: str) -> Declaration | None:
        """What is declared of a kernel; None where nothing is, DatabaseError where it is damaged."""
        if kernel_id not in self._declarations:
            self._declarations[kernel_id] = self._read_declaration(kernel_id)
        found = self._declarations[kernel_id]
        if isinstance(found, DatabaseError):
            raise DatabaseError(found.path, found.reason, found.line)
        return found

    def shard(self, kernel_id: str, arch: str) -> Shard | None:
        """The entries of a kernel on an arch; None where there is no such file."""
        key = kernel_id, arch
        if key not in self._shards:
            # What is there and is no file, such as a broken link, says so when it is read.
            held = arch in self.archs() and f"{kernel_id}.jsonl" in self._files(arch)
            self._shards[key] = Shard(shard_path(self.path, kernel_id, arch)) if held else None
        return self._shards[key]

    def _declared_files(self) -> frozenset[str]:
        self.archs()
        # Where the whole folder is closed that is said once, and not of each folder in it.
        return frozenset() if self.path in self._unreadable else self._files(KERNELS)

    def _files(self, folder: str) -> frozenset[str]:
        """The names in a folder of the database; none where it isn't there or can't be listed."""
        found = self._listed.get(folder)
        if found is None:
            if folder and folder not in self._files(""):
                return frozenset()
            path = self.path / folder
            try:
                found = frozenset(os.listdir(path))  # noqa: PTH208 - no path for each: they are many
            except (FileNotFoundError, NotADirectoryError):
                found = frozenset()
            except OSError as error:
                self._note(path, error)
                found = frozenset()
            self._listed[folder] = found
        return found

    def _is_folder(self, path: Path) -> bool:
        try:
            return stat.S_ISDIR(path.stat().st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._note(self.path, error)
            return False

    def _note(self, folder: Path, error: OSError) -> None:
        reason = f"can't be read: {error.strerror or error}"
        self._unreadable.setdefault(folder, DatabaseError(folder, reason))

    def _read_declaration(self, kernel_id: str) -> Declaration | DatabaseError | None:
        path = declaration_path(self.path, kernel_id)
        known = path.name in self._declared_files()
        if path.parent in self._unreadable:
            return self._unreadable[path.parent]
        if not known:
            return None
        try:
            found = Declaration.read(path)
        except DatabaseError as error:
            return error
        if found.kernel_id != kernel_id:
            return DatabaseError(path, f"the file declares {found.kernel_id!r}, not {kernel_id!r}")
        return found


def shard_path(root: Path, kernel_id: str, arch: str) -> Path:
    """Where a database at `root` keeps the entries of a kernel on an arch."""
    return root / arch / f"{kernel_id}.jsonl"


def declaration_path(root: Path, kernel_id: str) -> Path:
    """Where a database at `root` keeps the declaration of a kernel."""
    return root / KERNELS / f"{kernel_id}.json"


def children(folder: Path) -> list[Path]:
    """What a folder holds, sorted by name; empty where it is no folder that can be read."""
    try:
        return _sorted(folder)
    except OSError:
        return []


def is_arch_folder(path: Path) -> bool:
    """Whether `path`, in a database's folder, is a folder of shards."""
    return _may_be_arch(path.name) and os.path.isdir(path)  # noqa: PTH112 - is_dir() may raise


def _ids(names: frozenset[str], suffix: str) -> set[str]:
    return {name.removesuffix(suffix) for name in names if name.endswith(suffix)}


def _may_be_arch(name: str) -> bool:
    return name != KERNELS and not name.startswith(("_", "."))


def _sorted(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: path.name)
