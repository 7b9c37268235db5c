"""The GPU's worker as far as it goes without one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lfbo_aot.adapters import standin
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.fidelity import Fidelity
from lfbo_aot.tuning.workers import gpu as gpu_module
from lfbo_aot.tuning.workers.gpu import GpuWorker
from lfbo_aot.tuning.workers.gpu import resources
from lfbo_aot.tuning.workers.serve import kernel_reference

SHAPE = {"m": 16, "n": 128, "dtype": "float32"}


class Clock:
    policy = {"clock": "fake"}
    latency_us = 5.0

    def time_us(self, call, launches):
        call()
        return [self.latency_us] * launches

    def settle(self):
        pass


@pytest.fixture(scope="module")
def softmax():
    return next(s for s in load_kernels(["lfbo_aot.kernels"]) if s.name == "softmax")


@pytest.fixture
def functions():
    """Codes are plain functions by digest."""
    return {
        "right": lambda x, _launcher=None: torch.softmax(x, -1),
        "wrong": lambda x, _launcher=None: x,
        "memory": _raises(torch.cuda.OutOfMemoryError("CUDA out of memory")),
        "driver": _raises(RuntimeError("CUDA error: out of memory")),
        "resources": _raises(type("OutOfResources", (Exception,), {})("shared memory")),
        "fault": _raises(RuntimeError("illegal\naccess")),
    }


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def worker(functions, clock, monkeypatch):
    """A worker that is told what device it has, and has none."""
    description = standin.DeviceDescription("cuda", 90, 32, 0)
    monkeypatch.setattr(gpu_module, "EventClock", lambda device: clock)
    monkeypatch.setattr(standin, "describe", lambda index: description)
    monkeypatch.setattr(gpu_module, "device_works", lambda: True)
    worker = GpuWorker()
    monkeypatch.setattr(worker, "_function", lambda bucket, code: functions[code["digest"]])
    found = worker.identify({"device": "cpu", "index": 0})
    assert found["description"] == description.to_json()
    return worker


@pytest.fixture
def bucket_of(worker, softmax):
    """Opens softmax as the bucket with a number."""

    def open_(number=1, **shape):
        wanted = {"bucket": number, "shape": SHAPE | shape, "device": "cpu"}
        return worker.open({"kernel": kernel_reference(softmax), **wanted})

    return open_


def _raises(error):
    def function(x, _launcher=None):
        raise error

    return function


def measured(worker, digest, best_us=None, bucket=1):
    return worker.measure({"bucket": bucket, "code": {"digest": digest}, "best_us": best_us})


def test_what_an_open_bucket_looks_like(bucket_of):
    opened = bucket_of()
    assert opened["policy"] == {"clock": "fake"}
    assert opened["layout"] == ({"order": [0, 1], "contiguous": True, "dtype": "float32"},)
    (argument,) = opened["arguments"]
    assert (argument["size"], argument["dtype"]) == ([16, 128], "float32")


def test_a_candidate_is_checked_and_timed(worker, bucket_of):
    bucket_of()
    found = measured(worker, "right")
    assert (found["status"], found["latency_us"]) == ("ok", 5.0)
    assert found["launches"] == Fidelity().full
    assert found["resources"] == {"shared": 0, "regs": 0, "spills": 0, "threads": 0}
    assert not found["cut"]
    found = measured(worker, "right", 1.0)
    assert (found["cut"], found["launches"]) == (True, Fidelity().quick)


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
def test_a_candidate_that_fails(worker, bucket_of, digest, status, error):
    bucket_of()
    found = measured(worker, digest)
    assert (found["status"], found["error"][: len(error)]) == (status, error)
    codes = [{"digest": "right"}, {"digest": digest}]
    raced = worker.final({"bucket": 1, "codes": codes, "rounds": 4})
    assert raced["samples"] == [[5.0] * 4, []]
    assert raced["errors"][0] == ""
    assert error in raced["errors"][1]


def test_a_lost_context_ends_the_process(worker, bucket_of, monkeypatch):
    bucket_of()
    monkeypatch.setattr(gpu_module, "device_works", lambda: False)
    with pytest.raises(SystemExit):
        measured(worker, "fault")
    with pytest.raises(SystemExit):
        worker.final({"bucket": 1, "codes": [{"digest": "fault"}], "rounds": 1})


def test_several_buckets_each_with_its_own_arguments(worker, bucket_of, functions):
    bucket_of(1)
    (argument,) = bucket_of(2, m=32)["arguments"]
    assert argument["size"] == [32, 128]
    sizes = []
    functions["sizes"] = lambda x, _launcher=None: sizes.append(x.size(0)) or torch.softmax(x, -1)
    for bucket in (1, 2, 1):
        assert measured(worker, "sizes", bucket=bucket)["status"] == "ok"
    assert list(dict.fromkeys(sizes)) == [16, 32]
    assert sizes[-1] == 16
    # Opening one anew replaces it; closing one leaves the other.
    bucket_of(1, m=64)
    measured(worker, "sizes")
    assert sizes[-1] == 64
    assert worker.close({"bucket": 1}) == {}
    assert measured(worker, "right", bucket=2)["status"] == "ok"
    with pytest.raises(TuningError, match=r"^the bucket 1 is not open$"):
        measured(worker, "right")


def test_nothing_is_open(worker):
    assert worker.close({"bucket": 3}) == {}
    for call in (worker.measure, worker.final):
        with pytest.raises(TuningError, match=r"^the bucket 3 is not open$"):
            call({"bucket": 3})
    with pytest.raises(TuningError, match=r"^no device is set$"):
        GpuWorker()._clock  # noqa: B018


def test_drift_is_told_from_the_first_good_candidate_and_divided_by(
    worker, bucket_of, clock, monkeypatch
):
    """The device becomes a tenth slower; what is measured then reads as it would have before."""
    monkeypatch.setattr(gpu_module, "_LOOK_S", 0.0)
    monkeypatch.setattr(gpu_module, "_LOOK_SHARE", 0.0)
    bucket_of()
    for _ in range(3):
        found = measured(worker, "right")
        assert (found["latency_us"], found["drift"]) == (5.0, 1.0)
    clock.latency_us = 5.5
    found = [measured(worker, "right") for _ in range(3)]
    assert (found[-1]["latency_us"], found[-1]["drift"]) == (5.0, 1.1)
    # Another bucket has seen nothing of it.
    bucket_of(2)
    assert measured(worker, "right", bucket=2)["latency_us"] == 5.5


def test_the_device_is_looked_at_once_in_a_while(worker, bucket_of, functions, monkeypatch):
    monkeypatch.setattr(gpu_module, "_LOOK_S", 3600.0)
    bucket_of()
    calls = []
    functions["anchor"] = lambda x, _launcher=None: calls.append(1) or torch.softmax(x, -1)
    measured(worker, "anchor")
    before = len(calls)
    for _ in range(5):
        measured(worker, "right")
    assert len(calls) == before


def test_a_candidate_that_damages_what_is_not_its_own_ends_the_process(
    worker, bucket_of, functions, capfd
):
    """What was right before is wrong then, and would be for all that follow."""
    bucket_of()
    assert measured(worker, "right")["status"] == "ok"

    def damages(x, _launcher=None):
        bench._want[0].add_(1.0)
        return x

    bench = worker._buckets[1].bench
    functions["damages"] = damages
    with pytest.raises(SystemExit) as caught:
        measured(worker, "damages")
    assert caught.value.code == 1
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("memory was changed outside of a result, which is now: result 0: ")


def test_a_wrong_result_alone_is_no_damage(worker, bucket_of):
    bucket_of()
    assert measured(worker, "wrong")["status"] == "wrong_result"  # with nothing to compare
    assert measured(worker, "right")["status"] == "ok"
    assert measured(worker, "wrong")["status"] == "wrong_result"
    assert measured(worker, "right")["status"] == "ok"


def test_what_kernels_use_at_most():
    def kernel(shared, regs, spills, warps, width=32):
        target = SimpleNamespace(warp_size=width)
        metadata = SimpleNamespace(shared=shared, num_warps=warps, target=target)
        return SimpleNamespace(metadata=metadata, n_regs=regs, n_spills=spills)

    found = resources([kernel(100, 32, 0, 4), kernel(50, 64, 8, 2, 64)])
    assert found == {"shared": 100, "regs": 64, "spills": 8, "threads": 128}
