"""Candidates that hang, write where they must not, or want too much: on a real GPU, one trial each."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.database.journal import Journal
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.tuning.devices.gpu import GpuDevice
from lfbo_aot.tuning.devices.machine import Machine
from lfbo_aot.tuning.devices.probe import survey
from lfbo_aot.tuning.folders import journal_path
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import Options
from lfbo_aot.tuning.run import tune

psutil = pytest.importorskip("psutil")
WHERE = {"m": [1024], "n": [1024], "dtype": ["bfloat16"]}
MODULES = ("lfbo_aot.tuning.workers.compile", "gpu_faults.worker")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(summary, trial records, processes left) of a run with four faulty candidates."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "count").touch()
    gpus = survey().gpus
    if not gpus:
        pytest.skip("no GPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        patch.setenv("FAULTS", "6=hang,12=address,18=damage,24=memory")
        patch.setenv("FAULTS_COUNT", str(folder / "count"))
        (softmax,) = [s for s in load_kernels(["lfbo_aot.kernels"]) if s.name == "softmax"]
        device_id = gpus[0].id
        machine = Machine([0], trial_s=10.0, _modules=MODULES)
        with contextlib.closing(GpuDevice(device_id, machine=machine)) as device:
            plan = make_plan([softmax], device_id, Database(folder / "db"), where=WHERE)
            options = Options(trials=60, rounds=10)
            summary = tune(
                plan, device, into=folder / "db", state=folder / "state", options=options
            )
        path = journal_path(folder / "state", device_id, softmax.kernel_id)
        trials = [r for r in Journal(path).records() if r["kind"] == "trial"]
    left = [p for p in psutil.process_iter() if _is_worker(p)]
    return summary, trials, left


def _is_worker(process):
    with contextlib.suppress(psutil.Error):
        words = " ".join(process.cmdline())
        return any(module in words for module in MODULES)
    return False


def test_the_run_ends_well(ran):
    (result,) = ran[0].results
    assert (result.status, result.reason) == ("tuned", "")
    assert result.entry.latency_us <= result.entry.default_us * 1.01


def test_each_fault_costs_one_trial(ran):
    trials = ran[1]
    assert len(trials) == 60
    counts = Counter(r["status"] for r in trials)
    assert counts["timeout"] == 1
    assert counts["crash"] == 2
    assert counts["out_of_memory"] == 1
    assert counts["wrong_result"] == 0
    assert counts["ok"] >= 20


def test_each_fault_is_told(ran):
    errors = {
        r["status"]: r["error"] for r in ran[1] if r["status"] in ("timeout", "out_of_memory")
    }
    assert "killed after" in errors["timeout"]
    assert "out of memory" in errors["out_of_memory"].lower()
    crashes = sorted(r["error"] for r in ran[1] if r["status"] == "crash")
    assert any("memory was changed outside of a result" in error for error in crashes)


def test_no_process_is_left(ran):
    assert ran[2] == []
