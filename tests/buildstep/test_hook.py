from __future__ import annotations

import subprocess
import sys

import pytest
from setuptools import Distribution
from setuptools.command.build import build

from lfbo_aot.buildstep.command import BuildTuned
from lfbo_aot.buildstep.command import with_tuned
from lfbo_aot.buildstep.hook import finalize

PROJECT = '[tool.lfbo_aot]\npackage = "mykern"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(command):
    return [name for name, _ in command.sub_commands]


def test_a_project_with_the_table_gets_the_step_last(project):
    dist = Distribution()
    finalize(dist)
    assert dist.get_command_class("build_tuned") is BuildTuned
    assert names(dist.get_command_class("build"))[-1] == "build_tuned"
    assert "build_tuned" not in names(build), "the shared class is as it was"


def test_a_project_without_the_table_is_left_alone(project):
    (project / "pyproject.toml").write_text("[tool.other]\n")
    dist = Distribution()
    before = dict(dist.cmdclass)
    finalize(dist)
    assert dist.cmdclass == before


def test_a_project_that_adds_the_step_itself_gets_it_once(project):
    class Own(BuildTuned):
        pass

    dist = Distribution({"cmdclass": {"build": with_tuned(build), "build_tuned": Own}})
    finalize(dist)
    assert names(dist.get_command_class("build")).count("build_tuned") == 1
    assert dist.get_command_class("build_tuned") is Own


def test_a_project_with_a_build_of_its_own_keeps_it(project):
    class Own(build):
        pass

    dist = Distribution({"cmdclass": {"build": Own}})
    finalize(dist)
    assert issubclass(dist.get_command_class("build"), Own)


def test_without_a_table_nothing_but_the_hook_is_loaded(tmp_path):
    script = """
import sys
from lfbo_aot.buildstep.hook import finalize
class Dist: src_root = None
before = set(sys.modules)
finalize(Dist())
print(sorted(set(sys.modules) - before))
"""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_build_step_loads_nothing_but_the_standard_library_and_setuptools(tmp_path):
    script = """
import sys
import setuptools.command.build, setuptools.errors
before = set(sys.modules)
import lfbo_aot.buildstep.command, lfbo_aot.build_meta
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
known = set(sys.stdlib_module_names) | {"lfbo_aot", "setuptools", "_distutils_hack", "distutils"}
print(sorted(tops - known))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_what_the_step_reads_is_listed_for_an_sdist(project):
    for name in ("kernels/mykern.k.json", "sm90/mykern.k.jsonl", "sm90/note.txt", "__init__.py"):
        path = project / "tuned" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    dist = Distribution()
    finalize(dist)
    command = dist.get_command_obj("build_tuned")
    command.ensure_finalized()
    expected = ["tuned/__init__.py", "tuned/kernels/mykern.k.json", "tuned/sm90/mykern.k.jsonl"]
    assert command.get_source_files() == expected


def test_outputs_and_their_mapping_are_known_before_the_step_runs(project):
    (project / "tuned" / "sm90").mkdir(parents=True)
    (project / "tuned" / "sm90" / "mykern.k.jsonl").write_text("")
    dist = Distribution()
    finalize(dist)
    command = dist.get_command_obj("build_tuned")
    command.ensure_finalized()
    shard = "build/lib/mykern/tuned/sm90/mykern.k.jsonl"
    assert shard in command.get_outputs()
    assert command.get_output_mapping() == {}
    command.editable_mode = True
    assert command.get_output_mapping() == {shard: "tuned/sm90/mykern.k.jsonl"}
