"""What a kernel's results are judged by, as journals hold it."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.registry.source import SourceError
from lfbo_aot.registry.source import source_digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lfbo_aot.registry.spec import KernelSpec


def judged_by(spec: KernelSpec) -> dict[str, Any]:
    """Tolerance, `reference=` and `inputs=`: trials under another one don't count.

    A function is told by the digest of its source where it belongs to the kernel's package or
    folder, and by its dotted name elsewhere. One that has neither, such as a lambda, is left out.
    """
    found: dict[str, Any] = {"tolerance": {k: list(v) for k, v in sorted(spec.tolerance.items())}}
    for name, function in (("reference", spec.reference), ("inputs", spec.inputs)):
        told = _told(function, spec) if function is not None else "none"
        if told:
            found[name] = told
    return found


def _told(function: Callable[..., Any], spec: KernelSpec) -> str:
    function = inspect.unwrap(function)
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", "")
    if "<lambda>" in name or not name:
        return ""
    code = getattr(function, "__code__", None)
    if code is not None and _is_near(module, code.co_filename, spec):
        return _digest(code.co_filename, name, None if module == "__main__" else module or None)
    return f"{module}.{name}"


def _is_near(module: str, file: str, spec: KernelSpec) -> bool:
    """Whether the function may change with the kernel; a library's source is left unread."""
    same_package = module.partition(".")[0] == spec.module.partition(".")[0]
    return same_package or Path(file).parent == Path(spec.file).parent


@functools.lru_cache(maxsize=256)
def _digest(file: str, qualname: str, module: str | None) -> str:
    """The digest of a function's source; empty where it can't be had."""
    try:
        return source_digest(file, qualname, module=module)
    except SourceError:
        return ""
