"""The workers of a GPU as far as they go without one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lfbo_aot.adapters import helion as seam
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.arguments import describe_arguments
from lfbo_aot.tuning.workers import compile as compile_module
from lfbo_aot.tuning.workers import gpu as gpu_module
from lfbo_aot.tuning.workers.compile import CompileWorker
from lfbo_aot.tuning.workers.gpu import GpuWorker
from lfbo_aot.tuning.workers.gpu import resources
from lfbo_aot.tuning.workers.serve import kernel_reference

SHAPE = {"m": 16, "n": 128, "dtype": "float32"}


class Clock:
    policy = {"clock": "fake"}

    def time_us(self, call, launches):
        call()
        return [5.0] * launches

    def settle(self):
        pass


@pytest.fixture(scope="module")
def softmax():
    return next(s for s in load_kernels(["lfbo_aot.kernels"]) if s.name == "softmax")


@pytest.fixture
def worker(softmax, monkeypatch):
    """A worker with softmax open, whose codes are plain functions by digest."""
    functions = {
        "right": lambda x, _launcher=None: torch.softmax(x, -1),
        "wrong": lambda x, _launcher=None: x,
        "memory": _raises(torch.cuda.OutOfMemoryError("CUDA out of memory")),
        "driver": _raises(RuntimeError("CUDA error: out of memory")),
        "resources": _raises(type("OutOfResources", (Exception,), {})("shared memory")),
        "fault": _raises(RuntimeError("illegal\naccess")),
    }
    monkeypatch.setattr(gpu_module, "EventClock", lambda device: Clock())
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(gpu_module, "device_works", lambda: True)
    worker = GpuWorker()
    monkeypatch.setattr(worker, "_function", lambda code: functions[code["digest"]])
    assert worker.identify({"device": "cpu"})["versions"]["torch"]
    opened = worker.open({"kernel": kernel_reference(softmax), "shape": SHAPE, "device": "cpu"})
    assert opened["policy"] == {"clock": "fake"}
    assert opened["layout"] == ({"order": [0, 1], "contiguous": True, "dtype": "float32"},)
    (argument,) = opened["arguments"]
    assert (argument["size"], argument["dtype"]) == ([16, 128], "float32")
    return worker


def _raises(error):
    def function(x, _launcher=None):
        raise error

    return function


def measured(worker, digest, best_us=None):
    return worker.measure({"code": {"digest": digest}, "best_us": best_us})


def test_a_candidate_is_checked_and_timed(worker):
    found = measured(worker, "right")
    assert (found["status"], found["latency_us"], found["launches"]) == ("ok", 5.0, 24)
    assert found["resources"] == {"shared": 0, "regs": 0, "spills": 0, "threads": 0}
    assert not found["cut"]
    found = measured(worker, "right", 1.0)
    assert (found["cut"], found["launches"]) == (True, 3)


@pytest.mark.parametrize(
    ("digest", "status", "error"),
    [
        ("wrong", "wrong_result", "result 0: 2048 of 2048 values differ"),
        ("memory", "out_of_memory", "OutOfMemoryError: CUDA out of memory"),
        ("driver", "out_of_memory", "RuntimeError: CUDA error: out of memory"),
        ("resources", "compile_error", "OutOfResources: shared memory"),
        ("fault", "crash", "RuntimeError: illegal access"),
    ],
)
def test_a_candidate_that_fails(worker, digest, status, error):
    found = measured(worker, digest)
    assert (found["status"], found["error"][: len(error)]) == (status, error)
    raced = worker.final({"codes": [{"digest": "right"}, {"digest": digest}], "rounds": 4})
    assert raced["samples"] == [[5.0] * 4, []]
    assert raced["errors"][0] == ""
    assert error in raced["errors"][1]


def test_a_lost_context_ends_the_process(worker, monkeypatch):
    monkeypatch.setattr(gpu_module, "device_works", lambda: False)
    with pytest.raises(SystemExit):
        measured(worker, "fault")
    with pytest.raises(SystemExit):
        worker.final({"codes": [{"digest": "fault"}], "rounds": 1})


def test_what_kernels_use_at_most():
    def kernel(shared, regs, spills, warps, width=32):
        target = SimpleNamespace(warp_size=width)
        metadata = SimpleNamespace(shared=shared, num_warps=warps, target=target)
        return SimpleNamespace(metadata=metadata, n_regs=regs, n_spills=spills)

    found = resources([kernel(100, 32, 0, 4), kernel(50, 64, 8, 2, 64)])
    assert found == {"shared": 100, "regs": 64, "spills": 8, "threads": 128}


def test_nothing_is_open():
    for call in (GpuWorker().measure, GpuWorker().final):
        with pytest.raises(TuningError, match=r"^no bucket is open$"):
            call({})
    with pytest.raises(TuningError, match=r"^no bucket is open$"):
        CompileWorker().compile({})


@pytest.fixture
def compiler(softmax, monkeypatch):
    """A compile worker with softmax open on tensors without memory."""
    from torch._subclasses.fake_tensor import FakeTensor

    monkeypatch.setattr(FakeTensor, "data_ptr", FakeTensor.data_ptr)
    monkeypatch.setattr(compile_module, "in_child", lambda steps, deadline_s: {"status": "ok"})
    monkeypatch.setattr(seam, "precompiler", lambda launch, bound, config: lambda: True)
    worker = CompileWorker()
    arguments = describe_arguments(softmax.make_inputs(SHAPE, "cpu"))
    request = {"kernel": kernel_reference(softmax), "arguments": arguments, "seeds": [{"a": 1}]}
    return worker, worker.open(request)


def test_points_and_configs_are_compiled(compiler):
    worker, opened = compiler
    assert opened["default"]["num_warps"] == 4
    assert len(opened["seeds"]) == 1
    assert opened["versions"]["helion"]
    default = opened["space"]["default"]
    found = worker.compile({"point": default, "deadline_s": 5.0})
    assert found["status"] == "ok"
    assert found["config"] == opened["default"]
    assert found["function"] == "softmax"
    again = worker.compile({"config": opened["default"], "deadline_s": 5.0})
    assert (again["digest"], again["path"]) == (found["digest"], found["path"])


def test_points_and_configs_that_do_not_compile(compiler):
    worker, opened = compiler
    found = worker.compile({"point": [1], "deadline_s": 5.0})
    assert found["status"] == "invalid"
    assert "a point of this space has" in found["error"]
    bad = {**opened["default"], "block_sizes": [1, 2, 3]}
    found = worker.compile({"config": bad, "deadline_s": 5.0})
    assert (found["status"], found["config"]) == ("compile_error", bad)
    assert "InvalidConfig" in found["error"]
