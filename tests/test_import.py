from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "helion", "triton", "numpy", "sklearn", "joblib", "scipy", "rich", "filelock")


def loaded(code, *args):
    report = "import sys; found = sorted(sys.modules); import json; print(json.dumps(found))"
    command = [sys.executable, "-c", f"{code}\n{report}", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_loads_next_to_nothing():
    found = loaded("import lfbo_aot")
    assert found.isdisjoint(HEAVY)
    light = found - loaded("pass")
    assert light.isdisjoint(
        ["argparse", "logging", "json", "dataclasses", "platformdirs", "inspect"]
    )
    assert {name for name in found if name.startswith("lfbo_aot")} == {"lfbo_aot"}


@pytest.fixture
def database(tmp_path, write_database, make_entry):
    return write_database(
        tmp_path / "tuned", {"mykern.norm": {"m=1..16|n=2048|dtype=bfloat16": make_entry(8)}}
    )


ASK = """
import sys, lfbo_aot
lfbo_aot.use_database(sys.argv[1])
for m, warps in ((8, 8), (9999, None)):
    shape = {"m": m, "n": 2048, "dtype": "bfloat16"}
    found = lfbo_aot.get_config("norm", shape, "sm90/NVIDIA H200")
    assert found.get("num_warps") == warps
"""


def test_a_lookup_by_name_loads_nothing_heavy(database):
    assert loaded(ASK, database).isdisjoint(HEAVY)


def test_the_command_line_loads_nothing_heavy(database):
    code = (
        "import sys; from lfbo_aot.cli.main import main; path = sys.argv[1]\n"
        "assert main(['list', '--database', path]) == 0\n"
        "assert main(['verify', path]) == 0\n"
        "assert main(['get', 'norm', 'm=8', 'n=2048', 'dtype=float16', '--arch', 'sm90']) == 2\n"
        "assert main(['--help']) == 0\n"
    )
    assert loaded(code, database).isdisjoint(HEAVY)


def test_public_names():
    import lfbo_aot

    for name in ("get_config", "resolve", "Resolution", "use_database", "use_policy"):
        assert getattr(lfbo_aot, name).__name__ == name
    assert str(lfbo_aot.Exact(1)) == "Exact(1)"
    assert str(lfbo_aot.Range(1, 2)) == "Range(1, 2)"
    assert {"kernel", "register", "get_config"} <= set(dir(lfbo_aot))
    with pytest.raises(AttributeError, match=r"has no attribute 'get_konfig'"):
        _ = lfbo_aot.get_konfig


def test_two_processes_give_one_key(database, tmp_path):
    import shutil

    moved = shutil.copytree(database, tmp_path / "elsewhere" / "tuned")
    ask = (
        "import sys, lfbo_aot; lfbo_aot.use_database(sys.argv[1])\n"
        "found = lfbo_aot.resolve('norm', (8, 2048, 'bfloat16'), 'sm90/NVIDIA H200')\n"
        "print(found.key, dict(found.config))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", ask, str(path)], capture_output=True, text=True, check=True
        ).stdout
        for path in (database, moved)
    ]
    assert said[0] == said[1]
    assert said[0].startswith("NVIDIA H200|m=1..16|n=2048|dtype=bfloat16 {'block_sizes': [8, 1]")
