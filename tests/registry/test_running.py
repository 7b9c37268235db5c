from __future__ import annotations

import ast

import pytest

from lfbo_aot.registry.running import identifiers
from lfbo_aot.registry.running import renamed
from lfbo_aot.registry.running import running

TEXT = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import a
else:
    B = 1

def called(x: annotated = default) -> annotated:
    return inside

def waits(x):
    return hidden

@decorator
def handed(x):
    return seen_by_decorator

class C(base):
    n: annotated = value
    def __init__(self):
        self.x = made
    def method(self):
        return inherited_calls
"""


def test_bodies_stay_of_what_is_called_and_of_what_python_calls():
    tree = running(ast.parse(TEXT), {"called"})
    found = set(identifiers(tree))
    assert {
        "B",
        "default",
        "inside",
        "decorator",
        "seen_by_decorator",
        "inherited_calls",
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


def test_a_function_whose_decorators_do_not_call_it_waits():
    tree = ast.parse("@declared\ndef k(x):\n    return hidden\n")
    text = ast.unparse(running(tree, set(), frozenset(tree.body)))
    assert "declared" in text
    assert "hidden" not in text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("def f(x: reg()) -> ret(): ...\nn: var() = 1\n", {"reg", "ret", "var"}),
        ("from __future__ import annotations\ndef f(x: reg()): ...\n", set()),
        ("def f(x: a.b[c] | None) -> (d, 'e'): ...\nn: g\n", set()),
    ],
)
def test_annotations_stay_where_evaluating_them_does_something(text, kept):
    assert set(identifiers(running(ast.parse(text), set()))) - {"n"} == kept


def test_names_under_which_others_are_imported_are_told():
    text = "import a.b as c\nfrom .u import d as e, f\ndef g():\n    from . import h as i\n"
    assert set(renamed(ast.parse(text))) == {("c", "b"), ("e", "d"), ("i", "h")}
