"""The modules that importing one runs, as far as its import statements tell. Nothing is imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lfbo_aot.registry.scope import SourceError
from lfbo_aot.registry.scope import parse_file
from lfbo_aot.registry.scope import position
from lfbo_aot.registry.syntax import bound_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from pathlib import Path

    from lfbo_aot.registry.scope import Names

LIBRARY = "lfbo_aot"
KERNELS = "kernels"
"""Of the library, a package like anybody's; the rest of it is known by its version."""
_FLAG = "typing.TYPE_CHECKING"
_COMPILED = (".so", ".pyd")


@dataclass(frozen=True, slots=True)
class Reached:
    """A module's syntax, and the package that its relative imports start from."""

    tree: ast.Module
    package: Names


def reach(file: Path, module: str) -> dict[str, Reached]:
    """`module`, which is in `file`, and all of its own package that it imports, by dotted name.

    Sorted. Packages run before what is in them, so they are among these. An import
    inside a function counts, one for type checkers doesn't. Raises SourceError where a module of the
    package isn't a file that can be read: a compiled one, or one that is mapped to another folder.
    """
    package = _Package(file, module)
    found: dict[str, Reached] = {}
    pending = list(package.run_by(tuple(module.split("."))))
    while pending:
        parts, path = pending.pop()
        name = ".".join(parts)
        if name not in found:
            inside = parts if path.name == "__init__.py" else parts[:-1]
            found[name] = Reached(parse_file(path), inside)
            for node in statements(found[name].tree):
                for target in _targets(node, inside):
                    pending += package.run_by(target)
    return dict(sorted(found.items()))


def surely_run(modules: Mapping[str, Reached], first: str) -> set[str]:
    """Those of the modules that are imported whenever `first` is: not by a function or a condition."""
    found: set[str] = set()
    pending = [tuple(first.split("."))]
    while pending:
        target = pending.pop()
        for depth in range(1, len(target) + 1):
            name = ".".join(target[:depth])
            if name in modules and name not in found:
                found.add(name)
                for node in modules[name].tree.body:
                    pending += _targets(node, modules[name].package)
    return found


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes below `tree`, but for what only type checkers read."""
    skipped = for_type_checkers(tree)
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending += skipped[node].orelse if node in skipped else ast.iter_child_nodes(node)


def for_type_checkers(tree: ast.AST) -> dict[ast.AST, ast.If]:
    """Each `if TYPE_CHECKING:` of a module, by itself; none where that may be another's than `typing`'s."""
    nodes = list(ast.walk(tree))
    bound: dict[str, set[str]] = {}
    for node in nodes:
        for name, target in _bindings(node):
            bound.setdefault(name, set()).add(target)
    names = {name for name, targets in bound.items() if targets == {_FLAG}}
    modules = {name for name, targets in bound.items() if targets == {"typing"}}
    if "*" in bound:
        return {}  # what comes with it isn't known here
    found: dict[ast.AST, ast.If] = {}
    for node in nodes:
        if isinstance(node, ast.If):
            test = node.test
            flag = isinstance(test, ast.Name) and test.id in names
            if isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING":
                flag = getattr(test.value, "id", None) in modules
            if flag:
                found[node] = node
    return found


def _bindings(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, dotted name that it is given to) of all that a node binds; "" where that isn't imported."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{'.' * node.level}{node.module}.{alias.name}"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name if alias.asname else top
    elif isinstance(node, ast.arg):
        yield node.arg, ""
    else:
        yield from ((name, "") for name in bound_by(node))


def _targets(node: ast.AST, package: Names) -> Iterator[Names]:
    """The dotted names that an import statement may load."""
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = origin(node, package)
        yield base
        yield from ((*base, alias.name, "") for alias in node.names if alias.name != "*")


def origin(node: ast.ImportFrom, package: Names) -> Names:
    """The dotted name of what is imported from; SourceError where it lies above the top."""
    named = tuple(node.module.split(".")) if node.module else ()
    if not node.level:
        return named
    kept = len(package) - (node.level - 1)
    if kept < 1:
        msg = f"a relative import, {'.' * node.level}{node.module or ''}, leads out of its package"
        raise SourceError(msg)
    return (*package[:kept], *named)


class _Package:
    """The files of the package that a module is in."""

    def __init__(self, file: Path, module: str) -> None:
        self._top = module.partition(".")[0]
        _, self._prefix, self._root = position(file, module)

    def run_by(self, target: Names) -> list[tuple[Names, Path]]:
        """The modules of this package that importing `target` runs: the packages that it is in, too.

        A name that ends in an empty part may be that of an attribute of the module before it.
        """
        maybe = target[-1:] == ("",)
        parts = target[:-1] if maybe else target
        if not self.is_own(parts):
            return []
        found = []
        for depth in range(1, len(parts) + 1):
            path = self._file(parts[:depth], optional=maybe and depth == len(parts))
            if path is not None:
                found.append((parts[:depth], path))
        return found

    def is_own(self, parts: Names) -> bool:
        """Whether a dotted name is of this package; of a file in none, whether it is a file beside."""
        if not self._prefix:
            return len(parts) == 1 and (self._root / f"{parts[0]}.py").is_file()
        if self._top == LIBRARY:
            return parts[:2] == (LIBRARY, KERNELS)
        return parts[:1] == (self._top,)

    def _file(self, parts: Names, *, optional: bool) -> Path | None:
        """The file of a module; None for a folder without one, or where it may be no module."""
        if not self.is_own(parts):
            return None  # the library itself, above its kernels
        depth = len(self._prefix)
        if parts[:depth] != self._prefix:
            msg = (
                f"the folder of {'.'.join(parts)} isn't known from that of {'.'.join(self._prefix)}"
            )
            raise SourceError(msg)
        base = self._root.joinpath(*parts[depth:])
        init, plain = base / "__init__.py", base.with_name(f"{base.name}.py")
        beside = (*base.parent.glob(f"{base.name}.*"), *base.glob("__init__.*"))
        compiled = next((file for file in beside if file.suffix in _COMPILED), None)
        if depth and compiled is not None:
            msg = f"{'.'.join(parts)} is compiled, as {compiled.name}, which Python takes first"
            raise SourceError(msg)
        if depth and init.is_file():
            return init
        if len(parts) > depth and plain.is_file():
            return plain
        if optional or (depth and base.is_dir()):
            return None
        msg = f"{'.'.join(parts)} is no Python file in {base.parent}"
        raise SourceError(msg)
