"""What may be given as `arch`: what can't be one is an error, and never a miss for ever."""

from __future__ import annotations

import pytest

import lfbo_aot
from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.errors import UnknownNameError
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime import hardware
from lfbo_aot.runtime.resolve import resolve

H200 = DeviceId("sm90", "NVIDIA H200")
H100 = DeviceId("sm90", "NVIDIA H100 80GB HBM3")
BUCKET = "m=1..16|n=2048|dtype=bfloat16"
SHAPE = (8, 2048, "bfloat16")


@pytest.fixture(autouse=True)
def database(isolated, tmp_path, write_database, make_entry):
    held = {(H200, BUCKET): make_entry(1), (H100, BUCKET): make_entry(2)}
    held[DeviceId("cpu", "CPU"), BUCKET] = make_entry(4)
    held[DeviceId("npu7", "An accelerator"), BUCKET] = make_entry(8)
    lfbo_aot.use_database(write_database(tmp_path / "tuned", {"mykern.norm": held}))


def warps(arch):
    return resolve("norm", SHAPE, arch).config.get("num_warps")


@pytest.mark.parametrize(
    "arch",
    [
        "cuda:0",
        0,
        (9, 0),
        b"sm90",
        "h200",
        "H200",
        "NVIDIA H200",
        "compute_90",
        "kernels",
        "nonsense/NVIDIA H200",
        DeviceId("compute_90", "NVIDIA H200"),
        "sm9000",
        "gfx",
    ],
)
def test_what_cannot_be_an_arch_is_refused(arch):
    with pytest.raises(UnknownNameError, match="unknown arch"):
        resolve("norm", SHAPE, arch)


def test_a_device_without_its_arch_is_told_how_it_is_written():
    for arch in ("h200", "NVIDIA H200"):
        with pytest.raises(UnknownNameError, match=r"Did you mean 'sm90/NVIDIA H200' or "):
            resolve("norm", SHAPE, arch)
    with pytest.raises(UnknownNameError, match=r"written like sm90 or gfx942"):
        resolve("norm", SHAPE, "compute_90")
    with pytest.raises(UnknownNameError, match=r"unknown arch '0'\. Did you mean '"):
        resolve("norm", SHAPE, 0)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'npu7'"):
        resolve("norm", SHAPE, "npu")


def test_an_arch_that_only_a_layer_holds_is_one():
    assert (warps("npu7"), warps("npu7/An accelerator"), warps("cpu")) == (8, 8, 4)
    for arch in ("sm77", "sm120", "gfx90a", "gfx1100", "cpu-interpreter"):
        assert warps(arch) is None


def test_a_device_given_as_an_object_is_read_as_its_text():
    assert warps(H200) == warps(DeviceId("SM90", "NVIDIA H200")) == 1
    assert warps(DeviceId("sm_90a", "NVIDIA  H200")) == 1
    assert warps(DeviceId("sm90", "NVIDIA H100")) == 2  # an alias


def test_a_torch_device(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(hardware, "interpreted", lambda: False)
    assert warps(torch.device("cpu")) == 4
    monkeypatch.setattr(hardware, "_cuda", lambda index: (H200, H100)[index])
    assert [warps(torch.device("cuda", index)) for index in (0, 1)] == [1, 2]

    def fails(index):
        msg = "no NVIDIA driver"
        raise RuntimeError(msg)

    monkeypatch.setattr(hardware, "_cuda", fails)
    with pytest.raises(DeviceUnavailableError, match="cuda:0 is: no NVIDIA driver"):
        resolve("norm", SHAPE, torch.device("cuda", 0))


def test_a_size_too_large_for_a_float_is_a_miss():
    found = resolve("norm", (10**400, 2048, "bfloat16"), "sm90/NVIDIA H200")
    assert found.status == "default"
    assert f"nearest held: sm90/NVIDIA H200|{BUCKET}" in found.reasons[0]
    with pytest.raises(lfbo_aot.errors.ShapeError, match="is no size"):
        resolve("norm", (10**5000, 2048, "bfloat16"), "sm90/NVIDIA H200")


def test_a_policy_that_is_no_text():
    with pytest.raises(lfbo_aot.errors.SettingError, match="policy='5' is not valid"):
        resolve("norm", SHAPE, "sm90", policy=5)
