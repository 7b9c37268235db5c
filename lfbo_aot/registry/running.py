"""What of a module runs when it is imported: its syntax without what only waits to be called."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from lfbo_aot.registry.reach import for_type_checkers

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def running(tree: ast.Module, called: set[str]) -> ast.Module:
    """`tree` itself, with only what runs: a function keeps its body if something is `called` so.

    So do methods that Python calls by itself, as `__init__`. Annotations go, and what stands there for
    type checkers.
    """
    stripped = _Strip(called).visit(tree)
    assert isinstance(stripped, ast.Module)  # noqa: S101 - it isn't replaced
    return stripped


class _Strip(ast.NodeTransformer):
    """Takes away what doesn't run on import: annotations, and functions that nothing calls."""

    def __init__(self, called: set[str]) -> None:
        self._called = called

    def visit(self, node: ast.AST) -> ast.AST | None:
        if for_type_checkers(node):
            assert isinstance(node, ast.If)  # noqa: S101 - as `for_type_checkers` says
            node.body = [ast.Pass()]
            node.test = ast.Constant(value=False)
        if isinstance(node, FUNCTIONS):
            node.returns = None
            by_itself = node.name.startswith("_") and node.name.endswith("_")  # as `__init__` is
            if not by_itself and node.name not in self._called:
                node.body = [ast.Pass()]
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)
        found = self.generic_visit(node)
        assert found is not None  # noqa: S101 - nothing is dropped
        return found


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Every name and attribute in what runs: a function called so may be called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
