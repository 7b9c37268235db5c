"""What a host function that Helion generated would launch: recorded, or compiled and loaded.

Nothing here launches a kernel.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

# Of the launcher's own arguments (they start with an underscore) the one that asks for no memory.
_HARMLESS = "_minimum_resident_programs"


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch that a host function would have made."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def launches(function: Callable[..., Any], args: Sequence[Any]) -> list[Launch]:
    """The launches that `function(*args)` makes, none of them carried out."""
    seen: list[Launch] = []

    def record(kernel: Any, grid: tuple[int, ...], *args: Any, **kwargs: Any) -> None:
        seen.append(Launch(kernel, grid, args, kwargs))

    function(*args, _launcher=record)
    return seen


class CompileFailedError(Exception):
    """A kernel can't be compiled, or its binary not loaded; the text says why."""


def compile_and_load(function: Callable[..., Any], args: Sequence[Any]) -> int:
    """Compile and load the kernels that `function(*args)` launches; how many there were.

    They go through the function's own launcher with the same arguments as at a call, so that the
    call finds them in Triton's cache in memory. Raises CompileFailedError where that fails, and
    whatever the function itself, or a launcher of another kind than Triton's, raises.

    Triton's interpreter compiles nothing: there only the host code runs.
    """
    launcher = inspect.signature(function).parameters["_launcher"].default
    compiled = 0

    def compiling(kernel: Any, grid: Any, *given: Any, **options: Any) -> None:
        nonlocal compiled
        if not hasattr(kernel, "device_caches"):
            return
        if any(name.startswith("_") and options[name] for name in options if name != _HARMLESS):
            # It would set memory up that processes share: left to the call itself.
            logger.debug("not compiled before its launch: %s", kernel)
            return
        stand_in = _Compiling(kernel)
        try:
            launcher(stand_in, grid, *given, **options)
        except Exception as error:
            if not stand_in.reached:
                raise
            msg = f"{type(error).__name__}: {_first_line(error)}"
            raise CompileFailedError(msg) from error
        compiled += 1

    function(*args, _launcher=compiling)
    return compiled


class _Compiling:
    """Stands for a Triton kernel in a launcher: to run it compiles and loads it."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.reached = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.reached = True
        compiled = self._kernel.run(*args, **{**kwargs, "warmup": True})
        if hasattr(compiled, "result"):  # compiled by another thread
            compiled = compiled.result()
        if compiled is not None:
            # There is no public way to load a binary that says the same thing when asked twice.
            compiled._init_handles()  # noqa: SLF001
        return compiled


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""
