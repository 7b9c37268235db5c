"""The database as the build writes it: whole files of known content, and nothing left from before."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

INIT = "__init__.py"
MANIFEST = "manifest.json"
INIT_TEXT = (
    b'"""The tuned database: data, found by its folder. Nothing in it is imported or run."""\n'
)


def database_files(folder: Path) -> list[str]:
    """The declarations and shards below `folder`, as sorted relative paths with `/`."""
    found = [*folder.glob("kernels/*.json"), *folder.glob("[!_.]*/*.jsonl")]
    return sorted(path.relative_to(folder).as_posix() for path in found if path.is_file())


def files_on_disk(folder: Path) -> list[str]:
    """All of the database's own files below `folder`: also `__init__.py` and the manifest."""
    more = [name for name in (INIT, MANIFEST) if (folder / name).is_file()]
    return sorted([*database_files(folder), *more])


def write_target(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` hold these files, by relative path, and nothing else.

    What an earlier build left there goes: `build/lib` outlives a build, and a shard that has moved
    would come back. A file is replaced as a whole, and one that is right already isn't touched. All
    get the same mode, so that a wheel's bytes don't depend on whose files they were.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in files:
            path.unlink()
    with tempfile.TemporaryDirectory(prefix=".lfbo-aot-", dir=folder.parent) as beside:
        for name in sorted(files):
            _write(folder / name, files[name], Path(beside, "new"))


def _write(path: Path, content: bytes, temporary: Path) -> None:
    if not path.is_file() or path.is_symlink() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    path.chmod(0o644)
