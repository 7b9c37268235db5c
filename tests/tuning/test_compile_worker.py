"""The real compile worker, on the CPU: compiles for a device that isn't there."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from pathlib import Path

import psutil
import pytest

from lfbo_aot.search import Space
from lfbo_aot.tuning.channel import Channel
from lfbo_aot.tuning.devices.device import frozen_point
from lfbo_aot.tuning.devices.workspace import Workspace

H200 = {
    "backend": "cuda",
    "arch": 90,
    "warp_size": 32,
    "index": 0,
    "runtime": "13.0",
    "properties": {
        "name": "NVIDIA H200",
        "major": 9,
        "minor": 0,
        "total_memory": 150 << 30,
        "multi_processor_count": 132,
        "warp_size": 32,
        "regs_per_multiprocessor": 65536,
        "shared_memory_per_block": 49152,
        "shared_memory_per_block_optin": 232448,
        "shared_memory_per_multiprocessor": 233472,
        "max_threads_per_multi_processor": 2048,
        "L2_cache_size": 60 << 20,
        "gcnArchName": "",
    },
}
KERNELS = """
import helion.language as hl, torch
import lfbo_aot
from lfbo_aot import Exact

@lfbo_aot.kernel(
    dims={"n": Exact(4096)}, shape=lambda x: {"n": x.size(0)}, package="mine",
    inputs=lambda shape, device: (torch.ones(4096, device=device),), reference=torch.neg,
    small=[{"n": 4096}],
)
def negated(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        out[i] = -x[i]
    return out
"""
ARGUMENT = {"size": [4096], "stride": [1], "dtype": "float32", "device": "cuda:0"}


class Server:
    """A bucket's server at the other end of a channel."""

    def __init__(self, worker, folder, path, kernel="mine.negated", **words):
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        request = {
            "op": "fork",
            "kernel": {"kernel": kernel, "places": [["kernels_of_compile_tests", str(path)]]},
            "arguments": [ARGUMENT],
            "processes": 2,
            "claims": str(folder),
            **words,
        }
        with theirs:
            worker.send(request, [theirs.fileno()])
        self.forked = worker.receive()

    def open(self):
        found = self.channel.receive()
        self.opened = found["opened"]
        self.space = Space.from_json(self.opened["space"])
        return self

    def ask(self, **request):
        self.channel.send(request)

    def answers(self, count):
        found = [self.channel.receive() for _ in range(count)]
        return {reply.pop("ticket"): reply for reply in found}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """(the worker, its folder, the module of kernels): one process for all tests."""
    path = tmp_path_factory.mktemp("kernels") / "kernels_of_compile_tests.py"
    path.write_text(KERNELS)
    workspace = Workspace()
    worker = workspace.start("lfbo_aot.tuning.workers.compile", OMP_NUM_THREADS="1")
    try:
        worker.send({"op": "device", "description": H200})
        assert worker.receive()["reply"]["versions"]["helion"]
        yield worker, workspace.folder, path
    finally:
        worker.kill()
        workspace.close()


@pytest.fixture(scope="module")
def server(place):
    worker, folder, path = place
    server = Server(worker, folder / "claims", path)
    assert server.forked["reply"]["pid"] > 0
    yield server.open()
    server.channel.close()


def test_the_space_of_a_bucket(server):
    opened = server.opened
    assert opened["default"]["num_warps"] == 4
    assert opened["versions"]["triton"]
    names = [t.name for t in server.space.tunables]
    assert {"block_sizes[0]", "num_warps"} <= set(names)
    # Each of this kernel's tunables changes its code somewhere.
    assert server.space.inert == ()


def test_a_binary_for_a_device_that_is_not_there_and_equal_code(server, place):
    """A second point with the same code is told so before it is compiled."""
    point = list(server.space.default)
    server.ask(op="compile", ticket=1, point=point)
    first = server.answers(1)[1]
    server.ask(op="compile", ticket=2, config=server.opened["default"])
    second = server.answers(1)[2]
    assert (first["status"], second["status"]) == ("ok", "same_code")
    assert first["config"] == second["config"] == server.opened["default"]
    for name in ("digest", "path", "function"):
        assert first[name] == second[name]
    assert first["function"] == "negated"
    assert Path(first["path"]).is_file()
    assert first["codegen_s"] >= 0.0
    assert first["compile_s"] >= 0.0
    assert "compile_s" not in second
    assert list((place[1] / "triton").rglob("*.cubin"))


def test_candidates_that_do_not_compile(server):
    bad = {**server.opened["default"], "block_sizes": [1, 2, 3]}
    server.ask(op="compile", ticket=1, point=[1])
    server.ask(op="compile", ticket=2, config=bad)
    found = server.answers(2)
    assert found[1]["status"] == "invalid"
    assert "a point of this space has" in found[1]["error"]
    assert (found[2]["status"], found[2]["config"]) == ("compile_error", bad)
    assert "InvalidConfig" in found[2]["error"]


def test_a_kill_ends_one_candidate_only(server):
    at = [t.name for t in server.space.tunables].index("block_sizes[0]")
    points = [list(server.space.default) for _ in range(2)]
    for point, block in zip(points, (64, 128), strict=True):
        point[at] = block
    for ticket, point in enumerate(points):
        server.ask(op="compile", ticket=ticket, point=point)
    server.ask(op="kill", ticket=0)
    found = server.answers(2)
    assert (found[0]["status"], found[1]["status"]) == ("compile_timeout", "ok")
    server.ask(op="kill", ticket=0)  # too late: nothing comes of it
    server.ask(op="compile", ticket=3, point=points[1])
    assert server.answers(1)[3]["status"] == "same_code"


def test_points_of_configs_that_fit(server):
    server.ask(op="points", configs=[{"nonsense": 1}, server.opened["default"]])
    (point,) = server.channel.receive()["points"]
    assert frozen_point(point) == server.space.default


def test_kernels_that_are_none(place):
    worker, folder, path = place
    found = Server(worker, folder / "none", path, kernel="mine.unheard")
    with contextlib.closing(found.channel):
        assert found.forked["error"].startswith("unknown kernel 'mine.unheard'")
        # The worker has closed its end.
        assert found.channel.receive() is None


def test_arguments_that_can_not_be_bound(place):
    worker, folder, path = place
    server = Server(worker, folder / "unbound", path, arguments=[])
    with contextlib.closing(server.channel):
        found = server.channel.receive()
        assert set(found) == {"error"}
        assert found["error"] != ""
        assert server.channel.receive() is None


def test_no_process_is_left(server):
    """Neither the server nor what it still compiles."""
    mine = psutil.Process(server.forked["reply"]["pid"])
    at = [t.name for t in server.space.tunables].index("block_sizes[0]")
    point = [*server.space.default[:at], 1024, *server.space.default[at + 1 :]]
    server.ask(op="compile", ticket=1, point=point)
    server.ask(op="points", configs=[])
    assert server.channel.receive() == {"points": []}
    ends = [os.pidfd_open(p.pid) for p in [mine, *mine.children(recursive=True)]]
    server.channel.close()
    for end in ends:
        # A descriptor of a process can be read once that has ended.
        assert select.select([end], [], [], 60.0)[0] == [end]
        os.close(end)
