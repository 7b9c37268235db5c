from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from lfbo_aot.cli.main import main
from lfbo_aot.tuning.devices import choose

HERE = Path(__file__).parent
DECLARED = str(HERE / "fake_tuning" / "declared.py")


@pytest.fixture
def alone(isolated, tmp_path):
    """No kernels but those of the test's module, which goes with it, and no state but here."""
    isolated.setenv("LFBO_AOT_STATE", str(tmp_path / "state"))
    isolated.setattr(sys, "path", [str(HERE), *sys.path])
    isolated.setattr(os, "fsync", lambda _: None)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name == "declared" or name.startswith("fake_tuning"):
            del sys.modules[name]
    assert {number: signal.getsignal(number) for number in handlers} == handlers


@pytest.fixture
def device(alone, monkeypatch):
    """The one that `tune` starts; `options` are for it."""
    from fake_tuning.device import FakeDevice

    started = []

    def start(identity, workers=None):
        made = FakeDevice(**start.options)
        assert made.id == identity
        started.append((made, workers))
        return made

    start.options, start.started = {}, started
    monkeypatch.setattr(choose, "start_device", start)
    return start


@pytest.fixture
def tune(alone, tmp_path, capsys):
    """Runs the command; gives (exit status, stdout, stderr)."""

    def run(*words, module=DECLARED, into=tmp_path / "db", device="interpreter"):
        command = ["tune", *words]
        command += ["--module", module] if module else []
        command += ["--into", str(into)] if into else []
        command += ["--device", device] if device else []
        status = main(command)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return run
