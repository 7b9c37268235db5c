"""The GPU device with workers that need no GPU, as real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from lfbo_aot.errors import DeviceLostError
from lfbo_aot.errors import TuningError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.devices.gpu import GpuDevice
from lfbo_aot.tuning.devices.machine import Machine

H200 = DeviceId("sm90", "NVIDIA H200")
SHAPE = {"m": 64, "dtype": "float32"}
MODULES = ("fake_workers.compile", "fake_workers.gpu")


@pytest.fixture(scope="module")
def fake_machine():
    """Machines whose processes are without torch: a few hundred milliseconds each."""

    def make(indices=(0,), **words):
        words = {"workers": 2, "compile_s": 1.0, "trial_s": 2.0, **words}
        return Machine(indices, _modules=MODULES, **words)

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield make


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return tmp_path_factory.mktemp("told") / "told.txt"


@pytest.fixture(scope="module")
def started(fake_machine, told):
    """One device for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_TOLD", str(told))
        device = GpuDevice(H200, (3,), machine=fake_machine((3,)))
        yield device
        device.close()


@pytest.fixture
def station(started, spec):
    station = started.stations[0]
    station.open(spec, SHAPE)
    yield station
    station.leave()


def outcomes(station, *blocks, best_us=None):
    for block in blocks:
        station.submit(block, (block,), best_us)
    return gathered(station, len(blocks))


def gathered(station, count):
    found = []
    while len(found) < count:
        found += station.wait(1.0)
    return {o.ticket: o for o in found}


def test_opening_tells_both_workers(station, started, spec):
    found = station.open(spec, SHAPE)
    assert found.default == {"block": 2}
    assert found.space.default == (2,)
    assert (found.layout, found.policy) == ([{"order": [0]}], {"clock": "fake"})
    assert found.versions == {"arguments": "[{'value': 64}]", "processes": "2", "inert": "[]"}
    assert station.points([{"block": 4}, {"block": 512}, {"block": 8}]) == ((4,), (8,))
    assert station.points([]) == ()
    assert started.id == station.id == H200


def test_what_makes_no_difference_is_passed_on_to_the_kernels_next_bucket(started, changed, spec):
    station, other = started.stations[0], changed(spec, kernel_id="pkg.inert")
    assert station.open(other, {**SHAPE, "m": 18}).space.inert == (("block", -1),)
    assert station.open(other, SHAPE).versions["inert"] == "[['block', -1]]"
    station.leave()


def test_a_point_is_compiled_then_measured(station):
    found = outcomes(station, 2, 4)
    assert (found[4].status, found[4].latency_us, found[4].launches) == ("ok", 25.0, 24)
    assert found[4].config == {"block": 4}
    assert (found[4].codegen_s, found[4].time_s, found[4].cut) == (0.5, 0.01, False)
    assert found[4].compile_s == 1.5
    assert found[4].resources["shared"] == 4
    assert found[2].latency_us == 50.0
    assert outcomes(station, 16, best_us=1.0)[16].cut


def test_equal_code_is_measured_once(station):
    for ticket in (1, 2):
        station.submit(ticket, (4,), None)
    found = gathered(station, 2)
    assert sorted(o.status for o in found.values()) == ["duplicate", "ok"]
    assert {o.latency_us for o in found.values()} == {25.0}


@pytest.mark.parametrize(
    ("block", "status", "error"),
    [
        (1, "invalid", "ValueError: no"),
        (8, "compile_error", "error: too much"),
        (512, "compile_timeout", "killed after 1.0 s"),
        (256, "crash", "the compile server was ended from outside"),
        (32, "crash", "exit 1: illegal access"),
        (64, "timeout", "killed after 2.0 s"),
        (128, "wrong_result", "result 0: 1 of 1"),
    ],
    ids=lambda value: str(value).partition(" ")[0],
)
def test_each_failure_has_its_status_and_the_next_one_runs(station, block, status, error):
    found = outcomes(station, block)[block]
    assert (found.status, found.error) == (status, error)
    assert found.latency_us is None
    assert outcomes(station, 4)[4].status == "ok"


def test_room_for_points(station):
    assert station.free() == 4
    station.submit(1, (512,), None)
    station.submit(2, (512,), None)
    assert station.free() == 2
    gathered(station, 2)
    assert station.free() == 4


def test_the_final_measurement_compiles_what_an_earlier_process_found(station):
    outcomes(station, 2)
    configs = [{"block": 2}, {"block": 4}, {"block": 8}, {"block": 16}]
    readings = {r.config["block"]: r for r in station.final(configs, 3)}
    assert readings[2].samples_us == (50.0,) * 3
    assert readings[4].samples_us == (25.0,) * 3
    assert readings[4].resources == {"shared": 4}
    assert (readings[8].samples_us, readings[8].error) == ((), "compile_error: error: too much")
    assert (readings[16].samples_us, readings[16].error) == ((), "crash: dead")
    assert station.wait(0.0) == []


def test_the_final_measurement_ends_what_still_compiles(station):
    for ticket in range(5):
        station.submit(ticket, (512,), None)
    (reading,) = station.final([{"block": 4}], 2)
    assert reading.samples_us == (25.0,) * 2
    assert station.free() == 4


def test_measuring_at_another_shape(station, spec):
    """With the code of that shape, and the open bucket as it was."""
    outcomes(station, 4)
    default, readings = station.final_at(spec, {**SHAPE, "m": 128}, [{"block": 4}], 2)
    assert default == {"block": 2}
    assert [(r.config["block"], r.samples_us) for r in readings] == [
        (2, (100.0, 100.0)),
        (4, (50.0, 50.0)),
    ]
    assert station.final([{"block": 4}], 1)[0].samples_us == (25.0,)


def test_no_finalist_compiles(station):
    (reading,) = station.final([{"block": 8}], 3)
    assert reading.samples_us == ()


def test_a_final_measurement_that_loses_its_worker(station):
    with pytest.raises(TuningError, match=r"^the final measurement failed: crash: exit 1") as e:
        station.final([{"block": 256}], 3)
    assert not isinstance(e.value, DeviceLostError)
    assert outcomes(station, 4)[4].status == "ok"


def test_stragglers_do_not_disturb_the_next_bucket(station, spec):
    for block in (2, 4, 64, 512, 512):
        station.submit(block + len(str(block)), (block,), None)
    station.open(spec, {**SHAPE, "m": 32})
    assert station.free() == 4
    found = outcomes(station, 2)
    assert list(found) == [2]
    assert station.wait(0.0) == []


@pytest.mark.parametrize(
    ("m", "message"),
    [
        (13, "RuntimeError: inputs= of kernel 'pkg.norm' failed: RuntimeError: boom"),
        (17, "CompileError: no such kernel"),
        (20, "UnknownNameError: unknown kernel"),
        (19, "the bucket's compile server is lost each time"),
    ],
    ids=["inputs", "binding", "import", "import kills"],
)
def test_a_bucket_that_can_not_be_opened(station, spec, m, message):
    with pytest.raises(TuningError) as caught:
        station.open(spec, {**SHAPE, "m": m})
    assert str(caught.value).partition(": exit")[0].partition(": the compile")[0] == message
    with pytest.raises(TuningError, match="no bucket is open"):
        station.free()
    station.open(spec, SHAPE)
    assert outcomes(station, 4)[4].status == "ok"


def test_the_workers_are_told_of_every_end(started, spec, told):
    """Also of a bucket that is left with a trial on the device and others behind it."""
    station = started.stations[1]
    told.write_text("")
    station.open(spec, SHAPE)
    for ticket, block in enumerate((64, 2, 4, 16)):
        station.submit(ticket, (block,), None)
    while started._machine.gpus[0].queue.pending("measure") < 4:
        assert station.wait(0.05) == []
    station.leave()
    station.open(spec, SHAPE)
    station.leave()
    # Its answer comes after all that was asked before.
    started.stations[0].open(spec, SHAPE)
    started.stations[0].leave()
    lines = told.read_text().split("\n")
    opened = {line.split()[1] for line in lines if line.startswith("open")}
    closed = {line.split()[1] for line in lines if line.startswith("close")}
    assert len(opened) == 3
    assert {*sorted(opened, key=int)[:2]} <= closed


def test_two_stations_of_a_gpu_are_searched_one_after_the_other(started, spec):
    one, two = started.stations
    one.open(spec, SHAPE)
    two.open(spec, {**SHAPE, "m": 128})
    with one.turn():
        assert not started._machine.gpus[0].turn.acquire(blocking=False)
        assert outcomes(one, 4)[4].latency_us == 25.0
    with two.turn():
        assert outcomes(two, 16)[16].latency_us == 6.25
        assert one.final([{"block": 4}], 1)[0].samples_us == (25.0,)
    assert two.final([{"block": 16}, {"block": 4}], 1)[1].samples_us == (50.0,)
    one.leave()
    two.leave()


def test_a_compile_worker_that_is_killed(station, started):
    """What was asked of it is asked of the next one; later losses don't add up to an end."""
    for _ in range(4):
        os.kill(started._machine.servers._worker.pid, signal.SIGKILL)
        assert station.points([{"block": 4}]) == ((4,),)
    station.submit(1, (4,), None)
    assert gathered(station, 1)[1].status == "ok"
    assert started.usage["compilers"] == 2
    assert started.usage["ready_wait_s"] >= 0.0


def test_a_compile_server_that_is_lost_again_and_again(station, started):
    """That bucket fails; the device is not lost with it."""
    outcomes(station, 2)
    for ticket in range(6):
        station.submit(ticket, (256,), None)
    with pytest.raises(TuningError, match="compile server is lost each time") as caught:
        gathered(station, 6)
    assert not isinstance(caught.value, DeviceLostError)
    with pytest.raises(TuningError, match="lost each time"):
        station.points([{"block": 4}])


def test_each_gpu_has_its_worker_and_the_other_goes_on_without_it(fake_machine, spec, monkeypatch):
    machine = fake_machine((0, 1))
    device = GpuDevice(H200, (0, 1), machine=machine)
    try:
        # Neighbours in the list are different GPUs.
        assert [s._gpu for s in device.stations] == [0, 1, 0, 1]
        first, second = device.stations[:2]
        for station in (first, second):
            station.open(spec, SHAPE)
        assert device.usage["gpus"] == 2
        monkeypatch.setenv("FAKE_GONE", __file__)
        first.submit(1, (32,), None)
        with pytest.raises(DeviceLostError, match="no GPU worker can be made ready: crash, exit 1"):
            gathered(first, 2)
        with pytest.raises(DeviceLostError, match="no GPU worker can be made ready"):
            device.stations[2].open(spec, SHAPE)
        assert outcomes(second, 4)[4].status == "ok"
        second.open(spec, SHAPE)
        assert second.final([{"block": 4}], 1)[0].samples_us == (25.0,)
    finally:
        device.close()


def test_no_compile_worker_gets_up(fake_machine, spec, monkeypatch):
    monkeypatch.setenv("FAKE_COMPILE", "die")
    device = GpuDevice(H200, machine=fake_machine())
    try:
        for station in device.stations:
            with pytest.raises(DeviceLostError) as caught:
                station.open(spec, SHAPE)
            assert str(caught.value) == (
                "no compile worker can be made ready: exit 1: ImportError: no module named helion"
            )
    finally:
        device.close()


def test_closing_leaves_no_process(fake_machine, spec):
    before = set(psutil.Process().children(recursive=True))
    device = GpuDevice(H200, machine=fake_machine())
    folder = device._machine._workspace.folder
    station = device.stations[0]
    station.open(spec, SHAPE)
    for ticket in range(4):
        station.submit(ticket, (512,), None)
    mine = set(psutil.Process().children(recursive=True)) - before
    assert len(mine) == 4  # two workers, a server, and the watchdog
    device.close()
    device.close()
    _, alive = psutil.wait_procs(mine, timeout=10)
    assert alive == []
    assert not folder.exists()
