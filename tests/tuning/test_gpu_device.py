from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lfbo_aot.errors import TuningError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.devices import gpu
from lfbo_aot.tuning.devices.gpu import GpuDevice

H200 = DeviceId("sm90", "NVIDIA H200")
SHAPE = {"m": 64, "dtype": "float32"}


@pytest.fixture(scope="module")
def started():
    """One device for all, its processes without Helion: a few hundred milliseconds each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        device = GpuDevice(
            H200,
            3,
            workers=2,
            compile_s=1.0,
            trial_s=2.0,
            _modules=("fake_workers.compile", "fake_workers.gpu"),
        )
        yield device
        device.close()


@pytest.fixture
def device(started, spec, monkeypatch):
    monkeypatch.setattr(gpu, "_CODEGEN_S", 1.0)
    started.open(spec, SHAPE, [])
    return started


def outcomes(device, *blocks, best_us=None):
    for block in blocks:
        device.submit(block, (block,), best_us)
    found = []
    while len(found) < len(blocks):
        found += device.wait(1.0)
    return {o.ticket: o for o in found}


def test_opening_tells_both_workers(started, spec):
    found = started.open(spec, SHAPE, [{"block": 4}, {"block": 512}])
    assert found.default == {"block": 2}
    assert found.space.default == (2,)
    assert found.space.seeds == ((4,),)
    assert (found.layout, found.policy) == ([{"order": [0]}], {"clock": "fake"})
    assert found.versions == {"arguments": "[{'value': 64}]"}
    assert started.id == H200


def test_a_point_is_compiled_then_measured(device):
    found = outcomes(device, 2, 4)
    assert (found[4].status, found[4].latency_us, found[4].launches) == ("ok", 25.0, 24)
    assert found[4].config == {"block": 4}
    assert (found[4].codegen_s, found[4].time_s, found[4].cut) == (0.5, 0.01, False)
    assert found[4].compile_s >= 1.0
    assert found[4].resources["shared"] == 4
    assert found[2].latency_us == 50.0
    assert outcomes(device, 4, best_us=1.0)[4].cut


@pytest.mark.parametrize(
    ("block", "status", "error"),
    [
        (1, "invalid", "ValueError: no"),
        (8, "compile_timeout", "killed after 5.0 s"),
        (512, "compile_timeout", "killed after 2.0 s"),
        (256, "crash", "exit 1"),
        (32, "crash", "exit 1"),
        (64, "timeout", "killed after 2.0 s"),
        (128, "wrong_result", "result 0: 1 of 1"),
    ],
    ids=lambda value: str(value).partition(" ")[0],
)
def test_each_failure_has_its_status_and_the_next_one_runs(device, block, status, error):
    found = outcomes(device, block, 4)
    assert (found[block].status, found[block].error) == (status, error)
    assert found[block].latency_us is None
    assert found[4].status == "ok"


def test_room_for_points(device):
    assert device.free() == 4
    for block in (2, 4):
        device.submit(block, (block,), None)
    assert device.free() <= 3
    found = []
    while len(found) < 2:
        found += device.wait(1.0)
    assert device.free() == 4


def test_the_final_measurement_compiles_what_an_earlier_process_found(device):
    outcomes(device, 2)
    configs = [{"block": 2}, {"block": 4}, {"block": 8}, {"block": 16}]
    readings = {r.config["block"]: r for r in device.final(configs, 3)}
    assert readings[2].samples_us == (50.0,) * 3
    assert readings[4].samples_us == (25.0,) * 3
    assert readings[4].resources == {"shared": 4}
    assert (readings[8].samples_us, readings[8].error) == (
        (),
        "compile_timeout: killed after 5.0 s",
    )
    assert (readings[16].samples_us, readings[16].error) == ((), "crash: dead")
    assert device.wait(0.0) == []


def test_no_finalist_compiles(device):
    (reading,) = device.final([{"block": 8}], 3)
    assert reading.samples_us == ()


def test_a_final_measurement_that_loses_the_device(device, spec):
    with pytest.raises(TuningError, match=r"^the final measurement failed: crash: exit 1$"):
        device.final([{"block": 256}], 3)
    assert outcomes(device, 4)[4].status == "ok"


def test_stragglers_do_not_disturb_the_next_bucket(device, spec):
    for block in (2, 4, 64, 16):
        device.submit(block, (block,), None)
    device.open(spec, {**SHAPE, "m": 32}, [])
    found = outcomes(device, 2)
    assert list(found) == [2]
    assert device.wait(0.0) == []


def test_a_bucket_that_can_not_be_opened(device, spec):
    with pytest.raises(TuningError, match=r"RuntimeError: boom$"):
        device.open(spec, {**SHAPE, "m": 13}, [])
    device.open(spec, SHAPE, [])
    assert outcomes(device, 4)[4].status == "ok"


def test_closing_leaves_no_process(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    modules = ("fake_workers.compile", "fake_workers.gpu")
    before = set(psutil.Process().children())
    device = GpuDevice(H200, workers=1, _modules=modules)
    folder = device._workspace.folder
    assert len(set(psutil.Process().children()) - before) == 3  # and the watchdog
    device.close()
    assert set(psutil.Process().children()) <= before
    assert not folder.exists()
