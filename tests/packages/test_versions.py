"""The oldest and the newest pip and setuptools that are supported, pairwise."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from .conftest import Build
from .conftest import checkout
from .conftest import environment
from .conftest import make_environment

pytestmark = pytest.mark.slow

OLD_PIP, OLD_SETUPTOOLS = "23.3", "77.0.1"
SMALL = {"m": 4, "n": 16, "dtype": "float32"}
DEVICE = "cpu-interpreter/Triton interpreter"


@pytest.fixture(params=["old pip", "new pip"])
def pip(request):
    return f"=={OLD_PIP}" if request.param == "old pip" else ""


@pytest.fixture(params=["old setuptools", "new setuptools"])
def setuptools(request):
    return f"=={OLD_SETUPTOOLS}" if request.param == "old setuptools" else ""


@pytest.fixture
def build(pip, setuptools, wheels, tmp_path):
    """A fresh environment with a pip of its own, and wheels of one version of setuptools."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for wheel in wheels.glob("*.whl"):
        if not wheel.name.startswith("setuptools"):
            shutil.copy(wheel, folder)
    python = make_environment(tmp_path / "venv", tunes=True)
    front = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*front, "download", "-d", folder, f"setuptools{setuptools}"], check=True)
    subprocess.run([*front, "--python", python, "install", f"pip{pip}"], check=True)
    made = Build(python, folder, tmp_path)
    made.variables = {**environment(), **made.variables, "LFBO_AOT_DEVICE": "interpreter"}

    def own_pip(*words, **options):
        return made.run([python, "-m", "pip", *words], **options)

    made.pip = own_pip
    return made


def test_a_downstream_project_tunes_and_serves(build):
    project = build.case("flat")
    build.pip("install", project)
    assert build.look_up("twice", SMALL, DEVICE)[:2] == ["exact", "package flatkern"]
    _, files = build.wheel(project, isolated=True)
    for name, text in files.items():
        if name.startswith("flatkern/tuned/") and name.endswith(("json", "jsonl")):
            path = project / name.removeprefix("flatkern/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    (project / "tuned" / "manifest.json").unlink()
    for mode in ("lenient", "strict"):
        build.pip("install", "-e", project, "-C", f"editable_mode={mode}")
        assert build.look_up("square", SMALL, DEVICE)[:2] == ["exact", "package flatkern"]
    build.pip("install", "setuptools")
    _, files = build.wheel(project, LFBO_AOT_TUNE="require")
    assert "flatkern/tuned/cpu-interpreter/flatkern.twice.jsonl" in files


def test_this_project_builds_in_every_way(build):
    project = checkout(build.folder / "project")
    build.variables["LFBO_AOT_TUNE"] = "off"
    shape = {"m": 4096, "n": 5120, "dtype": "bfloat16"}
    for words in ([], ["-C", "editable_mode=lenient", "-e"], ["-C", "editable_mode=strict", "-e"]):
        build.pip("install", "--force-reinstall", *words, project)
        assert build.look_up("layer_norm", shape, "sm90/NVIDIA H200")[:2] == ["exact", "built-in"]
