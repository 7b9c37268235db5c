"""Which interpreter tunes, and in which environment: asked, never guessed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.errors import SettingError
from lfbo_aot.runtime.versions import base_version

if TYPE_CHECKING:
    from collections.abc import Mapping

NEEDED = ("torch", "helion", "triton", "sklearn", "numpy", "filelock", "packaging")
"""The modules without which nothing is tuned."""
DROPPED = ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONHOME")
"""What a front end sets to hide an interpreter's own packages from a build."""
_PATIENCE_S = 60.0
_SCRIPT = """
import importlib.util, json, sys
def there(name):
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None
def version(name):
    from importlib import metadata
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
missing = [name for name in sys.argv[1:] if not there(name)]
print(json.dumps({"missing": missing, "helion": version("helion")}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A program and the environment in which it has what tuning needs."""

    program: str
    environment: Mapping[str, str]
    helion: str | None = None
    """The base version of the Helion installed there, where that is told."""


@dataclass(frozen=True, slots=True)
class Search:
    """The interpreter found, or None; and what was tried, one line each."""

    found: Interpreter | None
    tried: tuple[str, ...]


def find_interpreter(named: str | None, environ: Mapping[str, str]) -> Search:
    """The interpreter that tunes: `named` (a path, or a command on PATH), else this one.

    It is asked first in the environment as it is, which is right without build isolation and
    where packages stand on `PYTHONPATH`; then without what pip's isolation sets, which makes the
    packages of the environment being installed into importable again. Raises SettingError where
    `named` is no program.
    """
    program = sys.executable if named is None else _program(named)
    tried: list[str] = []
    as_it_is = dict(environ)
    without = {name: value for name, value in environ.items() if name not in DROPPED}
    ways = [(as_it_is, "as it is")]
    if without != as_it_is:
        ways.append((without, f"without {', '.join(n for n in DROPPED if n in as_it_is)}"))
    for environment, how in ways:
        reason, helion = _ask(program, environment)
        tried.append(f"{program} {how}: {reason or 'has all that tuning needs'}")
        if not reason:
            return Search(Interpreter(program, environment, helion), tuple(tried))
    return Search(None, tuple(tried))


def _program(named: str) -> str:
    path = shutil.which(str(Path(named).expanduser()) if os.sep in named else named)
    if path is None:
        name = "LFBO_AOT_PYTHON"
        raise SettingError(name, named, hint="There is no such program.")
    return os.path.abspath(path)  # noqa: PTH100 - a venv's python is a link that must stay one


def _ask(program: str, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Why this interpreter can't tune, empty where it can; and the version of its Helion."""
    try:
        done = subprocess.run(
            [program, "-c", _SCRIPT, *NEEDED],
            env=dict(environment),
            cwd=Path(program).parent,  # the project's folder may hold a module of any name
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        told = json.loads(done.stdout.strip().rpartition("\n")[2])
        missing, helion = told["missing"], told["helion"]
    except subprocess.TimeoutExpired:
        return f"no answer in {_PATIENCE_S:.0f} s", None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["nothing said"]
        return f"exit {error.returncode}: {said[-1]}", None
    except (OSError, ValueError) as error:
        return f"can't be asked: {error}", None
    if missing:
        return f"no {', '.join(missing)}", None
    return "", None if helion is None else base_version(helion)
