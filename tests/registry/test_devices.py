from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import KNOWN
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import Target
from lfbo_aot.registry.devices import identify
from lfbo_aot.registry.devices import known
from lfbo_aot.registry.devices import normalize_arch
from lfbo_aot.registry.devices import parse_target


@pytest.mark.parametrize(
    ("arch", "reported", "text"),
    [
        ("sm_90", "NVIDIA H200", "sm90/NVIDIA H200"),
        ("sm90", "NVIDIA H200 NVL", "sm90/NVIDIA H200 NVL"),
        ("sm90a", "NVIDIA H100 80GB HBM3", "sm90/NVIDIA H100 80GB HBM3"),
        ("sm90", "NVIDIA H100", "sm90/NVIDIA H100 80GB HBM3"),
        ("sm90", "NVIDIA H100 PCIe", "sm90/NVIDIA H100 PCIe"),
        ("sm90", "NVIDIA H100 NVL", "sm90/NVIDIA H100 NVL"),
        ("sm80", "NVIDIA A100-SXM4-80GB", "sm80/NVIDIA A100-SXM4-80GB"),
        ("sm80", "A100-SXM4-40GB", "sm80/NVIDIA A100-SXM4-40GB"),
        ("sm80", "NVIDIA A100 80GB PCIe", "sm80/NVIDIA A100 80GB PCIe"),
        ("sm100a", "NVIDIA B200", "sm100/NVIDIA B200"),
        ("gfx942:sramecc+:xnack-", "AMD Instinct MI300X", "gfx942/AMD Instinct MI300X"),
    ],
)
def test_each_name_that_a_driver_reports_is_one_known_device(arch, reported, text):
    found = identify(arch, reported)
    assert str(found) == text
    device = known(found)
    assert device is not None
    assert device.id == found


@pytest.mark.parametrize(
    ("arch", "reported", "text"),
    [
        ("sm86", "NVIDIA RTX A4000", "sm86/NVIDIA RTX A4000"),
        ("sm86", "NVIDIA A40", "sm86/NVIDIA A40"),
        ("sm90", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm90/NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
        ("sm90", "nvidia h200", "sm90/nvidia h200"),
        ("sm80", "NVIDIA H200", "sm80/NVIDIA H200"),
        ("gfx942", "AMD Instinct MI300X / HF", "gfx942/AMD Instinct MI300X - HF"),
        ("sm90", "a|b\n c ", "sm90/a-b c"),
        ("sm90", "", "sm90/unknown"),
    ],
)
def test_other_names_stay_devices_of_their_own(arch, reported, text):
    found = identify(arch, reported)
    assert str(found) == text
    assert known(found) is None


@given(st.text(max_size=40))
def test_a_device_of_any_name_is_read_back(name):
    found = identify("sm90", name)
    assert DeviceId.parse(str(found)) == found
    assert identify(found.arch, found.name) == found


def test_no_two_products_share_a_name():
    names = [(d.id.arch, n) for d in KNOWN.values() for n in (d.id.name, *d.aliases)]
    assert len(names) == len(set(names))


def test_limits():
    h200 = known(DeviceId("sm90", "NVIDIA H200"))
    assert (h200.sms, h200.shared_per_block, h200.threads_per_block) == (132, 232448, 1024)
    assert known(DeviceId("sm90", "NVIDIA H100 PCIe")).sms == 114
    assert known(DeviceId("sm80", "NVIDIA A100-SXM4-40GB")).shared_per_block == 166912
    mi300x = known(DeviceId("gfx942", "AMD Instinct MI300X"))
    assert (mi300x.sms, mi300x.shared_per_block) == (304, 65536)


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("gfx942:sramecc+:xnack-", "gfx942"),
        ("sm_90", "sm90"),
        ("sm90a", "sm90"),
        ("SM_120F", "sm120"),
        ("cpu-interpreter", "cpu-interpreter"),
        ("gfx90a", "gfx90a"),
    ],
)
def test_normalize_arch(text, arch):
    assert normalize_arch(text) == arch


@pytest.mark.parametrize("text", ["", "../x", "a/b", "NVIDIA H200", ".", "sm 90"])
def test_what_cannot_be_an_arch_is_refused(text):
    with pytest.raises(UnknownNameError):
        normalize_arch(text)


def test_parse_target():
    assert parse_target("sm90") == Target("sm90", None)
    assert parse_target("sm_90/NVIDIA H100") == Target(
        "sm90", DeviceId("sm90", "NVIDIA H100 80GB HBM3")
    )
    assert str(parse_target("sm90/NVIDIA H200")) == "sm90/NVIDIA H200"
    assert parse_target("cpu-interpreter/Triton interpreter").device == INTERPRETER
    with pytest.raises(UnknownNameError):
        parse_target("sm90/")


@pytest.mark.parametrize("text", ["sm90", "/x", "sm90/", "sm90/a|b", "../x/y", "sm90/a  b"])
def test_what_is_not_a_device_is_refused(text):
    with pytest.raises(ValueError, match="arch/name"):
        DeviceId.parse(text)
