"""A digest of the store: whether two processes, such as the ranks of a job, hold the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lfbo_aot.database.database import KERNELS
from lfbo_aot.database.database import declaration_path
from lfbo_aot.database.database import shard_path
from lfbo_aot.database.files import read_file
from lfbo_aot.registry.devices import normalize_arch
from lfbo_aot.runtime import state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lfbo_aot.database.database import Database


def digest(arch: str | None = None) -> str:
    """`sha256:` and 64 hex digits, equal in processes whose look-ups have equal answers.

    Of what the layers hold, in their order, and of the policy; of `arch` alone where one is given.
    Where the layers' folders lie and what they are called doesn't count, nor does a layer that holds
    nothing. Read from the disk as it is now: a process that has looked up before a file changed may
    answer from what it was. Raises DatabaseError, naming the file, on one that can't be read, and
    UnknownNameError on what is no arch.
    """
    only = None if arch is None else normalize_arch(arch)
    found = hashlib.sha256(state.policy().encode())
    for layer in state.store().layers:
        files = list(_files(type(layer.database)(layer.database.path), only))
        if files:
            found.update(b"\0layer\0")
        for name, content in files:
            found.update(f"{name}\0{len(content)}\0".encode())
            found.update(content)
    return "sha256:" + found.hexdigest()


def _files(database: Database, only: str | None) -> Iterator[tuple[str, bytes]]:
    """What a database holds, by its path in it."""
    closed = database.unreadable(only)
    if closed:
        raise closed[0]
    for kernel_id in database.kernels():
        held = [a for a in database.archs() if database.shard(kernel_id, a) and only in (None, a)]
        paths = {f"{a}/{kernel_id}": shard_path(database.path, kernel_id, a) for a in held}
        declared = declaration_path(database.path, kernel_id)
        if declared.exists() and (held or only is None):
            paths[f"{KERNELS}/{kernel_id}"] = declared
        for name, path in sorted(paths.items()):
            yield name, read_file(path)
