"""The text forms of devices and archs, and what may be one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.registry.devices import Target
from lfbo_aot.registry.devices import check_arch
from lfbo_aot.registry.devices import identify
from lfbo_aot.registry.devices import normalize_arch
from lfbo_aot.registry.devices import parse_target


@given(st.text(max_size=40))
def test_a_device_of_any_name_is_read_back(name):
    found = identify("sm90", name)
    assert DeviceId.parse(str(found)) == found
    assert identify(found.arch, found.name) == found


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("gfx942:sramecc+:xnack-", "gfx942"),
        ("sm_90", "sm90"),
        ("sm90a", "sm90"),
        ("SM_120F", "sm120"),
        ("sm121a", "sm121"),
        ("sm50", "sm50"),
        ("sm129", "sm129"),
        ("cpu-interpreter", "cpu-interpreter"),
        ("gfx90a", "gfx90a"),
    ],
)
def test_normalize_arch(text, arch):
    assert normalize_arch(text) == arch


@pytest.mark.parametrize(
    "text",
    ["", "../x", "a/b", "NVIDIA H200", ".", "sm 90", "sm900", "sm49", "sm130", "sm090", "sm9"],
)
def test_what_cannot_be_an_arch_is_refused(text):
    with pytest.raises(UnknownNameError):
        normalize_arch(text)


@pytest.mark.parametrize("text", ["gfx900", "gfx90a", "gfx1030", "gfx1201", "gfx1250", "sm75"])
def test_an_arch_that_looks_like_one_needs_not_be_known(text):
    assert check_arch(Target(text, None)).arch == text


@pytest.mark.parametrize("text", ["gfx", "gfx9", "gfx1", "gfx123", "gfxabc", "gfx9999", "gfx4200"])
def test_an_arch_that_nothing_runs_on_is_refused_where_none_is_held(text):
    with pytest.raises(UnknownNameError, match="unknown arch"):
        check_arch(parse_target(text))
    assert check_arch(parse_target(text), held=[text]).arch == text


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
