"""What of a module runs when it is imported: its syntax without what only waits to be called."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from lfbo_aot.registry.allowed import only_names_types
from lfbo_aot.registry.reach import for_type_checkers

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def running(
    tree: ast.Module, called: set[str], free: frozenset[ast.AST] = frozenset()
) -> ast.Module:
    """`tree` itself, with only what runs: a function keeps its body if something is `called` so.

    So do all methods, as Python and what a class inherits call some of them by themselves, and
    decorated functions, as a decorator may call what it is given; but for those in `free`.
    Annotations go, where evaluating them does nothing, and what stands there for type checkers.
    """
    stripped = _Strip(tree, called, free).visit(tree)
    assert isinstance(stripped, ast.Module)  # noqa: S101 - it isn't replaced
    return stripped


class _Strip(ast.NodeTransformer):
    """Takes away what doesn't run on import: annotations, and functions that nothing calls."""

    def __init__(self, tree: ast.Module, called: set[str], free: frozenset[ast.AST]) -> None:
        self._called = called
        self._free = free
        self._for_type_checkers = for_type_checkers(tree)
        self._methods = {
            node
            for outer in ast.walk(tree)
            if isinstance(outer, ast.ClassDef)
            for node in ast.walk(outer)
        }
        self._postponed = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in tree.body
        )

    def visit(self, node: ast.AST) -> ast.AST | None:
        if node in self._for_type_checkers:
            assert isinstance(node, ast.If)  # noqa: S101 - as `for_type_checkers` says
            node.body = [ast.Pass()]
            node.test = ast.Constant(value=False)
        if isinstance(node, FUNCTIONS):
            node.returns = self._evaluated(node.returns)
            if not self._keeps_body(node):
                node.body = [ast.Pass()]
        if isinstance(node, ast.arg):
            node.annotation = self._evaluated(node.annotation)
        if isinstance(node, ast.AnnAssign):
            node.annotation = self._evaluated(node.annotation) or ast.Constant(value=None)
        found = self.generic_visit(node)
        assert found is not None  # noqa: S101 - nothing is dropped
        return found

    def _keeps_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        if node.name in self._called or node in self._methods:
            return True
        if node.name.startswith("_") and node.name.endswith("_"):
            return True  # as a module's `__getattr__` is called
        return bool(node.decorator_list) and node not in self._free

    def _evaluated(self, annotation: ast.expr | None) -> ast.expr | None:
        if annotation is None or self._postponed or only_names_types(annotation):
            return None
        return annotation


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Every name and attribute in what runs: a function called so may be called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def renamed(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name here, name there) of all that is imported under another name."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.asname is not None:
                    yield alias.asname, alias.name.rpartition(".")[2]
