from __future__ import annotations

import os
import sys

import pytest

from lfbo_aot.buildstep import interpreter
from lfbo_aot.buildstep.interpreter import find_interpreter
from lfbo_aot.errors import SettingError


@pytest.fixture
def needed(monkeypatch, tmp_path):
    """What tuning needs is one module, in a folder of its own."""
    monkeypatch.setattr(interpreter, "NEEDED", ("needed_for_tuning",))
    (tmp_path / "needed_for_tuning.py").write_text("")
    return tmp_path


def environment(**variables):
    return {"PATH": os.environ["PATH"], **variables}


def test_the_environment_as_it_is_comes_first(needed):
    environ = environment(PYTHONPATH=str(needed))
    found = find_interpreter(None, environ).found
    assert found is not None
    assert found.program == sys.executable
    assert found.environment["PYTHONPATH"] == str(needed)


def test_the_version_of_its_helion_is_told(needed):
    (needed / "helion-7.8.9+x.dist-info").mkdir()
    metadata = needed / "helion-7.8.9+x.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: helion\nVersion: 7.8.9+x\n")
    found = find_interpreter(None, environment(PYTHONPATH=str(needed))).found
    assert found is not None
    assert found.helion == "7.8.9"


def test_what_isolation_sets_is_dropped_where_it_hides_the_packages(monkeypatch, tmp_path):
    # As pip does: a sitecustomize on PYTHONPATH hides the environment's own packages.
    hidden = "pytest"
    monkeypatch.setattr(interpreter, "NEEDED", (hidden,))
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\nsys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
    )
    environ = environment(PYTHONPATH=str(site), PYTHONNOUSERSITE="1")
    search = find_interpreter(None, environ)
    assert search.found is not None
    assert "PYTHONPATH" not in search.found.environment
    assert search.tried == (
        f"{sys.executable} as it is: no {hidden}",
        f"{sys.executable} without PYTHONPATH, PYTHONNOUSERSITE: has all that tuning needs",
    )


def test_none_is_found_and_each_try_is_told(needed):
    search = find_interpreter(None, environment())
    assert search.found is None
    assert search.tried == (f"{sys.executable} as it is: no needed_for_tuning",)


def test_a_folder_that_only_has_the_name_is_not_the_library(needed, tmp_path):
    (needed / "needed_for_tuning.py").unlink()
    (needed / "needed_for_tuning").mkdir()
    search = find_interpreter(None, environment(PYTHONPATH=str(needed)))
    assert search.found is None


def test_the_interpreter_named_is_asked_and_a_link_stays_one(needed, tmp_path):
    link = tmp_path / "python-of-a-venv"
    link.symlink_to(sys.executable)
    found = find_interpreter(str(link), environment(PYTHONPATH=str(needed))).found
    assert found is not None
    assert found.program == str(link)


@pytest.mark.parametrize("named", ["/no/such/python", "no-such-python-command"])
def test_a_name_that_is_no_program_is_an_error(named):
    with pytest.raises(SettingError, match=r"LFBO_AOT_PYTHON.*There is no such program"):
        find_interpreter(named, environment())


def test_a_program_that_is_no_python_is_told(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho not a python >&2\nexit 3\n")
    program.chmod(0o755)
    search = find_interpreter(str(program), environment())
    assert search.found is None
    assert search.tried == (f"{program} as it is: exit 3: not a python",)


def test_nothing_is_imported_to_find_out(needed):
    (needed / "needed_for_tuning.py").write_text("raise SystemExit('imported')\n")
    assert find_interpreter(None, environment(PYTHONPATH=str(needed))).found is not None
