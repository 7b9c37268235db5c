"""Whether enumerating a kernel again would declare the same, known without importing anything.

A digest of a declaration, of the text of all that it follows from where that can be told
(`registry.plain`), and of the version of lfbo-aot. While it stays the same, so does the declaration;
unless Helion is another one, or told otherwise by the environment, as its defaults are among a
kernel's settings.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lfbo_aot.registry.plain import plain_kernels
from lfbo_aot.registry.reach import reach
from lfbo_aot.registry.scope import SourceError
from lfbo_aot.registry.syntax import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Mapping
    from pathlib import Path

    from lfbo_aot.registry.reach import Reached

_HARMLESS = (
    "HELION_AUTOTUNE",
    "HELION_CACHE",
    "HELION_DISALLOW_AUTOTUNING",
    "HELION_FORCE_AUTOTUNE",
    "HELION_LOGS",
    "HELION_PRINT",
    "HELION_SKIP_CACHE",
)
"""What the variables start with by which Helion is told nothing that a declaration holds."""


def enumeration_digest(file: Path, module: str, kernel_id: str, declared: str) -> str | None:
    """The digest for a kernel of `module`, which is in `file`; `declared` is its declaration's text.

    None where what the module declares can't be told from its text.
    """
    try:
        modules = reach(file, module)
        found = plain_kernels(modules, module).get(kernel_id)
    except (SourceError, RecursionError):
        return None
    return digest_of(modules, declared) if found is not None and found.module == module else None


def digest_of(modules: Mapping[str, Reached], declared: str) -> str | None:
    """The digest of a declaration and the modules that it follows from; None without a version."""
    version = _version()
    if version is None:
        return None
    lines = [f"lfbo-aot {version}", declared]
    lines += [f"{name} {canonical(reached.tree)}" for name, reached in sorted(modules.items())]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def told_otherwise(variables: Iterable[str]) -> list[str]:
    """Those of these environment variables by which Helion's defaults may be other ones, sorted."""
    return sorted(
        name
        for name in variables
        if name == "TRITON_F32_DEFAULT"
        or (name.startswith("HELION_") and not name.startswith(_HARMLESS))
    )


def _version() -> str | None:
    from importlib import metadata

    try:
        return metadata.version("lfbo-aot")
    except metadata.PackageNotFoundError:
        return None  # it is being built itself
