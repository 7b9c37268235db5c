from __future__ import annotations

import os

import pytest
from setuptools import build_meta as theirs

from lfbo_aot import build_meta
from lfbo_aot.buildstep.interpreter import Interpreter
from lfbo_aot.buildstep.interpreter import Search
from lfbo_aot.buildstep.settings import load

HOOKS = [name for name in build_meta.__all__ if not name.startswith("get_requires")]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.lfbo_aot]\npackage = "mykern"\n')
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("LFBO_AOT_"):
            monkeypatch.delenv(name)


@pytest.fixture
def calls(monkeypatch):
    """What setuptools' hooks are given, and the settings in force meanwhile."""
    seen = []

    def hook(name):
        def call(*args):
            seen.append((name, args, load({"package": "mykern"}, {})))
            return [] if name.startswith("get_requires") else name

        return call

    for name in build_meta.__all__:
        monkeypatch.setattr(theirs, name, hook(name))
    return seen


@pytest.mark.parametrize("name", HOOKS)
def test_settings_are_in_force_while_setuptools_works(calls, name):
    given = {"tune": "off", "--build-option": "-v", "editable_mode": "strict"}
    assert getattr(build_meta, name)("folder", given) == name
    ((called, args, settings),) = calls
    assert called == name
    assert {"--build-option": "-v", "editable_mode": "strict"} in args
    assert settings.tune == "off"
    assert load({"package": "mykern"}, {}).tune == "auto"


@pytest.mark.parametrize("name", build_meta.__all__)
def test_an_unknown_key_ends_every_hook_with_one_line(calls, name):
    args = () if name.startswith("get_requires") else ("folder",)
    with pytest.raises(SystemExit) as stop:
        getattr(build_meta, name)(*args, {"bugdet": "3"})
    assert str(stop.value).startswith("error: unknown key of -C 'bugdet'. Did you mean 'budget'?")
    assert calls == []


@pytest.mark.parametrize(
    "name", ["get_requires_for_build_sdist", "get_requires_for_build_editable"]
)
def test_an_sdist_and_an_editable_install_need_nothing_heavy(calls, name):
    assert getattr(build_meta, name)({"tune": "require"}) == []


def found(monkeypatch, interpreter):
    monkeypatch.setattr(
        build_meta, "find_interpreter", lambda _named, _environ: Search(interpreter, ())
    )


def test_only_a_required_tuning_that_nothing_else_can_do_needs_torch(calls, monkeypatch):
    found(monkeypatch, None)
    requires = build_meta.get_requires_for_build_wheel
    assert requires() == []
    assert requires({"tune": "off"}) == []
    assert requires({"tune": "require"}) == ["lfbo-aot[tune]"]
    assert requires({"tune": "require", "python": "/a/python"}) == []
    monkeypatch.setenv("LFBO_AOT_PYTHON", "/a/python")
    assert requires({"tune": "require"}) == []


def test_an_interpreter_that_can_tune_needs_nothing(calls, monkeypatch):
    found(monkeypatch, Interpreter("/a/python", {}))
    assert build_meta.get_requires_for_build_wheel({"tune": "require"}) == []
