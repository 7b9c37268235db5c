"""The modes, and what an earlier build or an installation left, in an environment without torch."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

SMALL = {"m": 4, "n": 16, "dtype": "float32"}
DEVICE = "cpu-interpreter/Triton interpreter"
SHARD = "flatkern/tuned/cpu-interpreter/flatkern.{}.jsonl"


@pytest.fixture
def project(bare, fill):
    """The flat project with both of its kernels' entries checked in."""
    folder = bare.case("flat")
    fill(folder / "tuned", "flatkern.ops", folder / "flatkern" / "ops.py")
    return folder


def manifest(files, package="flatkern"):
    return json.loads(files[f"{package}/tuned/manifest.json"])


def test_auto_ships_what_agrees_and_says_why_no_more_is_known(bare, project):
    said, files = bare.wheel(project)
    assert SHARD.format("twice") in files
    assert SHARD.format("square") in files
    assert "flatkern/tuned/__init__.py" in files
    assert "not enumerated: no interpreter with torch, Helion" in said
    assert manifest(files)["enumerated"] is False
    assert manifest(files)["keys"]["cpu-interpreter"]["flatkern.twice"]["kept"] == 1
    assert any(name.endswith("WHEEL") and b"Tag: py3-none-any" in files[name] for name in files)


def test_auto_leaves_out_what_the_source_has_moved_away_from(bare, project):
    ops = project / "flatkern" / "ops.py"
    ops.write_text(ops.read_text().replace("x[tile] * x[tile]", "x[tile] * x[tile] * 1"))
    said, files = bare.wheel(project)
    assert SHARD.format("twice") in files
    assert SHARD.format("square") not in files
    assert "left out: 1 of flatkern.square" in said
    left = manifest(files)["left_out"]["cpu-interpreter"]["flatkern.square"]
    assert list(left) == ["the kernel's source has changed since"]


def test_a_change_that_means_nothing_leaves_nothing_out(bare, project):
    ops = project / "flatkern" / "ops.py"
    ops.write_text(ops.read_text().replace("    return out", "    # a comment\n\n    return out"))
    _, files = bare.wheel(project)
    assert SHARD.format("twice") in files
    assert SHARD.format("square") in files


def test_off_ships_what_is_checked_in(bare, project):
    ops = project / "flatkern" / "ops.py"
    ops.write_text(ops.read_text().replace("x[tile] * x[tile]", "x[tile] * x[tile] * 1"))
    said, files = bare.wheel(project, LFBO_AOT_TUNE="off")
    assert SHARD.format("square") in files
    assert "flatkern.square: the source has changed since some entries were measured" in said


def test_require_fails_without_torch_and_names_the_way_out(bare, project):
    said, files = bare.wheel(project, check=False, LFBO_AOT_TUNE="require")
    assert files is None
    assert "set LFBO_AOT_PYTHON to one that has them" in said
    assert "as it is: no torch, helion" in said
    assert "Traceback" not in said


def test_a_damaged_line_never_ships(bare, project):
    shard = project / "tuned" / "cpu-interpreter" / "flatkern.twice.jsonl"
    shard.write_bytes(shard.read_bytes()[:-9])
    said, files = bare.wheel(project)
    assert SHARD.format("twice") not in files
    assert "damaged: tuned/cpu-interpreter/flatkern.twice.jsonl:1: " in said


@pytest.mark.parametrize(
    ("variables", "edit", "words"),
    [
        ({"LFBO_AOT_TUNE": "requir"}, None, "LFBO_AOT_TUNE='requir' is not valid"),
        ({"LFBO_AOT_PYTHON": "/no/python"}, None, "LFBO_AOT_PYTHON='/no/python' is not valid"),
        (
            {},
            ("trials", "trails"),
            "unknown key of [tool.lfbo_aot] 'trails'. Did you mean 'trials'?",
        ),
        ({}, ("trials = 2", "trials = 0"), "[tool.lfbo_aot] trials='0' is not valid"),
    ],
    ids=["variable", "interpreter", "key", "value"],
)
def test_a_wrong_setting_fails_with_one_line(bare, project, variables, edit, words):
    if edit is not None:
        table = project / "pyproject.toml"
        table.write_text(table.read_text().replace(*edit))
    said, files = bare.wheel(project, check=False, **variables)
    assert files is None
    assert words in said
    assert "Traceback" not in said


def test_command_settings_reach_the_step_and_wrong_ones_fail(bare, fill):
    project = bare.case("src_layout")
    fill(project / "data" / "entries", "srckern.ops", project / "src" / "srckern" / "ops.py")
    _, files = bare.wheel(project, "-C", "tune=off")
    assert manifest(files, "srckern")["tune"] == "off"
    _, files = bare.wheel(project, "-C", "tune=off", LFBO_AOT_TUNE="auto")
    assert manifest(files, "srckern")["tune"] == "auto", "the environment goes over -C"
    said, files = bare.wheel(project, "-C", "bugdet=3", check=False)
    assert files is None
    assert "unknown key of -C 'bugdet'. Did you mean 'budget'?" in said


def test_a_project_without_the_table_is_built_as_ever(bare):
    said, files = bare.wheel(bare.case("plain"))
    assert sorted(name for name in files if "dist-info" not in name) == ["plainpkg/__init__.py"]
    assert "lfbo" not in said


def test_a_stale_build_folder_brings_nothing_back(bare, project):
    bare.wheel(project)
    (project / "tuned" / "cpu-interpreter" / "flatkern.twice.jsonl").unlink()
    left = project / "build" / "lib" / "flatkern" / "tuned" / "sm80" / "flatkern.twice.jsonl"
    left.parent.mkdir()
    left.write_text("left over\n")
    _, files = bare.wheel(project)
    assert SHARD.format("twice") not in files
    assert not any("sm80" in name for name in files)


def test_the_source_tree_is_left_as_it_is(bare, project):
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in project.rglob("*") if p.is_file()}
    bare.wheel(project)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in before} == before
    new = {p.relative_to(project).parts[0] for p in project.rglob("*") if p not in before}
    assert new - {p.relative_to(project).parts[0] for p in before} == {"build", "flatkern.egg-info"}


@pytest.mark.parametrize("mode", ["lenient", "strict"])
@pytest.mark.parametrize("case", ["flat", "src_layout"])
def test_an_editable_install_serves_the_checkouts_database(bare, fill, case, mode):
    folder = bare.case(case)
    package, source, module = {
        "flat": ("flatkern", folder / "tuned", folder / "flatkern" / "ops.py"),
        "src_layout": (
            "srckern",
            folder / "data" / "entries",
            folder / "src" / "srckern" / "ops.py",
        ),
    }[case]
    fill(source, f"{package}.ops", module, names=["twice", "square"])
    before = {p: p.read_bytes() for p in source.rglob("*.json*")}
    said = bare.install("--no-build-isolation", "-C", f"editable_mode={mode}", "-e", folder)
    try:
        status, layer, config = bare.look_up("twice", SMALL, DEVICE)
        assert (status, layer) == ("exact", f"package {package}")
        assert config["num_warps"] == 2
        shard = source / "cpu-interpreter" / f"{package}.square.jsonl"
        shard.unlink()
        # What the checkout loses or gains is seen, as its own files are served.
        assert bare.look_up("square", SMALL, DEVICE)[0] == "default"
        assert {p: p.read_bytes() for p in before if p != shard} == {
            p: text for p, text in before.items() if p != shard
        }
        assert "_Warning" not in said
    finally:
        bare.pip("uninstall", "-y", package)


def test_an_editable_install_of_a_project_without_a_database_finds_one_later(bare, fill):
    folder = bare.case("flat")
    bare.install("--no-build-isolation", "-e", folder)
    try:
        fill(folder / "tuned", "flatkern.ops", folder / "flatkern" / "ops.py")
        assert bare.look_up("twice", SMALL, DEVICE)[0] == "exact"
    finally:
        bare.pip("uninstall", "-y", "flatkern")


def test_an_editable_install_that_requires_what_is_missing_fails(bare, project):
    done = bare.pip(
        "install",
        "--no-build-isolation",
        "-v",
        "-e",
        project,
        check=False,
        LFBO_AOT_TUNE="require",
    )
    assert done.returncode != 0
    assert "set LFBO_AOT_PYTHON to one that has them" in done.stdout


def test_an_sdist_holds_the_database_and_builds_the_same_wheel(bare, project):
    command = [bare.python, "-c", "import setuptools.build_meta as b; print(b.build_sdist('out'))"]
    name = bare.run(command, cwd=project).stdout.splitlines()[-1]
    bare.run([sys.executable, "-m", "tarfile", "-e", project / "out" / name, bare.folder / "x"])
    unpacked = bare.folder / "x" / "flatkern-1.0"
    expected = {p.relative_to(project) for p in (project / "tuned").rglob("*.json*")}
    assert {p.relative_to(unpacked) for p in (unpacked / "tuned").rglob("*.json*")} == expected
    assert not (unpacked / "flatkern" / "tuned").exists()
    _, first = bare.wheel(project)
    _, second = bare.wheel(unpacked)
    assert {n: first[n] for n in first if "tuned" in n} == {
        n: second[n] for n in second if "tuned" in n
    }


@pytest.mark.parametrize("backend", ["setuptools.build_meta", "lfbo_aot.build_meta"])
def test_two_sdists_have_equal_bytes_under_source_date_epoch(bare, project, backend):
    made = []
    call = f"import {backend} as b; print(b.build_sdist('out'))"
    for number in range(2):
        copy = Path(shutil.copytree(project, bare.folder / f"copy-{number}"))
        for path in copy.rglob("*.py"):
            os.utime(path, (1.5e9 + number, 1.5e9 + number))
        said = bare.run([bare.python, "-c", call], cwd=copy, SOURCE_DATE_EPOCH="1700000000").stdout
        made.append((copy / "out" / said.splitlines()[-1]).read_bytes())
    assert made[0] == made[1]
    done = bare.run([bare.python, "-c", call], cwd=project, SOURCE_DATE_EPOCH="x", check=False)
    assert done.returncode != 0
    assert "SOURCE_DATE_EPOCH='x' is not a whole number of seconds" in done.stdout


def test_a_database_inside_the_package_is_served_and_shipped_from_there(bare, fill):
    folder = bare.case("flat")
    table = folder / "pyproject.toml"
    table.write_text(table.read_text() + 'source = "flatkern/tuned"\n')
    fill(folder / "flatkern" / "tuned", "flatkern.ops", folder / "flatkern" / "ops.py")
    _, files = bare.wheel(folder)
    assert SHARD.format("twice") in files
    bare.install("--no-build-isolation", "-e", folder)
    try:
        assert bare.look_up("twice", SMALL, DEVICE)[0] == "exact"
    finally:
        bare.pip("uninstall", "-y", "flatkern")
