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


REFRESH = """
import sys
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import declare
from lfbo_aot.database.database import Database
from lfbo_aot.registry.devices import INTERPRETER
declare(sys.argv[1], make_plan(load_kernels(["mykern.ops"]), INTERPRETER, Database(sys.argv[1])))
"""


def test_where_nothing_changed_the_first_build_starts_no_tuning_process(tuner, example):
    log, python = tuner.folder / "started", tuner.folder / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {tuner.python} "$@"\n')
    python.chmod(0o755)

    def build(**variables):
        """The wheel's files as a machine makes them that has never built it, and whether it asked."""
        log.unlink(missing_ok=True)
        state = tuner.folder / f"state-{len(list(tuner.folder.glob('state-*')))}"
        given = {"LFBO_AOT_PYTHON": str(python), "LFBO_AOT_STATE": str(state), **INTERPRETER}
        state.mkdir()
        _, files = tuner.wheel(example, **{**given, **variables})
        return files, "lfbo_aot.buildstep.child" in log.read_text()

    # As `lfbo-aot tune --into tuned` does with all held: the field is of this version of lfbo-aot.
    refresh = [tuner.python, "-c", REFRESH, example / "tuned"]
    tuner.run(refresh, PYTHONPATH=str(example))
    known, asked = build()
    assert not asked
    manifest = json.loads(known.pop("mykern/tuned/manifest.json"))
    assert manifest["enumerated"] is True
    kept = {"kept": 1, "tuned": {}, "missing": {}}
    assert manifest["keys"] == {
        "cpu-interpreter": {"mykern.add_rms": kept, "mykern.silu_mul": kept}
    }
    shutil.rmtree(example / "build")

    enumerated, asked = build(LFBO_AOT_TUNE="require")
    assert asked, "what is required is enumerated"
    told = json.loads(enumerated.pop("mykern/tuned/manifest.json"))
    assert {**told, "tune": "auto"} == manifest
    record = "mykern-0.1.0.dist-info/RECORD"  # it holds the manifest's digest
    assert {**enumerated, record: b""} == {**known, record: b""}

    ops = example / "mykern" / "ops.py"
    ops.write_text(ops.read_text().replace('{"m": 8, "n": 64', '{"m": 8, "n": 32'))
    changed, asked = build(LFBO_AOT_BUDGET="0")
    assert asked
    keys = json.loads(changed["mykern/tuned/manifest.json"])["keys"]["cpu-interpreter"]
    assert keys["mykern.add_rms"]["missing"] == {"the budget is 0": ["m=8|n=32|dtype=float32"]}
