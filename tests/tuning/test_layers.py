from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lfbo_aot

ROOT = Path(lfbo_aot.__file__).parent
ALLOWED = {
    "tuning": {"adapters", "database", "errors", "registry", "search", "tuning"},
    "adapters": {"adapters", "errors", "search"},
}


@pytest.mark.parametrize("room", ALLOWED)
def test_who_knows_whom(room):
    known = {}
    for file in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name.startswith("lfbo_aot."):
                    known.setdefault(name.split(".")[1], file.name)
                helion_inside = name.startswith(("helion.autotuner", "helion._compiler"))
                assert not helion_inside or room == "adapters", file
    assert set(known) <= ALLOWED[room], known
