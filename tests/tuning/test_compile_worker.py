from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest

from lfbo_aot.tuning.workers.compile import told

# A process of its own: a child is forked, and pytest's has threads.
SCRIPT = """
import json, os, signal, subprocess, sys, time
from lfbo_aot.tuning.workers.compile import in_child

def fails():
    raise ValueError("no such layout")

def says():
    os.write(2, b"note\\nptxas fatal: Too much shared data\\nbye\\n")
    return False

def hangs():
    child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! > sleeper; wait"])
    while not os.path.exists("sleeper") or not open("sleeper").read().strip():
        time.sleep(0.01)
    open("started", "w").write(f"{os.getpid()} {child.pid}")
    time.sleep(600)

steps = {
    "ok": [lambda: True, lambda: True],
    "none": [],
    "false": [lambda: True, lambda: False],
    "raises": [fails],
    "says": [says],
    "exits": [lambda: sys.exit(1)],
    "exits well": [lambda: sys.exit(0)],
    "dies": [lambda: os.kill(os.getpid(), signal.SIGSEGV)],
}
found = {name: in_child(each, deadline_s=60.0) for name, each in steps.items()}
found["hangs"] = in_child([hangs], deadline_s=2.0)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(what came of each, the folder in which they ran)."""
    folder = tmp_path_factory.mktemp("compile")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("ok", "ok", None),
        ("none", "ok", None),
        ("false", "compile_error", ""),
        ("raises", "compile_error", "ValueError: no such layout"),
        ("says", "compile_error", "ptxas fatal: Too much shared data"),
        ("exits", "compile_error", ""),
        ("exits well", "ok", None),
        ("dies", "crash", "the compiler was ended by SIGSEGV"),
    ],
)
def test_how_a_compilation_ends(ran, name, status, error):
    assert ran[0][name] == {"status": status, **({} if error is None else {"error": error})}


def test_a_compilation_without_end_is_killed_with_all_that_it_started(ran):
    found, folder = ran
    assert found["hangs"] == {"status": "compile_timeout", "error": "killed after 2.0 s"}
    pids = [*(folder / "started").read_text().split(), (folder / "sleeper").read_text()]
    left = [psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))]
    _, alive = psutil.wait_procs(left, timeout=10)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("a\nb\nc\nd\n", "b | c | d"),
        (
            "x\nfoo.mlir:1: error: bad\n  note\nerror: worse\nerror: worst",
            "foo.mlir:1: error: bad | error: worse",
        ),
        ("Required shared memory 99 exceeds 98", "Required shared memory 99 exceeds 98"),
    ],
)
def test_the_telling_line(output, line):
    assert told(output) == line
    assert len(told("error " * 1000)) == 300
