"""A database: the folder that holds declarations (`kernels/`) and shards (a folder for each arch)."""

from __future__ import annotations

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
        self._declarations: dict[str, Declaration | DatabaseError | None] = {}
        self._shards: dict[tuple[str, str], Shard | None] = {}

    def __repr__(self) -> str:
        return f"Database({str(self.path)!r})"

    def archs(self) -> tuple[str, ...]:
        """The archs that have a folder, sorted."""
        if self._archs is None:
            self._archs = tuple(p.name for p in children(self.path) if is_arch_folder(p))
        return self._archs

    def kernels(self) -> tuple[str, ...]:
        """The ids of the kernels that have a declaration or a shard, sorted."""
        if self._kernels is None:
            found = {p.stem for p in children(self.path / KERNELS) if p.suffix == ".json"}
            for arch in self.archs():
                found |= {p.stem for p in children(self.path / arch) if p.suffix == ".jsonl"}
            self._kernels = tuple(sorted(found))
        return self._kernels

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
            known = arch in self.archs() and kernel_id in self.kernels()
            path = shard_path(self.path, kernel_id, arch)
            self._shards[key] = Shard(path) if known and path.is_file() else None
        return self._shards[key]

    def _read_declaration(self, kernel_id: str) -> Declaration | DatabaseError | None:
        path = declaration_path(self.path, kernel_id)
        if kernel_id not in self.kernels() or not path.is_file():
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
        return sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:
        return []


def is_arch_folder(path: Path) -> bool:
    """Whether `path`, in a database's folder, is a folder of shards."""
    return path.name != KERNELS and not path.name.startswith(("_", ".")) and path.is_dir()
