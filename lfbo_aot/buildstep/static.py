"""Source digests without running anything: what a build can know of kernels where torch isn't."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from lfbo_aot.registry.source import SourceError
from lfbo_aot.registry.source import source_digest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from collections.abc import Sequence
    from pathlib import Path


def static_digests(names: Iterable[str], modules: Sequence[str], root: Path) -> dict[str, set[str]]:
    """The digests of the functions called `names` in these modules and below, by name.

    `root` is the folder that the modules' top-level packages lie in. A name that no file defines
    has none; so has a kernel that is registered for a function of another package.
    """
    found: dict[str, set[str]] = {name: set() for name in names}
    for module, path in _files(modules, root):
        for name in _functions(path) & found.keys():
            try:
                found[name].add(source_digest(path, name, module=module))
            except SourceError:
                continue  # a file that it reads isn't Python: nothing agrees with that
    return found


def _files(modules: Sequence[str], root: Path) -> Iterator[tuple[str, Path]]:
    for module in modules:
        base = root.joinpath(*module.split("."))
        if base.is_dir():
            for path in sorted(base.rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path
        elif base.with_suffix(".py").is_file():
            yield module, base.with_suffix(".py")


def _functions(path: Path) -> set[str]:
    """The functions that a file defines at its top level; none where it isn't Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return set()
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
