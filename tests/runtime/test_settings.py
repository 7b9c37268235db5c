from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from lfbo_aot.errors import SettingError
from lfbo_aot.runtime import settings
from lfbo_aot.runtime.settings import Settings
from lfbo_aot.runtime.settings import from_environment


def test_nothing_is_set():
    assert from_environment({"PATH": "/bin"}) == Settings()
    assert Settings().policy == "compatible"
    assert Settings().on_miss == "default"
    assert Settings().device == "auto"


def test_everything_is_set():
    found = from_environment(
        {
            "LFBO_AOT_PATH": os.pathsep.join(["/a/tuned", "", "/b"]),
            "LFBO_AOT_POLICY": "exact",
            "LFBO_AOT_ON_MISS": "error",
            "LFBO_AOT_RECORD_MISSES": "/tmp/misses.jsonl",
            "LFBO_AOT_TUNE": "require",
            "LFBO_AOT_ARCHS": "sm90, sm100",
            "LFBO_AOT_BUDGET": "300",
            "LFBO_AOT_PYTHON": "/usr/bin/python3",
            "LFBO_AOT_DEVICE": "gpu",
            "LFBO_AOT_STATE": "/var/lfbo",
        }
    )
    assert found == Settings(
        path=(Path("/a/tuned"), Path("/b")),
        policy="exact",
        on_miss="error",
        record_misses=Path("/tmp/misses.jsonl"),
        tune="require",
        archs=("sm90", "sm100"),
        budget=300.0,
        python="/usr/bin/python3",
        device="gpu",
        state=Path("/var/lfbo"),
    )
    assert found.state_folder == Path("/var/lfbo")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("POLICY", "exat", "Allowed: exact, compatible, any. Did you mean 'exact'?"),
        ("ON_MISS", "tuen", "Allowed: default, error, tune. Did you mean 'tune'?"),
        ("TUNE", "on", "Allowed: auto, require, off."),
        ("DEVICE", "cuda", "Allowed: gpu, interpreter, auto."),
        ("BUDGET", "5m", "a number of seconds"),
        ("BUDGET", "-1", "a number of seconds"),
        ("BUDGET", "nan", "a number of seconds"),
    ],
)
def test_values_that_are_not_valid(name, value, says):
    with pytest.raises(SettingError) as caught:
        from_environment({f"LFBO_AOT_{name}": value})
    assert str(caught.value).startswith(f"LFBO_AOT_{name}={value!r} is not valid.")
    assert says in str(caught.value)


def test_an_empty_variable_is_not_set():
    assert from_environment(
        {"LFBO_AOT_POLICY": "", "LFBO_AOT_PATH": "", "LFBO_AOT_STATE": " "}
    ) == (Settings())


def test_a_misspelt_variable_is_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        assert from_environment({"LFBO_AOT_POLCY": "exact"}) == Settings()
    assert [record.getMessage() for record in caplog.records] == [
        "the environment variable LFBO_AOT_POLCY means nothing; did you mean LFBO_AOT_POLICY?"
    ]


def test_the_environment_is_read_once(isolated):
    isolated.setenv("LFBO_AOT_POLICY", "any")
    assert settings.current().policy == "any"
    isolated.setenv("LFBO_AOT_POLICY", "exact")
    assert settings.current().policy == "any"


def test_the_state_folder_is_the_users_cache(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/x/.cache")
    assert Settings().state_folder == Path("/home/x/.cache/lfbo-aot")
