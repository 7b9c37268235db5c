"""The project in examples/downstream, as its README says."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from .conftest import ROOT

DEVICE = "cpu-interpreter/Triton interpreter"
SMALL = {"m": 8, "n": 64, "dtype": "float32"}
INTERPRETER = {"LFBO_AOT_ARCHS": "cpu-interpreter"}


@pytest.fixture
def example(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "dist", "wheels")
    return shutil.copytree(
        ROOT / "examples" / "downstream", tmp_path / "downstream", ignore=ignored
    )


def test_its_wheel_serves_in_an_environment_with_nothing_but_lfbo_aot(fresh, example):
    build = fresh()
    _, files = build.wheel(example, isolated=True, **INTERPRETER)
    assert json.loads(files["mykern/tuned/manifest.json"])["enumerated"] is False
    build.pip("install", "--no-deps", next((build.folder / "out").glob("*.whl")))
    build.pip("install", "lfbo-aot")
    for name in ("silu_mul", "add_rms"):
        assert build.look_up(name, SMALL, DEVICE)[:2] == ["exact", "package mykern"]
    said = build.run([build.python, "-m", "pip", "--version"], check=False).stdout
    assert "No module named pip" in said, (
        "the environment holds what was installed and nothing else"
    )


@pytest.mark.slow
def test_what_it_lacks_is_tuned_and_nothing_else(tuner, example):
    (example / "tuned" / "cpu-interpreter" / "mykern.silu_mul.jsonl").unlink()
    kept = (example / "tuned" / "cpu-interpreter" / "mykern.add_rms.jsonl").read_bytes()
    said, files = tuner.wheel(example, "-C", "tune=require", "-C", "trials=2", **INTERPRETER)
    assert said.count("trials in") == 1
    keys = json.loads(files["mykern/tuned/manifest.json"])["keys"]["cpu-interpreter"]
    assert keys["mykern.add_rms"] == {"kept": 1, "tuned": {}, "missing": {}}
    assert keys["mykern.silu_mul"]["kept"] == 0
    assert files["mykern/tuned/cpu-interpreter/mykern.add_rms.jsonl"] == kept
    tuner.install(next((tuner.folder / "out").glob("*.whl")))
    try:
        assert tuner.look_up("silu_mul", SMALL, DEVICE)[:2] == ["exact", "package mykern"]
    finally:
        tuner.run(
            [sys.executable, "-m", "pip", "--python", tuner.python, "uninstall", "-y", "mykern"]
        )
