"""Python source as this package compares it: a canonical text of a syntax tree, and its free names.

The text holds node types and fields, and leaves out what differs between Python 3.10 and 3.13 or
doesn't change what code does: positions, comments, docstrings, load and store marks, type comments
and type parameters, and fields that are empty.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_params", "type_ignores"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Use = tuple[str, tuple[str, ...]]
"""A free name and the attributes read from it: `hl.tile` is `("hl", ("tile",))`."""


def canonical(node: ast.AST, *, decorators: bool = True) -> str:
    """The text of `node`; without the decorators of `node` itself where those don't count."""
    skip = frozenset() if decorators else frozenset({"decorator_list"})
    return _text(node, skip)


def _text(value: object, skip: frozenset[str] = frozenset()) -> str:
    if isinstance(value, list):
        return "[" + ",".join(_text(item) for item in value) + "]"
    if isinstance(value, ast.JoinedStr):
        return "JoinedStr" + _text(_joined(value))
    if isinstance(value, ast.AST):
        parts = []
        for name, field in ast.iter_fields(value):
            if name in _SKIPPED or name in skip or field is None:
                continue
            if name == "body" and isinstance(value, _DOCUMENTED):
                field = _undocumented(field)  # noqa: PLW2901 - the same field, less its docstring
            if name == "format_spec" and isinstance(field, ast.JoinedStr) and not _joined(field):
                continue  # an empty one is None or not by version
            if field == []:
                continue
            parts.append(f"{name}={_text(field)}")
        return f"{type(value).__name__}({','.join(parts)})"
    return f"{type(value).__name__}:{value!a}"


def _undocumented(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return body[1:]
    return body


def _joined(node: ast.JoinedStr) -> list[ast.expr]:
    """The values of an f-string with neighbouring texts made one, and empty ones dropped."""
    values: list[ast.expr] = []
    for value in node.values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            if values and isinstance(values[-1], ast.Constant):
                value = ast.Constant(str(values.pop().value) + value.value)  # type: ignore[attr-defined] # noqa: PLW2901
            if not value.value:
                continue
        values.append(value)
    return values


def uses(node: ast.AST, *, decorators: bool = True) -> tuple[Use, ...]:
    """The names that `node` reads and doesn't bind itself, in the order written, each use once.

    Names of an enclosing scope count, however deep in nested functions they are read.
    """
    found = dict.fromkeys(_uses(node, (), decorators=decorators))
    return tuple(found)


def _uses(
    node: ast.AST, scopes: tuple[frozenset[str], ...], *, decorators: bool = True
) -> Iterator[Use]:
    if isinstance(node, (ast.Name, ast.Attribute)):
        use = _dotted(node)
        if use is not None:
            if not any(use[0] in scope for scope in scopes):
                yield use
            return
    if isinstance(node, _FUNCTIONS):
        yield from _function_uses(node, scopes, decorators=decorators)
    elif isinstance(node, ast.ClassDef):
        yield from _class_uses(node, scopes)
    elif isinstance(node, _COMPREHENSIONS):
        yield from _comprehension_uses(node, scopes)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _uses(child, scopes)


def _class_uses(node: ast.ClassDef, scopes: tuple[frozenset[str], ...]) -> Iterator[Use]:
    for outer in (*node.decorator_list, *node.bases, *node.keywords):
        yield from _uses(outer, scopes)
    # What a class binds is seen by its own statements, not by its methods.
    inside = frozenset(_bound(node.body))
    for statement in node.body:
        hidden = () if isinstance(statement, _FUNCTIONS) else (inside,)
        yield from _uses(statement, (*scopes, *hidden))


def _comprehension_uses(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
    scopes: tuple[frozenset[str], ...],
) -> Iterator[Use]:
    first = node.generators[0].iter  # read outside the comprehension's own scope
    yield from _uses(first, scopes)
    targets = frozenset(
        name.id
        for part in node.generators
        for name in ast.walk(part.target)
        if isinstance(name, ast.Name)
    )
    for child in ast.iter_child_nodes(node):
        inner = ast.iter_child_nodes(child) if isinstance(child, ast.comprehension) else (child,)
        for below in inner:
            if below is not first:
                yield from _uses(below, (*scopes, targets))


def _function_uses(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
    scopes: tuple[frozenset[str], ...],
    *,
    decorators: bool,
) -> Iterator[Use]:
    arguments = node.args
    named = [
        *arguments.posonlyargs,
        *arguments.args,
        *(a for a in (arguments.vararg,) if a),
        *arguments.kwonlyargs,
        *(a for a in (arguments.kwarg,) if a),
    ]
    outer: list[ast.AST] = list(getattr(node, "decorator_list", ())) if decorators else []
    outer += [a.annotation for a in named if a.annotation]
    outer += [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]
    returns = getattr(node, "returns", None)
    outer += [returns] if returns else []
    for child in outer:
        yield from _uses(child, scopes)
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    local = {a.arg for a in named} | set(_bound(body))
    local -= {n for s in _own(body) if isinstance(s, ast.Global) for n in s.names}
    for statement in body:
        yield from _uses(statement, (*scopes, frozenset(local)))


def _dotted(node: ast.expr) -> Use | None:
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, tuple(reversed(attributes))) if isinstance(node, ast.Name) else None


def _own(body: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    """The nodes below `body` that share its scope; a nested scope's own node, but not its inside."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, _COMPREHENSIONS):
            # Only a walrus binds outside; the targets stay inside.
            pending.extend(n for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
            continue
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _bound(body: list[ast.stmt] | list[ast.expr]) -> Iterator[str]:
    """The names that one scope binds, but by imports: what is imported there is followed too."""
    for node in _own(body):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from bound_by(node)


def bound_in(statement: ast.stmt) -> Iterator[str]:
    """The names that `statement` binds in the scope where it stands; `t[0] = 1` rebinds `t`."""
    for node in _own([statement]):
        yield from bound_by(node)
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            root = node.value
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id


def bound_by(node: ast.AST) -> Iterator[str]:
    """The names that this one node binds, by itself."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif (isinstance(node, ast.ExceptHandler) and node.name) or (
        isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name
    ):
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
