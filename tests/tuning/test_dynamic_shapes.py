"""A kernel with `static_shapes=False`: tuned in the interpreter, and each bucket served its own config."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

MODULE = """
import helion.language as hl
import torch

import lfbo_aot
from lfbo_aot import Exact
from lfbo_aot import Range


def make_inputs(shape, device):
    return (torch.randn(shape["m"], shape["n"], device=device), 3)


@lfbo_aot.kernel(
    dims={"m": Range(1, 64, factor=4), "n": Range(1, 1024), "dtype": Exact("float32")},
    shape=lambda x, times: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
    inputs=make_inputs,
    reference=lambda x, times: x * times,
    small=[{"m": m, "n": 16, "dtype": "float32"} for m in (4, 8)],
    static_shapes=False,
)
def scale(x: torch.Tensor, times: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * times
    return out
"""
SERVE = """
import json, os, sys
os.environ["TRITON_INTERPRET"] = "1"
from lfbo_aot.adapters import interpreter
interpreter.prepare()
import torch
import dynamic, lfbo_aot
lfbo_aot.use_database(sys.argv[1])
found = []
for m, times in ((4, 3), (8, 3), (4, 3), (5, 3), (4, 2)):
    x = torch.randn(m, 16)
    right = torch.equal(dynamic.scale(x, times), x * times)
    status = lfbo_aot.resolve(dynamic.scale, (x, times)).status
    stored = lfbo_aot.get_config(dynamic.scale, (x, times))
    run = json.loads(json.dumps(dynamic.scale.bind((x, times))._config.config))
    found.append([m, times, right, status, not stored or run == dict(stored)])
print(json.dumps(found))
"""


def test_it_is_tuned_and_served(tmp_path):
    (tmp_path / "dynamic.py").write_text(MODULE)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LFBO_AOT_")}
    environment |= {"LFBO_AOT_STATE": str(tmp_path / "state"), "PYTHONPATH": str(tmp_path)}

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    words = ["--module", "dynamic.py", "--device", "interpreter", "--trials", "3", "--into", "db"]
    assert "2 tuned" in run("-m", "lfbo_aot", "tune", *words)
    (shard,) = (tmp_path / "db" / "cpu-interpreter").iterdir()
    entries = [json.loads(line)[2] for line in shard.read_text().splitlines()]
    assert [entry["settings"]["static_shapes"] for entry in entries] == [False, False]
    assert [entry["layout"][1] for entry in entries] == [{"arg": "times", "value": 3}] * 2
    found = json.loads(run("-c", textwrap.dedent(SERVE), "db").splitlines()[-1])
    assert found == [
        [4, 3, True, "exact", True],
        [8, 3, True, "exact", True],
        [4, 3, True, "exact", True],
        [5, 3, True, "default", True],  # between the two boxes
        [4, 2, True, "default", True],  # the number may be part of the code, and is no dim
    ]
