from __future__ import annotations

import json

import pytest

from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.errors import SettingError
from lfbo_aot.registry.devices import INTERPRETER
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.devices import probe
from lfbo_aot.tuning.devices.choose import choose_device
from lfbo_aot.tuning.devices.probe import Gpu
from lfbo_aot.tuning.devices.probe import survey

H200 = DeviceId("sm90", "NVIDIA H200")
GPU = {
    "index": 0,
    "arch": "sm90",
    "name": "NVIDIA H200",
    "sms": 132,
    "memory_bytes": 150_109_880_320,
}
FOUND = {"torch": "2.11.0", "gpus": [GPU]}
NONE = {"torch": "2.11.0", "gpus": []}


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A driver is there; the machine answers what `answer` is told to run."""
    path = tmp_path / "driver"
    path.touch()
    monkeypatch.setattr(probe, "_DRIVERS", (str(path), "/dev/no-such-driver"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(probe, "_PATIENCE_S", 20.0)

    def answer(script):
        monkeypatch.setattr(probe, "_SCRIPT", script)
        return f"driver {path} is there, but torch"

    return answer


def says(data):
    return f"print('a warning'); print({json.dumps(data)!r})"


def test_a_gpu(driver):
    driver(says(FOUND))
    found = survey()
    assert found.gpus == (Gpu(0, H200),)
    assert found.looked_for == "torch 2.11.0 sees sm90/NVIDIA H200"
    assert choose_device("gpu") == choose_device("auto") == (H200, found.looked_for)
    assert choose_device("interpreter") == (INTERPRETER, "asked for")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (says(NONE), " 2.11.0 sees no GPU"),
        ("import no_such_module", " can't be asked: ModuleNotFoundError: No module named "),
        ("raise SystemExit(3)", " can't be asked: exit 3"),
        ("", " gave an answer that can't be read: "),
        ("print('hello')", " gave an answer that can't be read: "),
    ],
)
def test_a_driver_and_no_gpu(driver, script, reason):
    head = driver(script)
    found = survey()
    assert found.gpus == ()
    assert found.looked_for.startswith(head + reason)
    assert choose_device("auto") == (INTERPRETER, found.looked_for)
    with pytest.raises(DeviceUnavailableError) as caught:
        choose_device("gpu")
    assert str(caught.value).startswith(f"no GPU to tune on: {head}{reason}")
    assert "\n" not in str(caught.value)


def test_a_gpu_that_is_hidden(driver, monkeypatch):
    driver(says(NONE))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert survey().looked_for.endswith("sees no GPU; CUDA_VISIBLE_DEVICES is ''")


def test_a_driver_that_hangs(driver, monkeypatch):
    head = driver("import time; time.sleep(600)")
    monkeypatch.setattr(probe, "_PATIENCE_S", 0.2)
    assert survey().looked_for == f"{head} gave no answer in 0 s"


def test_no_driver(monkeypatch):
    monkeypatch.setattr(probe, "_DRIVERS", ("/dev/no-such-driver",))
    assert survey().looked_for == "no GPU driver (/dev/no-such-driver)"


def test_another_word(driver):
    with pytest.raises(SettingError, match="auto, gpu, interpreter"):
        choose_device("tpu")
