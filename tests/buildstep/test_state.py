from __future__ import annotations

import sys
from pathlib import Path

import pytest

import lfbo_aot
from lfbo_aot.buildstep.mirror import import_root
from lfbo_aot.buildstep.mirror import library_folder
from lfbo_aot.buildstep.state import built_folder
from lfbo_aot.buildstep.state import state_folder
from lfbo_aot.errors import SettingError
from lfbo_aot.runtime.settings import from_environment


def test_the_folder_is_the_one_of_lfbo_aot_tune(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    expected = from_environment({}).state_folder
    assert state_folder(environ) == expected == tmp_path / "lfbo-aot"
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert state_folder(environ) == expected, "also where platformdirs isn't installed"


def test_a_named_folder_is_made(tmp_path):
    assert state_folder({"LFBO_AOT_STATE": f" {tmp_path / 'a' / 'b'} "}) == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


def test_a_named_folder_that_cannot_be_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match=r"LFBO_AOT_STATE=.*can be made and written to"):
        state_folder({"LFBO_AOT_STATE": str(tmp_path / "file" / "below")})


def test_without_a_home_a_temporary_folder_serves(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert state_folder({"XDG_CACHE_HOME": str(tmp_path / "file")}).parent == tmp_path


def test_each_package_has_a_database_of_its_own(tmp_path):
    assert built_folder(tmp_path, "a.b") != built_folder(tmp_path, "a.c")


def test_a_build_is_imported_from_where_it_was_copied_to(tmp_path):
    assert import_root(tmp_path / "build" / "lib", None, tmp_path) == tmp_path / "build" / "lib"


def test_an_editable_build_is_imported_under_the_names_that_it_maps_to(tmp_path):
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "ops.py").write_text("x = 1\n")
    sources = {
        "pkg/kernels/ops.py": str(tmp_path / "checkout" / "ops.py"),
        "pkg/_native.so": str(tmp_path / "not built"),
    }
    root = import_root(tmp_path / "empty", sources, tmp_path)
    assert (root / "pkg" / "kernels" / "ops.py").read_text() == "x = 1\n"
    assert [p.name for p in root.rglob("*") if p.is_file()] == ["ops.py"]


def test_lfbo_aot_comes_from_a_folder_that_holds_nothing_else(tmp_path):
    folder = library_folder(tmp_path / "build", tmp_path)
    assert [p.name for p in folder.iterdir()] == ["lfbo_aot"]
    assert (folder / "lfbo_aot").resolve() == Path(lfbo_aot.__file__).resolve().parent


def test_lfbo_aot_that_is_being_built_comes_from_the_build(tmp_path):
    (tmp_path / "build" / "lfbo_aot").mkdir(parents=True)
    (tmp_path / "build" / "lfbo_aot" / "__init__.py").write_text("")
    assert library_folder(tmp_path / "build", tmp_path) == tmp_path / "build"
