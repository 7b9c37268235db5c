"""Builds that really tune, on the interpreter device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

SMALL = {"m": 4, "n": 16, "dtype": "float32"}
KEY = "m=4|n=16|dtype=float32"
DEVICE = "cpu-interpreter/Triton interpreter"
TWICE = "{0}/tuned/cpu-interpreter/{0}.twice.jsonl"
SQUARE = "{0}/tuned/cpu-interpreter/{0}.square.jsonl"


def manifest(files, package="flatkern"):
    return json.loads(files[f"{package}/tuned/manifest.json"])


def kernel(files, name, package="flatkern"):
    return manifest(files, package)["keys"]["cpu-interpreter"][f"{package}.{name}"]


def reasons(files, name, package):
    return " ".join(kernel(files, name, package)["missing"])


def test_pip_install_tunes_under_isolation_and_the_second_build_tunes_nothing(fresh):
    build = fresh(tunes=True)
    project = build.case("flat")
    said = build.pip("install", "-v", project).stdout
    assert "2 tuned on cpu-interpreter/Triton interpreter" in said
    assert not (project / "tuned").exists(), "the build never writes to the checked-in database"
    status, layer, config = build.look_up("twice", SMALL, DEVICE)
    assert (status, layer) == ("exact", "package flatkern")
    assert config["block_sizes"]
    layers = build.doctor()["layers"]
    built = next(found["build"] for found in layers if found["layer"] == "package flatkern")
    assert (built["kept"], built["tuned"], built["missing"]) == (0, 2, {})
    assert (built["enumerated"], built["tuned_on"]) == (True, DEVICE)

    # Again, as a wheel: nothing is tuned, and nothing of it depends on what else ran.
    said, files = build.wheel(project, isolated=True, LFBO_AOT_TUNE="require")
    assert "2 tuned by an earlier build" in said
    assert "trials in" not in said
    installed = next(build.python.parents[1].glob("lib/python*/site-packages"))
    for name in (TWICE, SQUARE):
        assert files[name.format("flatkern")] == (installed / name.format("flatkern")).read_bytes()
    assert not any("__pycache__" in name for name in files)

    # Checked in, they are kept; and then nothing is left to be told.
    for name, text in files.items():
        if name.startswith("flatkern/tuned/") and name.endswith(("json", "jsonl")):
            path = project / name.removeprefix("flatkern/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    (project / "tuned" / "manifest.json").unlink()
    again = {"LFBO_AOT_TUNE": "require", "LFBO_AOT_STATE": str(build.folder / "other-state")}
    said, kept = build.wheel(project, isolated=True, **again)
    assert "tuned database" not in said
    assert kept[TWICE.format("flatkern")] == files[TWICE.format("flatkern")]
    assert kernel(kept, "twice") == {"kept": 1, "tuned": {}, "missing": {}}


@pytest.mark.slow
def test_a_named_interpreter_tunes_for_a_build_in_an_environment_without_torch(
    fresh, tuning_python
):
    build = fresh()
    project = build.case("src_layout")
    variables = {"LFBO_AOT_PYTHON": str(tuning_python), "LFBO_AOT_DEVICE": "interpreter"}
    out = build.folder / "dist"
    command = [sys.executable, "-m", "build", "--outdir", out, project]
    said = build.run(command, LFBO_AOT_TUNE="require", **variables).stdout
    assert "2 tuned on cpu-interpreter/Triton interpreter" in said
    build.install(next(out.glob("*.whl")), "lfbo-aot", "platformdirs")
    assert build.look_up("square", SMALL, DEVICE)[0] == "exact"


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_is_named_and_the_others_go_on(tuner):
    project = tuner.case("broken")
    said, files = tuner.wheel(project)
    assert TWICE.format("brokenkern") in files
    assert "kernel module 'brokenkern.bad' can't be imported: ModuleNotFoundError" in said
    assert manifest(files, "brokenkern")["enumerated"] is False
    said, files = tuner.wheel(project, check=False, LFBO_AOT_TUNE="require")
    assert files is None
    assert "no_such_module" in said
    assert "Traceback" not in said


def test_a_budget_of_nothing_tunes_nothing_and_says_so(tuner):
    said, files = tuner.wheel(tuner.case("flat"), LFBO_AOT_BUDGET="0")
    assert kernel(files, "twice")["missing"] == {"the budget is 0": [KEY]}
    assert "the budget is 0" in said
    assert "starting" not in said


@pytest.mark.slow
def test_without_its_device_an_arch_is_missing_and_the_reason_told(tuner):
    project = tuner.case("flat")
    _, files = tuner.wheel(project, LFBO_AOT_DEVICE="", LFBO_AOT_ARCHS="cpu-interpreter sm90")
    keys = manifest(files)["keys"]
    (why,) = keys["cpu-interpreter"]["flatkern.twice"]["missing"]
    assert why == "Triton's interpreter tunes in a build only if LFBO_AOT_DEVICE=interpreter"
    (why,) = keys["sm90"]["flatkern.twice"]["missing"]
    assert why.startswith(("no GPU here", "no sm90 device here"))
    said, files = tuner.wheel(project, check=False, LFBO_AOT_DEVICE="", LFBO_AOT_TUNE="require")
    assert files is None
    assert "What was tuned is kept: build again" in said


@pytest.mark.slow
def test_a_kernel_whose_tuning_fails_throughout_costs_only_itself(tuner):
    project = tuner.case("failing")
    said, files = tuner.wheel(project)
    assert kernel(files, "twice", "failkern")["tuned"]
    assert "no inputs on" in reasons(files, "square", "failkern")
    assert SQUARE.format("failkern") not in files
    said, files = tuner.wheel(project, check=False, LFBO_AOT_TUNE="require")
    assert files is None
    assert "failkern.square on cpu-interpreter" in said
    assert "1 tuned by an earlier build" in said


@pytest.mark.slow
def test_a_device_that_disappears_half_way_loses_nothing_finished(tuner):
    project = tuner.case("vanishing")
    _, files = tuner.wheel(project)
    assert kernel(files, "twice", "vankern")["tuned"]
    assert "exit 9" in reasons(files, "zz_square", "vankern")
    assert len(files[TWICE.format("vankern")].splitlines()) == 1
    said, files = tuner.wheel(project, check=False, LFBO_AOT_TUNE="require")
    assert files is None
    assert "1 tuned by an earlier build, 1 missing" in said


@pytest.mark.slow
def test_two_builds_at_once_in_one_checkout_both_ship_everything(tuner):
    project = tuner.case("flat")
    outs = [tuner.folder / name for name in ("one", "two")]
    pip = [sys.executable, "-m", "pip", "--python", str(tuner.python), "wheel", "-v", str(project)]
    started = [
        subprocess.Popen(
            [*pip, "--no-deps", "--no-build-isolation", "-w", str(out)],
            env=tuner.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for out in outs
    ]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)
    assert sorted("trials in" in text for text in said) == [False, True], "one of them tunes"
    from zipfile import ZipFile

    shards = []
    for out in outs:
        with ZipFile(next(out.glob("*.whl"))) as wheel:
            shards.append([wheel.read(name.format("flatkern")) for name in (TWICE, SQUARE)])
    assert shards[0] == shards[1]


@pytest.mark.slow
def test_a_build_that_is_killed_loses_no_finished_entry(tuner):
    project = tuner.case("flat")
    pip = [sys.executable, "-m", "pip", "--python", str(tuner.python), "wheel", "-v", str(project)]
    with subprocess.Popen(
        [*pip, "--no-deps", "--no-build-isolation", "-w", str(tuner.folder / "killed")],
        env=tuner.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        for line in process.stdout:
            if "[2/2]" in line:
                # Another terminal sees that it isn't hung.
                command = [tuner.python, "-m", "lfbo_aot.cli.main", "status", "--json"]
                seen = tuner.run(command, check=False).stdout
                os.killpg(process.pid, signal.SIGKILL)
                break
    (run,) = json.loads(seen)["runs"]
    assert (run["alive"], run["done"], run["total"]) == (True, 1, 2)
    said, files = tuner.wheel(project)
    assert kernel(files, "square")["tuned"]
    assert kernel(files, "twice")["tuned"]
    assert said.count("trials in") == 1, "the first one isn't tuned again"
    assert len(list(project.glob("build/lib/flatkern/tuned/*/*.jsonl"))) == 2


@pytest.mark.slow
def test_a_source_tree_that_cannot_be_written_fails_before_the_step_or_builds(tuner):
    """setuptools itself writes build/ and *.egg-info: with those there, the rest may be read-only."""
    project = tuner.case("flat")
    tuner.wheel(project, LFBO_AOT_TUNE="off")
    before = {p: p.stat().st_mtime_ns for p in project.rglob("*") if "build" not in p.parts}
    for path in [project / "flatkern", *(project / "flatkern").iterdir()]:
        path.chmod(path.stat().st_mode & ~0o222)
    _, files = tuner.wheel(project)
    assert kernel(files, "twice")["tuned"]
    kept = [p for p in before if "egg-info" not in str(p) and p != project]
    assert {p: p.stat().st_mtime_ns for p in kept} == {p: before[p] for p in kept}


@pytest.mark.slow
def test_an_editable_build_asks_the_checkout_and_not_a_copy_installed_earlier(tuner):
    project = tuner.case("flat")
    tuner.wheel(project)
    tuner.install(next((tuner.folder / "out").glob("*.whl")))
    try:
        ops = project / "flatkern" / "ops.py"
        ops.write_text(ops.read_text().replace("def square", "def cube"))
        words = ["install", "-v", "--no-build-isolation", "--no-deps", "-e", project]
        done = tuner.pip(*words, check=False, LFBO_AOT_TUNE="require")
        assert done.returncode != 0
        assert "missing: flatkern.cube on cpu-interpreter" in done.stdout
        assert "flatkern.square" not in done.stdout
        assert "starting" not in done.stdout, "an editable build tunes nothing"
    finally:
        tuner.pip("uninstall", "-y", "flatkern")
