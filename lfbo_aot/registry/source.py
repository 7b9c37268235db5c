"""A digest of a kernel's source: of what it computes, not of how or where it is written.

The kernel function, and the functions, classes and globals of its own package (or, where it is in
none, of the files beside its own) that it reads, are taken in the order in which they are first read, each as the text of its syntax tree
(`registry.syntax`) with what each free name in it stands for: another of them, by its number, or
something outside the package, by its dotted name. So neither paths nor the order or the file of
other definitions count. Nothing is imported or run.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.registry.scope import Names
from lfbo_aot.registry.scope import Scope
from lfbo_aot.registry.scope import Source
from lfbo_aot.registry.scope import SourceError
from lfbo_aot.registry.scope import absolute
from lfbo_aot.registry.scope import bindings_of
from lfbo_aot.registry.scope import inner_imports
from lfbo_aot.registry.scope import parse_file
from lfbo_aot.registry.scope import parse_text
from lfbo_aot.registry.scope import position
from lfbo_aot.registry.scope import scope_of
from lfbo_aot.registry.syntax import canonical
from lfbo_aot.registry.syntax import uses

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SourceError", "source_digest"]

Target = tuple[Scope, str] | Source | str
"""What a name stands for: a definition, a module of the package, or something outside, by name."""


def source_digest(
    file: Path | str, qualname: str, *, module: str | None = None, text: str | None = None
) -> str:
    """The digest of function `qualname` of `file`, as `sha256:` and 64 hex digits.

    `module` is its dotted name where known; else it follows from the folders that hold an
    `__init__.py`. `text` stands in for a file that can't be read, as of a notebook's cell. Raises
    SourceError where there is no such function, or a file isn't Python.
    """
    walk = _Walk()
    source = walk.open_first(Path(file), module, text)
    body, scope = _enclosing(source, qualname)
    name = qualname.rpartition(".")[2]
    found = [
        binding.statement
        for binding in bindings_of(body).get(name, [])
        if isinstance(binding.statement, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    if not found:
        msg = f"{file} has no function {qualname!r}"
        raise SourceError(msg)
    walk.add(scope, name, found, decorators=False)
    walk.finish()
    return "sha256:" + hashlib.sha256("\n".join(walk.lines).encode()).hexdigest()


class _Walk:
    """Definitions in the order reached, and the text of each."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[object, int] = {}
        self._pending: list[Target] = []
        self._sources: dict[Path, Source | None] = {}

    def open_first(self, path: Path, module: str | None, text: str | None) -> Source:
        """The kernel's own file."""
        tree = parse_file(path) if text is None else parse_text(text.encode(), str(path))
        source = Source(path, tree, *position(path, module))
        self._sources[path] = source
        return source

    def add(
        self,
        scope: Scope,
        name: str,
        statements: Sequence[ast.stmt | ast.expr],
        *,
        decorators: bool = True,
    ) -> None:
        """Write down a definition: its statements, and what their free names stand for."""
        self._number((scope, name))
        for statement in statements:
            self.lines.append(canonical(statement, decorators=decorators))
            inner = Scope(scope.file, inner_imports(statement), scope)
            for used, attributes in uses(statement, decorators=decorators):
                targets = self._resolve(inner, used, attributes, frozenset())
                if targets:
                    names = sorted({self._name(target) for target in targets})
                    self.lines.append(f"{'.'.join((used, *attributes))}->{','.join(names)}")

    def finish(self) -> None:
        """Write down all that was reached."""
        while self._pending:
            target = self._pending.pop(0)
            if isinstance(target, Source):
                self.lines.append(f"#{self._number(target)}")
                self.add(target.scope, "", target.tree.body)
            elif not isinstance(target, str):
                scope, name = target
                self.lines.append(f"#{self._number(target)}")
                statements: list[ast.stmt | ast.expr] = []
                for binding in scope.bindings[name]:
                    if not isinstance(binding.statement, (ast.Import, ast.ImportFrom)):
                        statements += [*binding.conditions, binding.statement]
                self.add(scope, name, statements)

    def _number(self, target: object) -> int:
        return self._numbers.setdefault(target, len(self._numbers))

    def _name(self, target: Target) -> str:
        if isinstance(target, str):
            return target
        if target not in self._numbers:
            self._number(target)
            self._pending.append(target)
        return f"#{self._number(target)}"

    def _resolve(
        self, scope: Scope, name: str, attributes: Names, seen: frozenset[tuple[int, str]]
    ) -> list[Target]:
        """What `name.attributes` stands for in `scope`; empty for a builtin or an argument."""
        found = scope.find(name)
        key = (id(scope), name)
        if key in seen:
            return []
        seen |= {key}
        if found is None:
            return self._from_stars(scope.file, name, attributes, seen)
        where, bindings = found
        targets: list[Target] = []
        defined = False
        for binding in bindings:
            statement = binding.statement
            if isinstance(statement, ast.ImportFrom):
                targets += self._from_import(where.file, statement, name, attributes, seen)
            elif isinstance(statement, ast.Import):
                targets += self._plain_import(where.file, statement, name, attributes, seen)
            else:
                defined = True
        return [*targets, (where, name)] if defined else targets

    def _from_stars(
        self, file: Source, name: str, attributes: Names, seen: frozenset[tuple[int, str]]
    ) -> list[Target]:
        for star in file.scope.stars:
            parts = absolute(file, star)
            source = self._module(file, parts) if parts is not None else None
            if source is not None:
                found = self._resolve(source.scope, name, attributes, seen)
                if found:
                    return found
        return []

    def _from_import(
        self,
        file: Source,
        statement: ast.ImportFrom,
        name: str,
        attributes: Names,
        seen: frozenset[tuple[int, str]],
    ) -> list[Target]:
        targets: list[Target] = []
        parts = absolute(file, statement)
        for alias in statement.names:
            if (alias.asname or alias.name) != name:
                continue
            outside = "." * statement.level + ".".join(filter(None, (statement.module, alias.name)))
            source = self._module(file, parts) if parts is not None else None
            if source is not None and source.scope.find(alias.name):
                targets += self._resolve(source.scope, alias.name, attributes, seen)
                continue
            below = self._module(file, (*parts, alias.name)) if parts is not None else None
            if below is not None:
                targets += self._in_module(below, (*(parts or ()), alias.name), attributes, seen)
                continue
            starred = self._from_stars(source, alias.name, attributes, seen) if source else []
            targets += starred or [outside]
        return targets

    def _plain_import(
        self,
        file: Source,
        statement: ast.Import,
        name: str,
        attributes: Names,
        seen: frozenset[tuple[int, str]],
    ) -> list[Target]:
        targets: list[Target] = []
        for alias in statement.names:
            parts = tuple(alias.name.split("."))
            if alias.asname is None:
                parts = parts[:1]
            if (alias.asname or parts[0]) != name:
                continue
            rest = attributes
            source = self._module(file, parts)
            # `import a.b.c` names `a`; where only folders further in are known, go there first.
            while source is None and rest and file.prefix[: len(parts)] == parts:
                parts, rest = (*parts, rest[0]), rest[1:]
                source = self._module(file, parts)
            if source is None:
                targets.append(alias.name)
            else:
                targets += self._in_module(source, parts, rest, seen)
        return targets

    def _in_module(
        self, source: Source, parts: Names, attributes: Names, seen: frozenset[tuple[int, str]]
    ) -> list[Target]:
        """What `attributes` of a module stand for; the module where that can't be told."""
        if attributes:
            first, rest = attributes[0], attributes[1:]
            if source.scope.find(first):
                return self._resolve(source.scope, first, rest, seen)
            below = self._module(source, (*parts, first))
            if below is not None:
                return self._in_module(below, (*parts, first), rest, seen)
            starred = self._from_stars(source, first, rest, seen)
            if starred:
                return starred
        return [source]

    def _module(self, file: Source, parts: Names) -> Source | None:
        """The module of that dotted name, if it is a file of the package of `file`.

        Of a script, or a module in no package, if it is a file beside it.
        """
        depth = len(file.prefix)
        if parts[:depth] != file.prefix:
            return None
        if not depth and (len(parts) != 1 or not file.path.is_file()):
            return None
        base = file.root.joinpath(*parts[depth:])
        package = base / "__init__.py"
        is_package = depth > 0 and package.is_file()
        path = package if is_package else base.with_name(base.name + ".py")
        if path not in self._sources:
            self._sources[path] = (
                Source(path, parse_file(path), parts if is_package else parts[:-1], *_outer(file))
                if path.is_file()
                else None
            )
        return self._sources[path]


def _outer(file: Source) -> tuple[Names, Path]:
    return file.prefix, file.root


def _enclosing(source: Source, qualname: str) -> tuple[Sequence[ast.stmt], Scope]:
    """The body and scope in which the last name of `qualname` is defined."""
    body: Sequence[ast.stmt] = source.tree.body
    scope = source.scope
    for name in qualname.split(".")[:-1]:
        if name == "<locals>":
            continue
        inside: Sequence[ast.stmt] | None = None
        for binding in bindings_of(body).get(name, []):
            if isinstance(binding.statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inside = binding.statement.body
                if not isinstance(binding.statement, ast.ClassDef):
                    scope = scope_of(source, inside, scope)
        if inside is None:
            msg = f"{source.path} has no {name!r}, looked for in {qualname!r}"
            raise SourceError(msg)
        body = inside
    return body, scope
