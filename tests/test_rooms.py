"""Who may know whom: imports between the rooms of lfbo_aot go one way (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lfbo_aot

ROOT = Path(lfbo_aot.__file__).parent
KNOWS = {
    "registry": set(),
    "database": {"registry"},
    "runtime": {"database", "registry", "adapters"},
    "search": set(),
    "adapters": {"search"},
    "tuning": {"search", "database", "registry", "adapters"},
    "buildstep": {"database", "registry", "tuning", "runtime"},
    "cli": {"database", "registry", "runtime", "tuning", "search", "buildstep"},
}
HEAVY = {"torch", "helion", "triton", "numpy", "sklearn", "joblib"}


def imports(file: Path, *, top_level: bool = False) -> set[str]:
    """The modules that a file imports, those for type checkers aside."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    nodes = tree.body if top_level else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("room", sorted(KNOWS))
def test_a_room_imports_only_those_it_may_know(room: str) -> None:
    for file in sorted((ROOT / room).rglob("*.py")):
        rooms = {m.split(".")[1] for m in imports(file) if m.startswith("lfbo_aot.")}
        strangers = rooms - KNOWS[room] - {room, "errors"}
        assert not strangers, f"{file.relative_to(ROOT)} imports {sorted(strangers)}"


def test_only_the_adapter_imports_helions_internals() -> None:
    for file in sorted(ROOT.rglob("*.py")):
        inner = {m for m in imports(file) if m.startswith(("helion.autotuner", "helion._"))}
        assert not inner or file.parent.name == "adapters", f"{file}: {sorted(inner)}"


@pytest.mark.parametrize("room", ["registry", "database", "runtime", "cli", "buildstep"])
def test_light_rooms_load_nothing_heavy_when_imported(room: str) -> None:
    for file in sorted((ROOT / room).rglob("*.py")):
        heavy = {m.split(".")[0] for m in imports(file, top_level=True)} & HEAVY
        assert not heavy, f"{file.relative_to(ROOT)} imports {sorted(heavy)} when it is imported"


def test_the_search_knows_numpy_and_scikit_learn_only() -> None:
    for file in sorted((ROOT / "search").rglob("*.py")):
        heavy = {m.split(".")[0] for m in imports(file)} & HEAVY
        assert heavy <= {"numpy", "sklearn"}, f"{file.relative_to(ROOT)} imports {sorted(heavy)}"
