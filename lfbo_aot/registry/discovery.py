"""Finding kernels: importing the modules that declare them."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.errors import DeclarationError
from lfbo_aot.errors import DiscoveryError
from lfbo_aot.registry import catalog
from lfbo_aot.registry.spec import KernelSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

GROUP = "lfbo_aot.kernels"
SPEC = "lfbo_aot_spec"
"""The attribute by which a kernel object carries its spec."""

logger = logging.getLogger(__name__)


def announced() -> tuple[str, ...]:
    """The modules that installed packages announce in the entry-point group, sorted."""
    found = importlib.metadata.entry_points(group=GROUP)
    return tuple(sorted({point.module for point in found}))


def load_kernels(modules: Sequence[str] | None = None) -> tuple[KernelSpec, ...]:
    """The kernels of these modules, by id; of all announced ones where none are named.

    A module's kernels are those declared in it or below it, and those that it holds by name. A
    module is a dotted name, or the path of a `.py` file; of one that lies in a package, the dotted
    name is found out, so that its kernels have the ids that they have everywhere else. Raises
    DiscoveryError naming the module that can't be imported, or that ends the program, with the
    cause; a DeclarationError in it comes through as it is.
    """
    found: dict[str, KernelSpec] = {}
    for name in announced() if modules is None else modules:
        module = _import(name)
        held = [getattr(value, SPEC, None) for value in tuple(vars(module).values())]
        ids = {spec.kernel_id for spec in held if isinstance(spec, KernelSpec)}
        below = module.__name__ + "."
        for spec in catalog.specs():
            if spec.kernel_id in ids or f"{spec.module}.".startswith(below):
                found[spec.kernel_id] = spec
        logger.debug("module %s: %d kernels so far", name, len(found))
    return tuple(found[key] for key in sorted(found))


def _import(name: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _import_file(Path(name))
        return importlib.import_module(name)
    except DeclarationError:
        raise
    except (Exception, SystemExit) as error:
        raise DiscoveryError(name, error) from error


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        msg = f"no such file: {path}"
        raise ImportError(msg)
    if (path.parent / "__init__.py").is_file():
        return _import_from_package(path)
    before = sys.modules.get(path.stem)
    if before is not None and getattr(before, "__file__", None) == str(path):
        return before
    if before is not None:
        msg = f"a module named {path.stem!r} is loaded already; rename the file"
        raise ImportError(msg)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        msg = f"not a Python file: {path}"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _import_from_package(path: Path) -> ModuleType:
    """Import a file under its dotted name; the folder that holds its package goes on `sys.path`."""
    names = [] if path.name == "__init__.py" else [path.stem]
    root = path.parent
    while (root / "__init__.py").is_file() and root.name:
        names.insert(0, root.name)
        root = root.parent
    name = ".".join(names)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    module = importlib.import_module(name)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        msg = f"its name is {name}, and that is {found or 'no file'} here; rename its package"
        raise ImportError(msg)
    return module
