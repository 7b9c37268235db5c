from __future__ import annotations

import ast
from pathlib import Path

import lfbo_aot

ROOT = Path(lfbo_aot.__file__).parent
ALLOWED = {"buildstep", "database", "errors", "registry", "runtime", "tuning"}
HEAVY = {"child.py", "work.py"}
"""What only the tuning process imports."""


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_who_knows_whom():
    for file in sorted((ROOT / "buildstep").glob("*.py")):
        rooms = {name.split(".")[1] for name in imported(file) if name.startswith("lfbo_aot.")}
        allowed = ALLOWED if file.name in HEAVY else ALLOWED - {"tuning"}
        assert rooms <= allowed, file.name
        if file.name not in HEAVY:
            modules = {name for name in imported(file) if name.startswith("lfbo_aot.buildstep.")}
            assert not {f"{name.rpartition('.')[2]}.py" for name in modules} & HEAVY, file.name


def test_only_the_command_the_hook_and_the_settings_know_setuptools():
    knowing = {
        file.name
        for file in (ROOT / "buildstep").glob("*.py")
        if any(name.startswith("setuptools") for name in imported(file))
    }
    assert knowing == {"command.py", "hook.py", "settings.py"}
