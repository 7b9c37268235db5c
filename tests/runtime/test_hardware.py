from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime import hardware
from lfbo_aot.runtime import versions


@pytest.fixture
def gpus(monkeypatch):
    """A torch with these GPUs, the second one current."""
    found = [
        SimpleNamespace(name="NVIDIA H200", major=9, minor=0, gcnArchName=""),
        SimpleNamespace(name="NVIDIA H100 PCIe", major=9, minor=0, gcnArchName=""),
    ]
    cuda = SimpleNamespace(
        is_available=lambda: True,
        current_device=lambda: 1,
        get_device_properties=lambda index: found[index],
    )
    fake = SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None, cuda="13.0"))
    monkeypatch.setitem(sys.modules, "torch", fake)
    hardware._cuda.cache_clear()
    yield SimpleNamespace(torch=fake, devices=found)
    hardware._cuda.cache_clear()


def on(kind, index=None):
    return SimpleNamespace(device=SimpleNamespace(type=kind, index=index))


def test_each_device_is_read_by_its_own_index(gpus):
    h200, h100 = DeviceId("sm90", "NVIDIA H200"), DeviceId("sm90", "NVIDIA H100 PCIe")
    assert hardware.device_of(on("cuda", 0)) == h200
    assert hardware.device_of(on("cuda", 1)) == h100
    assert hardware.device_of(on("cuda")) == h100
    assert hardware.current_device() == h100
    gpus.torch.cuda.current_device = lambda: 0
    assert hardware.current_device() == h200
    assert hardware.device_of(on("cuda")) == h200


def test_rocm_tells_its_arch_itself(gpus):
    gpus.torch.version.hip = "7.0"
    gpus.devices[0] = SimpleNamespace(
        name="AMD Instinct MI300X", gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=4
    )
    assert str(hardware.device_of(on("cuda", 0))) == "gfx942/AMD Instinct MI300X"


def test_the_cpu_is_the_interpreter_where_that_is_on(monkeypatch):
    monkeypatch.delitem(sys.modules, "triton.knobs", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert hardware.device_of(on("cpu")) == DeviceId("cpu", "CPU")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert hardware.device_of(on("cpu")) == INTERPRETER
    assert hardware.device_of(on("xpu")) == DeviceId("xpu", "xpu")


def test_no_torch_no_device(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert hardware.current_device() is None


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("2.11.0+cu130", "2.11.0"),
        ("2.13.0a0+gitabc", "2.13.0"),
        ("1.5.0.post1", "1.5.0"),
        ("1.5.0rc2.dev3", "1.5.0"),
        ("v3.6", "3.6"),
        ("2!1.0", "2!1.0"),
        ("none", "none"),
    ],
)
def test_base_version(text, base):
    assert versions.base_version(text) == base


def test_versions_are_those_of_loaded_libraries(monkeypatch):
    for name in ("helion", "triton", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert versions.loaded_versions() == {}
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.6.0+fb"))
    release = SimpleNamespace(hip=None, cuda="13.0")
    torch = SimpleNamespace(__version__="2.11.0+cu130", version=release)
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = {"triton": "3.6.0", "torch": "2.11.0", "runtime": "13.0"}
    assert versions.loaded_versions() == found
