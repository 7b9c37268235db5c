"""The table of known devices: names word for word, properties that fit, limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.registry import amd
from lfbo_aot.registry import nvidia
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import KNOWN
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import can_be
from lfbo_aot.registry.devices import identify
from lfbo_aot.registry.devices import known
from lfbo_aot.registry.devices import limits_of
from lfbo_aot.registry.limits import Limits
from lfbo_aot.registry.limits import of_arch

MIB, GIB = 1 << 20, 1 << 30
ALL = pytest.mark.parametrize("device", KNOWN.values(), ids=lambda d: str(d.id).replace(" ", "_"))
ARCHS = ("sm80", "sm86", "sm87", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121")


@pytest.mark.parametrize(
    ("arch", "reported", "name"),
    [
        ("sm_90", "NVIDIA H200", "NVIDIA H200"),
        ("sm90", "NVIDIA H200 NVL", "NVIDIA H200 NVL"),
        ("sm90a", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("sm90", "NVIDIA H100", "NVIDIA H100 80GB HBM3"),
        ("sm90", "NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("sm90", "NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("sm90", "NVIDIA H20-3e", "NVIDIA H20-3e"),
        ("sm90", "NVIDIA GH200 480GB", "NVIDIA GH200 480GB"),
        ("sm80", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("sm80", "A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("sm80", "NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("sm86", "RTX A4000", "NVIDIA RTX A4000"),
        ("sm86", "NVIDIA A40", "NVIDIA A40"),
        ("sm86", "GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("sm87", "Orin", "Orin"),
        ("sm89", "NVIDIA L40S", "NVIDIA L40S"),
        ("sm89", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("sm100a", "NVIDIA B200", "NVIDIA B200"),
        ("sm103a", "NVIDIA B300 SXM6 AC", "NVIDIA B300 SXM6 AC"),
        ("sm110", "NVIDIA Thor", "NVIDIA Thor"),
        ("sm120", "NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090"),
        ("sm121", "NVIDIA GB10", "NVIDIA GB10"),
        ("gfx942:sramecc+:xnack-", "AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("gfx942", "AMD Instinct MI300X VF", "AMD Instinct MI300X"),
        ("gfx942", "AMD Instinct MI308X", "AMD Instinct MI308X"),
        ("gfx90a:sramecc+:xnack-", "AMD Instinct MI210", "AMD Instinct MI210"),
        ("gfx950:sramecc+:xnack-", "AMD Instinct MI355X", "AMD Instinct MI355X"),
    ],
)
def test_each_name_that_a_driver_reports_is_one_known_device(arch, reported, name):
    found = identify(arch, reported)
    assert found.name == name
    assert known(found).id == found


@ALL
def test_a_known_device_is_itself_and_keeps_its_name_as_text(device):
    assert identify(device.id.arch, device.id.name) == device.id
    assert identify(f"{device.id.arch}:sramecc+:xnack-", device.id.name) == device.id
    assert DeviceId.parse(str(device.id)) == device.id
    whole = {"sms": device.sms, "memory_bytes": device.memory_bytes}
    for name in (device.id.name, *device.aliases):
        assert identify(device.id.arch, name, **whole) == device.id


@ALL
def test_a_known_device_has_the_limits_of_its_arch(device):
    assert limits_of(device.id) == device.limits == of_arch(device.id.arch)
    shown = (device.shared_per_block, device.threads_per_block, device.registers_per_block)
    assert Limits(*shown) == device.limits
    assert device.shared_per_block >= 64 * 1024


@ALL
def test_no_name_is_matched_in_part_or_in_other_letters(device):
    arch, name = device.id.arch, device.id.name
    listed = {n for d in KNOWN.values() for n in (d.id.name, *d.aliases)}
    others = {f"{name} X", f"X {name}", name[:-1].strip(), name.lower(), name.replace(" ", "_")}
    for other in others - listed:
        assert identify(arch, other) == DeviceId(arch, other)
    other_arch = "sm90" if arch != "sm90" else "sm80"
    assert identify(other_arch, name) == DeviceId(other_arch, name)


@pytest.mark.parametrize(
    ("arch", "reported", "text"),
    [
        ("sm86", "NVIDIA RTX A400", "sm86/NVIDIA RTX A400"),
        ("sm86", "A4", "sm86/A4"),
        ("sm90", "H200", "sm90/H200"),
        ("sm90", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm90/NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
        ("sm90", "nvidia h200", "sm90/nvidia h200"),
        ("sm80", "NVIDIA H200", "sm80/NVIDIA H200"),
        ("gfx942", "AMD Instinct MI300X / HF", "gfx942/AMD Instinct MI300X - HF"),
        # Two products have this name, and nothing tells here which it is.
        ("gfx90a", "AMD Instinct MI250X/MI250", "gfx90a/AMD Instinct MI250X-MI250"),
        ("gfx942", "AMD Radeon Graphics", "gfx942/AMD Radeon Graphics"),
        ("sm90", "a|b\n c ", "sm90/a-b c"),
        ("sm90", "", "sm90/unknown"),
    ],
)
def test_other_names_stay_devices_of_their_own(arch, reported, text):
    found = identify(arch, reported)
    assert str(found) == text
    assert known(found) is None


@pytest.mark.parametrize(
    ("arch", "reported", "sms", "memory", "name"),
    [
        # What torch or nvidia-smi show of whole devices.
        ("sm90", "NVIDIA H200", 132, 143771 * MIB, "NVIDIA H200"),
        ("sm90", "NVIDIA H100 80GB HBM3", 132, 81079 * MIB, "NVIDIA H100 80GB HBM3"),
        ("sm90", "NVIDIA H100", 132, 81559 * MIB, "NVIDIA H100 80GB HBM3"),
        ("sm80", "NVIDIA A100-SXM4-40GB", 108, 42298834944, "NVIDIA A100-SXM4-40GB"),
        ("sm86", "NVIDIA A10G", 80, 22515 * MIB, "NVIDIA A10G"),
        ("sm87", "Orin", 16, 61 * GIB, "Orin"),
        ("sm89", "NVIDIA L4", 58, 22478 * MIB, "NVIDIA L4"),
        ("sm103", "NVIDIA GB300", 152, 281250 * MIB, "NVIDIA GB300"),
        ("sm121", "NVIDIA GB10", 48, 121 * GIB, "NVIDIA GB10"),
        ("gfx942", "AMD Instinct MI300X", 304, 196592 * MIB, "AMD Instinct MI300X"),
        ("gfx90a", "AMD Instinct MI250X / MI250", 110, 65520 * MIB, "AMD Instinct MI250X"),
        ("gfx90a", "AMD Instinct MI250X/MI250", 104, 65520 * MIB, "AMD Instinct MI250"),
    ],
)
def test_the_properties_of_a_whole_device_fit(arch, reported, sms, memory, name):
    assert identify(arch, reported, sms=sms, memory_bytes=memory) == DeviceId(arch, name)


@pytest.mark.parametrize(
    ("arch", "reported", "sms", "memory", "name"),
    [
        ("sm90", "NVIDIA H100", 132, 95830 * MIB, "NVIDIA H100 (132 SMs, 96 GiB)"),
        ("sm90", "NVIDIA H200", 60, 71000 * MIB, "NVIDIA H200 (60 SMs, 80 GiB)"),
        ("sm90", "NVIDIA H200", 132, 71000 * MIB, "NVIDIA H200 (132 SMs, 80 GiB)"),
        ("sm87", "Orin", 8, 7620 * MIB, "Orin (8 SMs, 8 GiB)"),
        (
            "sm86",
            "NVIDIA GeForce RTX 3060",
            28,
            8192 * MIB,
            "NVIDIA GeForce RTX 3060 (28 SMs, 8 GiB)",
        ),
        ("gfx942", "AMD Instinct MI300X", 38, 24570 * MIB, "AMD Instinct MI300X (38 CUs, 24 GiB)"),
        ("sm90", "NVIDIA New", 100, 1, "NVIDIA New (100 SMs, 1 GiB)"),
        ("sm90", "NVIDIA New", 100, None, "NVIDIA New (100 SMs)"),
        ("sm90", "NVIDIA New", None, 24 * GIB, "NVIDIA New (24 GiB)"),
    ],
)
def test_a_part_of_a_product_and_an_unknown_one_are_named_by_their_properties(
    arch, reported, sms, memory, name
):
    found = identify(arch, reported, sms=sms, memory_bytes=memory)
    assert found == DeviceId(arch, name)
    assert known(found) is None
    assert DeviceId.parse(str(found)) == found


@given(
    st.sampled_from(ARCHS) | st.just("gfx942"),
    st.sampled_from([d.name for d in KNOWN]) | st.text(max_size=30),
    st.integers(1, 400),
    st.integers(1, 1 << 40),
)
def test_what_properties_give_is_an_identity_that_a_database_may_hold(arch, name, sms, memory):
    found = identify(arch, name, sms=sms, memory_bytes=memory)
    assert can_be(found)
    assert DeviceId.parse(str(found)) == found
    assert identify(arch, name, sms=sms, memory_bytes=memory) == found
    assert identify(arch, found.name) == found  # as it is written on the command line
    device = known(found)
    if device is not None:
        assert device.sms in (None, sms)


@pytest.mark.parametrize(
    "name", ["NVIDIA H300", "NVIDIA H100", "X (SMs)", "(1 SMs)", "X ()", "X (, )"]
)
def test_a_name_that_no_look_up_asks_for(name):
    assert not can_be(DeviceId("sm90", name))


def test_what_a_driver_leaves_out_of_an_unknown_devices_memory_does_not_rename_it():
    sizes = (24 * GIB, 24217 * MIB, 24564 * MIB, 22515 * MIB)
    assert {identify("sm89", "NVIDIA New", memory_bytes=size).name for size in sizes} == {
        "NVIDIA New (24 GiB)"
    }


def test_no_two_products_share_a_name_but_those_that_their_properties_tell_apart():
    seen = {}
    for device in KNOWN.values():
        for name in (device.id.name, *device.aliases):
            seen.setdefault((device.id.arch, name), []).append(device)
    shared = {key: devices for key, devices in seen.items() if len(devices) > 1}
    assert {name for _, name in shared} == {
        "AMD Instinct MI250X - MI250",
        "AMD Instinct MI250X-MI250",
    }
    for devices in shared.values():
        assert len({device.sms for device in devices}) == len(devices)
    assert len(KNOWN) == len(nvidia.PRODUCTS) + len(amd.PRODUCTS) + 1


def test_every_arch_that_is_asked_for_has_products_and_limits():
    archs = {device.arch for device in KNOWN}
    for arch in (*ARCHS, "gfx90a", "gfx942", "gfx950", INTERPRETER.arch):
        assert arch in archs
        assert of_arch(arch) is not None


@pytest.mark.parametrize(
    ("arch", "kib"),
    [
        ("sm80", 163),
        ("sm86", 99),
        ("sm87", 163),
        ("sm89", 99),
        ("sm90", 227),
        ("sm100", 227),
        ("sm103", 227),
        ("sm110", 227),
        ("sm120", 99),
        ("sm121", 99),
        ("gfx90a", 64),
        ("gfx942", 64),
        ("gfx950", 160),
    ],
)
def test_shared_memory_of_an_arch_holds_for_unknown_products_too(arch, kib):
    assert limits_of(DeviceId(arch, "Something new")) == Limits(kib * 1024, 1024, 65536)


def test_limits_of_an_arch_that_is_not_listed_are_not_made_up():
    assert limits_of(DeviceId("sm50", "NVIDIA GeForce GTX 750")) is None
    assert limits_of(DeviceId("cpu", "CPU")) is None


def test_properties():
    h200 = known(DeviceId("sm90", "NVIDIA H200"))
    assert (h200.sms, h200.shared_per_block, h200.threads_per_block) == (132, 232448, 1024)
    assert known(DeviceId("sm90", "NVIDIA H100 PCIe")).sms == 114
    assert known(DeviceId("sm80", "NVIDIA A100-SXM4-40GB")).shared_per_block == 166912
    mi300x = known(DeviceId("gfx942", "AMD Instinct MI300X"))
    assert (mi300x.sms, mi300x.shared_per_block, mi300x.l2_bytes) == (304, 65536, 4 * MIB)
    assert known(DeviceId("sm103", "NVIDIA GB300")).sms is None
