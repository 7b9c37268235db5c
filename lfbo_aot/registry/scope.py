"""Parsed files, the names that they bind, and where they stand in their package."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING

from lfbo_aot.errors import LfboAotError
from lfbo_aot.registry.syntax import bound_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence
    from pathlib import Path

Names = tuple[str, ...]


class SourceError(LfboAotError, ValueError):
    """The kernel's source can't be found or read."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A statement that binds a name, and the conditions that it stands under."""

    statement: ast.stmt
    conditions: tuple[ast.expr, ...] = ()


@dataclass(slots=True, eq=False)
class Scope:
    """The names that a file, or a function in it, binds."""

    file: Source
    bindings: dict[str, list[Binding]]
    parent: Scope | None = None
    stars: list[ast.ImportFrom] = field(default_factory=list)

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """The nearest scope that binds `name`, and how."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings:
                return scope, scope.bindings[name]
            scope = scope.parent
        return None


@dataclass(slots=True, eq=False)
class Source:
    """A parsed file, and where it stands in its package."""

    path: Path
    tree: ast.Module
    package: Names
    """The dotted name of the package that it is in."""
    prefix: Names
    """The outermost part of `package` whose folder is known, and that folder."""
    root: Path
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        self.scope = scope_of(self, self.tree.body)


def parse_file(path: Path) -> ast.Module:
    try:
        stat = path.stat()
        return _parse_cached(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        msg = f"{path} can't be read: {error}"
        raise SourceError(msg) from error


@lru_cache(maxsize=256)
def _parse_cached(path: Path, _mtime_ns: int, _size: int) -> ast.Module:
    return parse_text(path.read_bytes(), str(path))


def parse_text(data: bytes, name: str) -> ast.Module:
    try:
        return ast.parse(data, name)
    except (SyntaxError, ValueError) as error:
        msg = f"{name} isn't Python that this interpreter reads: {error}"
        raise SourceError(msg) from error


def position(path: Path, module: str | None) -> tuple[Names, Names, Path]:
    """The package of a file, the outermost part of it whose folder is known, and that folder."""
    folder = path.parent
    if module is None:
        names: list[str] = []
        outer = folder
        while (outer / "__init__.py").is_file() and outer.name:
            names.insert(0, outer.name)
            outer = outer.parent
        package: Names = tuple(names)
    else:
        parts = tuple(module.split("."))
        package = parts if path.name == "__init__.py" else parts[:-1]
    known = len(package)
    while known > 1 and folder.parent.name == package[known - 2]:
        known -= 1
        folder = folder.parent
    return package, package[:known], folder


def absolute(file: Source, statement: ast.ImportFrom) -> Names | None:
    """The dotted name of the module imported from; None where it lies above what is known."""
    named = tuple(statement.module.split(".")) if statement.module else ()
    if not statement.level:
        return named
    kept = len(file.package) - (statement.level - 1)
    return (*file.package[:kept], *named) if kept >= len(file.prefix) > 0 else None


def scope_of(file: Source, body: Sequence[ast.stmt], parent: Scope | None = None) -> Scope:
    stars = [
        node
        for node in body
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]
    return Scope(file, bindings_of(body), parent, stars)


def bindings_of(body: Sequence[ast.stmt]) -> dict[str, list[Binding]]:
    """By name, the statements of `body` that bind it, in the order written."""
    found: dict[str, list[Binding]] = {}
    for binding in _leaves(body, ()):
        for name in dict.fromkeys(bound_in(binding.statement)):
            found.setdefault(name, []).append(binding)
    return found


def _leaves(body: Sequence[ast.stmt], conditions: tuple[ast.expr, ...]) -> Iterator[Binding]:
    """The statements below `if` and `try`, with the conditions that they stand under."""
    for statement in body:
        if isinstance(statement, ast.If):
            inside = (*conditions, statement.test)
            yield from _leaves(statement.body, inside)
            yield from _leaves(statement.orelse, inside)
        elif isinstance(statement, ast.Try):
            yield from _leaves(statement.body, conditions)
            for handler in statement.handlers:
                yield from _leaves(handler.body, conditions)
            yield from _leaves(statement.orelse, conditions)
            yield from _leaves(statement.finalbody, conditions)
        else:
            yield Binding(statement, conditions)


def inner_imports(node: ast.AST) -> dict[str, list[Binding]]:
    """What functions below `node` import for themselves."""
    found: dict[str, list[Binding]] = {}
    for below in ast.walk(node):
        if isinstance(below, (ast.Import, ast.ImportFrom)):
            for name in bound_in(below):
                found.setdefault(name, []).append(Binding(below))
    return found
