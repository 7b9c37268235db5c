from __future__ import annotations

import pytest

from lfbo_aot.errors import TuningError
from lfbo_aot.registry import catalog
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.tuning.devices.interpreter import InterpreterDevice

KERNELS = """
import helion.language as hl, torch
import lfbo_aot
from lfbo_aot import Exact

def declared(**changed):
    small = [{"n": 8, "dtype": "float32"}]
    words = {
        "dims": {"n": Exact(8), "dtype": Exact("float32")},
        "shape": lambda x: {"n": x.size(0), "dtype": x.dtype},
        "inputs": lambda shape, device: (torch.arange(1.0, 9.0, device=device),),
        "reference": torch.tanh, "small": small, "package": "mine",
    }
    return lfbo_aot.kernel(**{**words, **changed})

def boom(*_):
    raise RuntimeError("boom")

@declared()
def squash(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        out[i] = torch.tanh(x[i])
    return out

@declared(inputs=boom)
def no_inputs(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        out[i] = torch.tanh(x[i])
    return out

@declared(reference=boom)
def no_reference(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        out[i] = torch.tanh(x[i])
    return out

@declared(reference=torch.sinh)
def wrong(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.tile(x.size(0)):
        out[i] = torch.tanh(x[i])
    return out

@declared(reference=None, mutates=["x"])
def doubles(x: torch.Tensor) -> torch.Tensor:
    for i in hl.tile(x.size(0)):
        x[i] = x[i] * 2
    return x
"""


@pytest.fixture(scope="module")
def device():
    """One worker for all: it takes seconds to start."""
    device = InterpreterDevice(workers=1, trial_s=60.0)
    yield device
    device.close()


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    from lfbo_aot.registry.discovery import load_kernels

    path = tmp_path_factory.mktemp("kernels") / "kernels_of_interpreter_tests.py"
    path.write_text(KERNELS)
    found = {spec.name: spec for spec in load_kernels([str(path)])}
    yield found
    for spec in found.values():
        catalog.discard(spec.kernel_id)


def opened(device, spec):
    return device.open(spec, spec.small[0])


def outcomes(device, points):
    for ticket, point in enumerate(points):
        device.submit(ticket, point, None)
    found = []
    while len(found) < len(points):
        found += device.wait(1.0)
    return sorted(found, key=lambda o: o.ticket)


def test_real_code_is_run_and_checked(device, specs):
    bucket = opened(device, specs["squash"])
    assert device.id == INTERPRETER
    assert bucket.layout == [{"order": [0], "contiguous": True, "dtype": "float32"}]
    assert bucket.policy == {"l2": "none", "clock": "wall", "inputs": "declared"}
    assert bucket.versions["helion"]
    assert bucket.default["pid_type"] == "flat"
    block = [t.name for t in bucket.space.tunables].index("block_sizes[0]")
    points = [
        (*bucket.space.default[:block], n, *bucket.space.default[block + 1 :]) for n in (1, 8)
    ]
    found = outcomes(device, points)
    assert [o.status for o in found] == ["ok", "ok"]
    assert [o.config["block_sizes"] for o in found] == [[1], [8]]
    # Eight programs take longer than one, even here.
    assert found[0].latency_us > found[1].latency_us > 0
    readings = device.final([o.config for o in found], 3)
    assert [len(r.samples_us) for r in readings] == [3, 3]
    bad = {**bucket.default, "block_sizes": [1, 2, 3]}
    good, failed = device.final([bucket.default, bad], 2)
    assert (len(good.samples_us), good.error) == (2, "")
    assert failed.samples_us == ()
    assert "InvalidConfig" in failed.error


def test_points_that_are_none(device, specs):
    bucket = opened(device, specs["squash"])
    (found,) = outcomes(device, [("nonsense",) * len(bucket.space.default)])
    assert (found.status, found.config) == ("invalid", None)
    assert found.error.startswith("ValueError: tunable ")


def test_results_that_differ_from_the_reference(device, specs):
    bucket = opened(device, specs["wrong"])
    (found,) = outcomes(device, [bucket.space.default])
    assert found.status == "wrong_result"
    assert found.error.startswith("result 0: 8 of 8 values differ")
    (reading,) = device.final([bucket.default], 2)
    assert (reading.samples_us, reading.error) == ((), found.error)


def test_the_default_is_the_reference_where_there_is_none(device, specs):
    bucket = opened(device, specs["doubles"])
    found = outcomes(device, [bucket.space.default])
    assert [o.status for o in found] == ["ok"]


def test_one_station_and_the_points_of_configs_that_fit(device, specs):
    bucket = opened(device, specs["squash"])
    assert device.stations == (device,)
    assert device.points([bucket.default, {"nonsense": 1}]) == (bucket.space.default,)
    assert device.points([]) == ()


def test_measuring_at_another_shape(device, specs):
    spec = specs["squash"]
    bucket = opened(device, spec)
    default, readings = device.final_at(spec, spec.small[0], [bucket.default], 3)
    assert default == bucket.default
    assert [(r.config, len(r.samples_us)) for r in readings] == [(default, 3)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_inputs", "inputs= of kernel 'mine.no_inputs' failed: RuntimeError: boom"),
        ("no_reference", "kernel 'mine.no_reference': reference= failed: RuntimeError: boom"),
    ],
)
def test_kernels_that_can_not_be_opened(device, specs, name, message):
    with pytest.raises(TuningError) as caught:
        opened(device, specs[name])
    assert str(caught.value) == message
    assert opened(device, specs["squash"]).default["pid_type"] == "flat"
