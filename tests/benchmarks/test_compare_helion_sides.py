"""Both sides of the comparison as far as they run without a GPU: ours for real, Helion's names."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("helion")

from benchmarks.compare import curves
from benchmarks.compare import helion_child
from benchmarks.compare import records
from benchmarks.compare.cases import CASES

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compare_helion.py"


def test_helion_takes_its_settings(tmp_path, monkeypatch):
    from helion.autotuner import search_algorithms
    from helion.autotuner.base_cache import should_skip_cache
    from helion.autotuner.effort_profile import get_effort_profile

    from benchmarks.compare import compared

    told = helion_child.settings("helion", tmp_path)
    for name, value in {**told, "HELION_AUTOTUNE_BUDGET_SECONDS": "465"}.items():
        monkeypatch.setenv(name, value)
    spec = compared.softmax.lfbo_aot_spec
    kernel = helion_child.make_kernel(spec)
    settings = kernel.settings
    assert should_skip_cache()
    assert settings.autotune_budget_seconds == 465
    assert settings.autotune_effort == "full"
    assert get_effort_profile("full").lfbo_pattern_search.max_generations == 20
    assert settings.autotune_log_details
    assert not settings.autotune_progress_bar
    trace = Path(settings.autotune_log).with_suffix(".trace.jsonl")
    assert trace == tmp_path / helion_child.TRACE
    for name in helion_child.NAMES.values():
        assert search_algorithms[name].__name__ == name
    # A kernel of Helion's own, of the function that ours is made of.
    assert kernel.fn is spec.kernel.fn
    assert not hasattr(kernel, "lfbo_aot_spec")


def test_helions_default_tuner_is_the_one_that_is_compared():
    import inspect

    from helion.runtime.settings import default_autotuner_fn

    source = inspect.getsource(default_autotuner_fn)
    assert f"autotuner_cls = {helion_child.NAMES['helion']}\n" in source
    assert '"HELION_AUTOTUNER"' in source


@pytest.fixture
def trace(tmp_path):
    """What Helion's own logger writes of a few trials, and when the process had started."""
    import helion
    from helion.autotuner.logger import AutotuneLogEntry
    from helion.autotuner.logger import AutotuningLogger

    settings = helion.Settings(autotune_log=str(tmp_path / "tune"), autotune_log_details=True)
    log = AutotuningLogger(settings)
    started = time.time() - 10.0

    def entry(warps, ms, status="ok"):
        return AutotuneLogEntry(0, status, ms, 0.5, f"id{warps}", helion.Config(num_warps=warps))

    def write(*, selects):
        with log.autotune_tracing("LFBOTreeSearch"):
            log.record_trace_entry(entry(1, None, "started"))
            log.record_trace_entry(entry(1, 0.034))
            log.record_trace_entry(entry(2, None, "error"))
            log.record_trace_entry(entry(4, 0.036))
            log.record_trace_entry(entry(8, 0.025))
            log.record_trace_entry(entry(4, 0.026), event="rebenchmark")
            log.record_trace_entry(entry(8, 0.028), event="rebenchmark")
            if selects:
                log.record_selected_config(helion.Config(num_warps=8))
        return tmp_path / helion_child.TRACE, started

    return write


def test_helions_trace_is_read(trace):
    path, started = trace(selects=True)
    log = curves.helion_log(path, started)
    assert (log.algorithm, log.trials) == ("LFBOTreeSearch", 4)
    assert [us for _, us in log.curve] == [34.0, 25.0]
    assert all(seconds >= 10.0 for seconds, _ in log.curve)
    assert log.selected == {"num_warps": 8}


def test_a_killed_run_has_its_best_by_the_last_readings(trace):
    path, started = trace(selects=False)
    with path.open("a") as file:
        file.write('{"event": "tri')
    log = curves.helion_log(path, started)
    assert log.selected is None
    assert log.best == {"num_warps": 4}  # 26 us when read again; that of 25 was 28 then


def test_without_a_trace_nothing_is_known(tmp_path):
    assert curves.helion_log(tmp_path / "none", 0.0) == curves.Log()


def test_our_curve_is_that_of_the_journal(tmp_path):
    folder = tmp_path / "journals" / "sm90_NVIDIA_H200"
    folder.mkdir(parents=True)
    rows = [
        {"kind": "open"},
        {"kind": "trial", "status": "ok", "latency_us": 40.0, "seconds": 1.5},
        {"kind": "trial", "status": "ok", "latency_us": 20.0, "seconds": 2.0, "cut": True},
        {"kind": "trial", "status": "crash", "seconds": 2.5},
        {"kind": "trial", "status": "ok", "latency_us": 30.0, "seconds": 4.0},
        {"kind": "trial", "status": "ok", "latency_us": 31.0, "seconds": 5.0},
        {"kind": "final"},
    ]
    (folder / "compare.softmax.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert curves.our_curve(tmp_path, 10.0) == [[11.5, 40.0], [14.0, 30.0]]


def test_cases_are_declared_for_exactly_their_shape():
    from benchmarks.compare import compared

    for case in CASES.values():
        spec = getattr(compared, case.name).lfbo_aot_spec
        assert spec.kernel_id == case.kernel_id
        assert [dict(bucket.point) for bucket in spec.buckets] == [dict(case.shape)]
        assert [dict(bucket.point) for bucket in spec.small_buckets] == [dict(case.small)]


def test_the_sweep_is_over_eight_declared_buckets():
    from lfbo_aot.kernels.rms_norm import rms_norm

    from benchmarks.compare import cases
    from lfbo_aot.cli.arguments import parse_where
    from lfbo_aot.database.database import Database
    from lfbo_aot.registry.devices import DeviceId
    from lfbo_aot.tuning.plan import make_plan

    h200, empty = DeviceId("sm90", "NVIDIA H200"), Database("/nowhere")
    spec = rms_norm.lfbo_aot_spec
    assert spec.kernel_id == cases.SWEPT

    def buckets(*words):
        return make_plan([spec], h200, empty, where=parse_where([*cases.SWEPT_WORDS, *words]))

    assert len(buckets()) == 8
    alone = [buckets(f"m={m}") for m in cases.ALONE]
    assert [len(items) for items in alone] == [1, 1, 1]
    assert [items[0].shape["m"] for items in alone] == list(cases.ALONE)


def test_our_side_runs_in_the_interpreter(tmp_path):
    words = ["--run", "--device", "interpreter", "--kernel", "silu_and_mul", "--trials", "2"]
    words += ["--rounds", "2", "--side", "ours", "--side", "measure", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ours, measured = records.read(tmp_path)
    assert (ours["side"], ours["ended"], ours["trials"]) == ("ours", "finished", 2)
    assert ours["config"]["pid_type"] == "flat"
    assert ours["device"] == measured["device"] == "Triton interpreter"
    assert 0.0 < ours["curve"][0][0] <= ours["wall_s"] + 0.1  # seconds are journalled in tenths
    assert measured["runs"] == {"ours": ours["run"]}
    (item,) = measured["items"]
    assert (item["errors"], item["wrong"]) == ({}, {})
    assert {name: len(found) for name, found in item["samples_us"].items()} == {
        "ours": 2,
        "default": 2,
    }
    assert [path.name for path in (tmp_path / "raw").iterdir()] == [f"{ours['run']}.jsonl.gz"]


def test_helions_side_is_not_for_the_interpreter(tmp_path):
    words = ["--run", "--device", "interpreter", "--side", "helion", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "can try ours, control, measure; not helion" in done.stderr
