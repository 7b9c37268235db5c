"""Commands whose output goes nowhere, or where not every character can go."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

KERNEL = "mykern.norm"


@pytest.fixture
def command(tmp_path, write_database, make_entry):
    """A function that runs `list` or `get` of a kernel under bash with some redirection."""
    entry = make_entry(note="größe", config={"mode": "größe"})
    path = write_database(tmp_path / "grö", {KERNEL: {"m=1..16|n=2048|dtype=bfloat16": entry}})
    words = {
        "list": [KERNEL],
        "get": [KERNEL, "m=8", "n=2048", "dtype=bfloat16", "--arch", "sm90/NVIDIA H200"],
    }

    def run(name, redirection="", *more, **environ):
        line = [sys.executable, "-m", "lfbo_aot", name, *words[name], "--database", str(path)]
        return subprocess.run(
            ["/bin/bash", "-o", "pipefail", "-c", f'"$@" {redirection}', "bash", *line, *more],
            env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "none"), **environ},
            capture_output=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.mark.parametrize("name", ["list", "get"])
@pytest.mark.parametrize(
    ("redirection", "says"),
    [
        (">&-", "lfbo-aot: error: standard output is closed\n"),
        (
            ">/dev/full",
            "lfbo-aot: error: standard output can't be written: No space left on device\n",
        ),
    ],
)
def test_output_that_goes_nowhere_is_one_line(command, name, redirection, says):
    done = command(name, redirection)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", says)


@pytest.mark.parametrize("name", ["list", "get"])
def test_a_reader_that_is_gone_is_no_error(command, name):
    done = command(name, "| true")
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_errors_do_not_end_up_in_the_output(command):
    done = command("get", "2>&-", "--json", LFBO_AOT_NONSENSE="1")
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "exact"


@pytest.mark.parametrize("name", ["list", "get"])
def test_characters_that_the_encoding_lacks(command, name):
    done = command(name, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"/gr\\xf6" in done.stdout
    done = command(name, "", "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    found = json.loads(done.stdout)
    assert (found[0] if name == "list" else found)["layer"].endswith("/grö")
