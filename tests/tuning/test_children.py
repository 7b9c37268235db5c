"""A bucket's compile server with made-up compilations: what each child's end is told as."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest

from lfbo_aot.tuning.workers.children import told

# A process of its own: children are forked, and pytest's has threads.
SCRIPT = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
from lfbo_aot.tuning.channel import Channel
from lfbo_aot.tuning.workers.compile import BucketServer

def raises():
    raise ValueError("no such layout")

def says():
    os.write(1, b"note\\n")
    os.write(2, b"ptxas fatal: Too much shared data\\nbye\\n")
    sys.exit(1)

def hangs():
    child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! > sleeper; wait"])
    while not os.path.exists("sleeper") or not open("sleeper").read().strip():
        time.sleep(0.01)
    open("half", "w").write(f"{os.getpid()} {child.pid}")
    os.rename("half", "started")
    time.sleep(600)

WAYS = {
    "fine": lambda: None,
    "raises": raises,
    "says": says,
    "exits": lambda: sys.exit(1),
    "exits well": lambda: sys.exit(0),
    "dies": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "floods": lambda: os.write(2, b"x" * 1_000_000 + b"\\nerror: at last\\n") and sys.exit(1),
    "hangs": hangs,
    "sleeps": lambda: time.sleep(600),
}

class Server(BucketServer):
    def _compile(self, request, report):
        self._channel.forget()
        report(json.dumps({"digest": "d" + str(request["ticket"])}) + "\\n")
        WAYS[request["how"]]()
        report(json.dumps({"status": "ok"}) + "\\n")

ours, theirs = socket.socketpair()
server = os.fork()
if not server:
    ours.close()
    Server(Channel(theirs), Path("claims")).run()
    os._exit(0)
theirs.close()
channel = Channel(ours)
found = {}

def answers(count):
    for _ in range(count):
        reply = channel.receive()
        found[list(WAYS)[reply.pop("ticket")]] = reply

# All at once: each has a child of its own.
for ticket, how in enumerate(WAYS):
    channel.send({"op": "compile", "ticket": ticket, "how": how})
answers(len(WAYS) - 2)
while not os.path.exists("started"):
    time.sleep(0.01)
channel.send({"op": "kill", "ticket": 99})
channel.send({"op": "kill", "ticket": 7})
answers(1)
# The last one still sleeps when the other end goes.
sleeping = [int(p) for p in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
channel.close()
found["server"] = os.waitpid(server, 0)[1]
found["sleeping"] = sleeping
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(what came of each, the folder in which they ran)."""
    folder = tmp_path_factory.mktemp("compile")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


@pytest.mark.parametrize(
    ("how", "ends"),
    [
        ("fine", {"status": "ok"}),
        ("raises", {"status": "compile_error", "error": "ValueError: no such layout"}),
        ("says", {"status": "compile_error", "error": "ptxas fatal: Too much shared data"}),
        ("exits", {"status": "compile_error", "error": ""}),
        ("dies", {"status": "crash", "error": "the compiler was ended by SIGSEGV"}),
        ("floods", {"status": "compile_error", "error": "error: at last"}),
        ("hangs", {"status": "compile_timeout"}),
    ],
)
def test_how_a_compilation_ends(ran, how, ends):
    """With what it had reported before."""
    reply = ran[0][how]
    assert reply.pop("digest", "").startswith("d")
    assert reply == ends


def test_a_child_that_says_nothing_of_its_status(ran):
    """As where the code under test ends the process, and calls that a success."""
    assert ran[0]["exits well"] == {
        "digest": "d4",
        "status": "crash",
        "error": "the compiler ended without an outcome",
    }


def gone(pids):
    left = [psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))]
    _, alive = psutil.wait_procs(left, timeout=10)
    return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_a_compilation_that_is_killed_takes_all_that_it_started_along(ran):
    _, folder = ran
    assert gone([*(folder / "started").read_text().split(), (folder / "sleeper").read_text()])


def test_children_go_with_their_server_and_that_with_the_other_end(ran):
    found, _ = ran
    assert found["server"] == 0
    assert len(found["sleeping"]) == 1
    assert gone(found["sleeping"])


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
