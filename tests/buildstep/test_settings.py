from __future__ import annotations

import pytest

from lfbo_aot.buildstep.settings import KEYS
from lfbo_aot.buildstep.settings import from_command
from lfbo_aot.buildstep.settings import load
from lfbo_aot.buildstep.settings import read_table
from lfbo_aot.errors import SettingError
from lfbo_aot.errors import UnknownNameError

TABLE = {"package": "mykern"}


def test_defaults_are_those_of_the_design():
    found = load(TABLE, {})
    assert (found.package, found.source, found.kernels) == ("mykern", "tuned", ("mykern",))
    assert (found.archs, found.tune, found.budget) == ((), "auto", 300.0)
    assert (found.trials, found.python, found.device) == (None, None, "auto")


def test_every_key_of_the_table_is_read():
    table = {
        "package": "mykern.sub",
        "source": "data/tuned",
        "kernels": ["mykern.ops"],
        "archs": ["sm_90a", "sm100"],
        "tune": "require",
        "budget": 60,
        "trials": 8,
        "python": "python3",
        "device": "gpu",
    }
    assert set(table) == set(KEYS)
    found = load(table, {})
    assert found.archs == ("sm90", "sm100")
    assert (found.budget, found.trials, found.device) == (60.0, 8, "gpu")
    assert found.source == "data/tuned"


def test_the_environment_goes_over_the_command_over_the_table():
    table = {**TABLE, "tune": "off", "budget": 1, "archs": ["sm80"]}
    command = {"tune": "require", "budget": "2", "trials": "3"}
    environ = {"LFBO_AOT_TUNE": "auto", "LFBO_AOT_ARCHS": "sm90, sm100"}
    found = load(table, environ, command)
    assert (found.tune, found.budget, found.trials) == ("auto", 2.0, 3)
    assert found.archs == ("sm90", "sm100")


def test_an_empty_variable_counts_as_not_set():
    found = load({**TABLE, "device": "interpreter"}, {"LFBO_AOT_DEVICE": "", "LFBO_AOT_TUNE": " "})
    assert (found.device, found.tune) == ("interpreter", "auto")


@pytest.mark.parametrize(
    ("table", "command", "words"),
    [
        ({"bugdet": 3}, {}, "key of [tool.lfbo_aot] 'bugdet'. Did you mean 'budget'?"),
        ({}, {"tun": "off"}, "key of -C 'tun'. Did you mean 'tune'?"),
        ({}, {"package": "other"}, "key of -C 'package'"),
    ],
    ids=["table", "command", "what a project is"],
)
def test_an_unknown_key_is_an_error_with_the_nearest(table, command, words):
    with pytest.raises(UnknownNameError) as error:
        load({**TABLE, **table}, {}, command)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("tune", "requir", "Did you mean 'require'?"),
        ("device", "cpu", "Allowed: gpu, interpreter, auto"),
        ("budget", -1, "a number of seconds"),
        ("budget", "soon", "a number of seconds"),
        ("budget", True, "a number of seconds"),
        ("trials", 0, "a whole number from 1 up"),
        ("trials", 2.5, "a whole number from 1 up"),
        ("trials", "nan", "a whole number from 1 up"),
        ("archs", ["not an arch"], "written like sm90"),
        ("archs", 90, "a list of names"),
        ("kernels", [1], "a list of names"),
        ("kernels", ["ops.py", "my-ops"], "a module's dotted name"),
        ("source", "/etc", "below the project's root"),
        ("source", "../tuned", "below the project's root"),
        ("package", "my-kern", "a package's dotted name"),
        ("package", "", "It is text"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_key(key, value, words):
    with pytest.raises(SettingError) as error:
        load({**TABLE, key: value}, {})
    assert f"[tool.lfbo_aot] {key}=" in str(error.value)
    assert words in str(error.value)


def test_a_wrong_variable_is_named():
    with pytest.raises(SettingError, match="LFBO_AOT_TUNE='of' is not valid"):
        load(TABLE, {"LFBO_AOT_TUNE": "of"})
    with pytest.raises(SettingError, match="LFBO_AOT_ARCHS="):
        load(TABLE, {"LFBO_AOT_ARCHS": "x/y"})


def test_variables_that_mean_nothing_are_kept_to_be_told():
    found = load(TABLE, {"LFBO_AOT_TUNES": "off", "LFBO_AOT_STATE": "/s", "OTHER": "1"})
    assert found.unknown_variables == ("LFBO_AOT_TUNES",)


def test_a_table_without_a_package_is_refused():
    with pytest.raises(SettingError, match="names the package that receives"):
        load({}, {})


def test_command_settings_hold_for_the_time_of_the_context():
    with from_command({"tune": "off"}):
        assert load(TABLE, {}).tune == "off"
    assert load(TABLE, {}).tune == "auto"


def test_wrong_command_settings_are_refused_at_once():
    with pytest.raises(UnknownNameError), from_command({"archz": "sm90"}):
        pass
    with pytest.raises(SettingError, match="-C budget"), from_command({"budget": "x"}):
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("[tool.other]\nlfbo_aot = 1\n", None),
        ("[tool]\nlfbo_aot = 1\n", None),
        ("[tool.lfbo_aot\n", None),
        ("# lfbo_aot\n", None),
        ("[tool.lfbo_aot]\n", {}),
        ('[tool.lfbo_aot]\npackage = "k"\n', {"package": "k"}),
    ],
)
def test_the_table_is_read_or_there_is_none(tmp_path, text, expected):
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert read_table(tmp_path) == expected


def test_a_file_that_is_no_text_has_no_table(tmp_path):
    (tmp_path / "pyproject.toml").write_bytes(b"\xff lfbo_aot")
    assert read_table(tmp_path) is None
