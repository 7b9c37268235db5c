"""Calls that really run, by Triton's interpreter, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

SCRIPT = Path(__file__).with_name("interpreted_serving.py")


@pytest.fixture
def home(tmp_path):
    """A user's data folder with nothing in it."""
    return tmp_path


def run(case, home):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LFBO_AOT", "HELION"))}
    environment |= {"XDG_DATA_HOME": str(home), "TRITON_INTERPRET": "1", "HELION_SKIP_CACHE": "1"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), case],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_under_torch_compile_results_are_right_and_nothing_is_tuned(home):
    found, _ = run("compiled", home)
    assert len(found["right"]) == 24
    wrong = {name: got for name, got in found["right"].items() if got != [True] * 4}
    assert wrong == {}
    assert found["tuned"] == []


def test_where_dynamo_traces_into_the_call_shapes_called_before_are_served(home):
    found, _ = run("traced", home)
    assert len(found) == 8
    assert {name: got for name, got in found.items() if got != [True] * 3} == {}


def test_inductor_gets_the_default_for_symbolic_sizes_and_says_dynamic(home):
    found, said = run("lowered", home)
    assert found == {
        "known _bind": [True, True],
        "known _bind_isolated": [False, True],
        "unknown _bind": [False, True],
        "unknown _bind_isolated": [False, True],
    }
    lines = [line for line in said.splitlines() if "mine.scale: dynamic: sizes are symbols" in line]
    assert len(lines) == 1


def test_children_of_a_fork_call_shapes_known_and_new(home):
    assert run("forked", home)[0] == [0, 0, True]


def test_spawned_children_declare_and_call(home):
    assert run("spawned", home)[0] == [True, True]


def test_host_code_that_writes_an_argument_runs_once_a_call(home):
    found, _ = run("written", home)
    assert found == {"written": [1, 2, 3], "tried": [0, 0], "warps": 2}
