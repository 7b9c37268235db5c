from __future__ import annotations

import ast

from lfbo_aot.registry.running import identifiers
from lfbo_aot.registry.running import running

TEXT = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import a
else:
    B = 1

def called(x: annotated = default) -> annotated:
    return inside

@decorator
def waits(x):
    return hidden

class C(base):
    n: annotated = value
    def __init__(self):
        self.x = made
    def method(self):
        return hidden
"""


def test_bodies_stay_of_what_is_called_and_of_what_python_calls():
    tree = running(ast.parse(TEXT), {"called"})
    found = set(identifiers(tree))
    assert {
        "B",
        "default",
        "inside",
        "decorator",
        "base",
        "value",
        "made",
        "x",
        "self",
    } == found - {"n"}
    assert "hidden" not in ast.unparse(tree)
    assert "annotated" not in ast.unparse(tree)
    assert "import a" not in ast.unparse(tree)


def test_nothing_is_called_by_a_name_that_only_stands_in_text():
    assert set(identifiers(ast.parse("__all__ = ['f']\nx.y(f=1)\n"))) == {"__all__", "x", "y"}
