from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.limits import Limits
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
        device_count=lambda: len(found),
        get_device_properties=lambda index: found[index],
    )
    fake = SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None, cuda="13.0"))
    monkeypatch.setitem(sys.modules, "torch", fake)
    _forget()
    yield SimpleNamespace(torch=fake, devices=found)
    _forget()


def _forget():
    for cached in (hardware._cuda, hardware._cuda_limits, hardware.uniform):
        cached.cache_clear()


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


GIB = 1 << 30


def gpu(name, arch=(9, 0), sms=132, memory=140 * GIB, **more):
    """Properties as torch shows them."""
    fields = {"multi_processor_count": sms, "total_memory": memory, "gcnArchName": ""}
    return SimpleNamespace(name=name, major=arch[0], minor=arch[1], **{**fields, **more})


def names():
    return [device.name for device in hardware.identities()]


def test_a_slice_is_not_taken_for_the_whole_device_nor_two_slices_for_each_other(gpus):
    name = "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    gpus.devices[:] = [
        gpu("NVIDIA H200"),
        gpu("NVIDIA H200", sms=60, memory=70 * GIB),
        gpu("NVIDIA H200", sms=32, memory=35 * GIB),
        gpu(name, sms=60, memory=39 * GIB),
    ]
    assert names() == [
        "NVIDIA H200",
        "NVIDIA H200 (60 SMs, 80 GiB)",
        "NVIDIA H200 (32 SMs, 40 GiB)",
        f"{name} (60 SMs, 40 GiB)",
    ]


def test_a_partition_of_an_amd_device_is_one_of_its_own(gpus):
    gpus.torch.version.hip = "7.0"
    arch = "gfx942:sramecc+:xnack-"
    whole = gpu("AMD Instinct MI300X", sms=304, memory=191 * GIB, gcnArchName=arch)
    part = gpu("AMD Instinct MI300X", sms=38, memory=24 * GIB - 1, gcnArchName=arch)
    gpus.devices[:] = [whole, part]
    assert names() == ["AMD Instinct MI300X", "AMD Instinct MI300X (38 CUs, 24 GiB)"]
    assert not hardware.uniform()


def test_the_identities_of_all_devices_and_whether_they_are_one(gpus):
    h200, h100 = DeviceId("sm90", "NVIDIA H200"), DeviceId("sm90", "NVIDIA H100 PCIe")
    assert hardware.identities() == (h200, h100)
    assert hardware.uniform() is False
    _forget()
    gpus.devices[1] = gpus.devices[0]
    assert hardware.identities() == (h200, h200)
    assert hardware.uniform() is True
    gpus.devices.append(gpu("NVIDIA H100 PCIe"))
    assert hardware.uniform() is True  # asked once in a process
    _forget()
    assert hardware.uniform() is False


def test_a_host_of_mixed_archs_reads_each_ones(gpus):
    gpus.devices[:] = [gpu("NVIDIA H200"), gpu("NVIDIA L4", (8, 9), 58, 22 * GIB)]
    assert list(map(str, hardware.identities())) == ["sm90/NVIDIA H200", "sm89/NVIDIA L4"]
    assert hardware.limits_here(0).shared_per_block == 227 * 1024
    assert hardware.limits_here(1).shared_per_block == 99 * 1024


def test_no_gpu_no_identities(gpus):
    gpus.torch.cuda.is_available = lambda: False
    assert hardware.identities() == ()
    assert hardware.uniform() is True


def test_limits_are_those_that_the_device_itself_reports(gpus):
    own = {"shared_memory_per_block": 48 * 1024, "shared_memory_per_block_optin": 96 * 1024}
    gpus.devices[:] = [
        gpu("NVIDIA New", (7, 0), **own, max_threads_per_block=512, regs_per_block=32768),
        gpu("NVIDIA Newer", (12, 9), **own, regs_per_multiprocessor=131072),
        gpu("NVIDIA H200", **{**own, "shared_memory_per_block_optin": 200 * 1024}),
    ]
    assert hardware.limits_here(0) == Limits(96 * 1024, 512, 32768)
    assert hardware.limits_here(1) == Limits(96 * 1024, 1024, 131072)
    assert hardware.limits_here(2) == Limits(200 * 1024, 1024, 65536)
    assert hardware.limits_here(on("cuda", 1)) == hardware.limits_here(1)
    assert hardware.limits_here(on("cuda").device) == hardware.limits_here(1)  # the current one


def test_limits_that_torch_does_not_show_are_those_of_the_arch(gpus):
    plain = {"shared_memory_per_block": 48 * 1024}
    gpus.devices[:] = [gpu("NVIDIA New", (8, 6), **plain), gpu("NVIDIA Newer", (12, 9), **plain)]
    assert hardware.limits_here(0) == Limits(99 * 1024, 1024, 65536)
    assert hardware.limits_here(1) == Limits(48 * 1024, 1024, 65536)  # at least these
    _forget()
    gpus.devices[1] = gpu("NVIDIA Newer", (12, 9))
    assert hardware.limits_here(1) is None


def test_on_rocm_the_plain_figure_is_the_whole_of_it(gpus):
    gpus.torch.version.hip = "7.0"
    plain = {"shared_memory_per_block": 160 * 1024}
    gpus.devices[0] = gpu("AMD New", gcnArchName="gfx1250", **plain)
    gpus.devices[1] = gpu("AMD Instinct MI355X", gcnArchName="gfx950:sramecc+", **plain)
    assert hardware.limits_here(0).shared_per_block == 160 * 1024
    assert hardware.limits_here(1).shared_per_block == 160 * 1024


def test_limits_of_the_cpu_are_the_interpreters(monkeypatch):
    monkeypatch.setattr(hardware, "interpreted", lambda: True)
    assert hardware.limits_here(on("cpu")) == Limits(1 << 30, 1024, 65536)
    monkeypatch.setattr(hardware, "interpreted", lambda: False)
    assert hardware.limits_here(on("cpu")) is None


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
