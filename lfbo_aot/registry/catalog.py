"""The kernels that this process has declared, by id."""

from __future__ import annotations

import linecache
import os
from typing import TYPE_CHECKING

from lfbo_aot.errors import AmbiguousKernelError
from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.locks import ForkLock

if TYPE_CHECKING:
    from lfbo_aot.registry.spec import KernelSpec

_specs: dict[str, KernelSpec] = {}
_lock = ForkLock()


def add(spec: KernelSpec) -> None:
    """Keep `spec`; one from the same place, as after a reload, replaces the one before.

    Raises DeclarationError, naming both places, where another kernel has the id.
    """
    with _lock:
        before = _specs.get(spec.kernel_id)
        if before is not None and not _same_place(before, spec):
            msg = (
                f"this id is taken by the kernel at {before.place}; "
                "rename one of them, or give one another package="
            )
            raise DeclarationError(msg, kernel=spec.kernel_id, place=spec.place)
        _specs[spec.kernel_id] = spec


def discard(kernel_id: str) -> None:
    """Forget the kernel of this id, if there is one."""
    with _lock:
        _specs.pop(kernel_id, None)


def specs() -> tuple[KernelSpec, ...]:
    """Every declared kernel, by id."""
    with _lock:
        return tuple(_specs[key] for key in sorted(_specs))


def find(name: str) -> KernelSpec:
    """The kernel of that id, or of that bare name where only one kernel has it.

    Raises AmbiguousKernelError where several have it, UnknownNameError where none has.
    """
    with _lock:
        known = dict(_specs)
    if name in known:
        return known[name]
    ids = [key for key in known if key.rpartition(".")[2] == name]
    if len(ids) > 1:
        raise AmbiguousKernelError(name, ids)
    if ids:
        return known[ids[0]]
    kind, hint = "kernel", "" if known else "No kernel module has been imported."
    raise UnknownNameError(kind, name, known, hint)


def _same_place(before: KernelSpec, now: KernelSpec) -> bool:
    """Whether both are one definition, perhaps moved by an edit since the first was loaded."""
    if os.path.realpath(before.file) != os.path.realpath(now.file):
        return False
    if before.line == now.line:
        return True
    linecache.checkcache(before.file)
    text = linecache.getline(before.file, before.line)
    return f"def {before.name}(" not in text
