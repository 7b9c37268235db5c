"""What benchmarks/compare_helion.py begins, in which order, and what it leaves for another time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compare import processes
from benchmarks.compare import records
from benchmarks.compare.cases import SWEPT
from benchmarks.compare.jobs import ALONE
from benchmarks.compare.jobs import SIDES
from benchmarks.compare.jobs import Job
from benchmarks.compare.jobs import alone
from benchmarks.compare.jobs import is_missing
from benchmarks.compare.jobs import needs_s
from benchmarks.compare.jobs import wanted
from benchmarks.compare.runner import Runner
from benchmarks.compare.runner import make_slots

TAKES = {"helion": 480.0, "pattern": 300.0, "ours": 50.0, "control": 20.0, "measure": 30.0}


class Fake:
    """A clock, and jobs that take their time on it."""

    def __init__(self, takes=TAKES, fails=()):
        self.now = 100.0
        self.takes, self.fails = takes, fails
        self.begun = []

    def __call__(self, job, slot, limit_s, held):
        self.begun.append(str(job))
        assert self.takes[job.side] <= limit_s
        self.now += self.takes[job.side]
        made = records.begin(job.side, job.kernel, self.takes[job.side])
        if str(job) in self.fails:
            return made | {"ended": "failed", "error": "Traceback\nRuntimeError: no"}
        made |= {"ended": "finished", "error": "", "config": {}}
        if job.side == "measure":
            runs = {r["side"]: r["run"] for r in held if r["kernel"] == job.kernel}
            made["runs"] = {side: run for side, run in runs.items() if side != "measure"}
        return made


def run(folder, fake, jobs, limit_s=540.0, *, again=False):
    runner = Runner(
        folder,
        fake,
        limit_s=limit_s,
        budget_s=480.0,
        again=again,
        clock=lambda: fake.now,
        say=lambda _: None,
    )
    return [str(job) for job in runner.run(jobs, make_slots(1))]


def main_jobs(kernels=("softmax", "matmul"), sides=("helion", "ours", "control", "measure")):
    return wanted(kernels, set(sides), named=True)


def test_long_jobs_first_and_the_rest_of_the_time_filled(tmp_path):
    fake = Fake()
    run(tmp_path, fake, main_jobs())
    # 540 less 3 less 480 leave 57 s: not 150 for ours, but 40 for a control. Then 37 are left, and
    # the next control may take 1.3 times as long as that one took, and 10 s more: 36.
    assert fake.begun == ["helion softmax", "control softmax", "control matmul"]


def test_several_commands_do_everything_once(tmp_path):
    begun = []
    for _ in range(3):
        fake = Fake()
        missing = run(tmp_path, fake, main_jobs())
        begun.append(fake.begun)
    assert begun == [
        ["helion softmax", "control softmax", "control matmul"],
        ["helion matmul"],
        ["ours softmax", "ours matmul", "measure softmax", "measure matmul"],
    ]
    assert missing == []
    assert run(tmp_path, fake, main_jobs()) == []
    assert fake.begun == begun[2]


def test_nothing_is_begun_that_may_not_end_in_time(tmp_path):
    fake = Fake()
    missing = run(tmp_path, fake, main_jobs(), limit_s=30.0)
    assert fake.begun == []
    assert "helion matmul" in missing


def test_what_it_took_before_is_what_it_may_take():
    job = Job("ours", "softmax")
    assert needs_s(job, [], 480.0) == 150.0
    before = {"side": "ours", "kernel": "matmul", "wall_s": 40.0, "ended": "finished"}
    assert needs_s(job, [before], 480.0) == 62.0
    assert needs_s(job, [{**before, "ended": "failed"}], 480.0) == 150.0
    assert needs_s(Job("pattern", "matmul"), [before], 480.0) == 490.0


def test_a_failure_is_recorded_tried_once_more_and_then_left(tmp_path):
    jobs = main_jobs(("softmax",), ("ours", "control"))
    for count in (1, 2, 2):
        fake = Fake(fails=("ours softmax",))
        missing = run(tmp_path, fake, jobs)
        held = records.read(tmp_path)
        assert sum(r["ended"] == "failed" for r in held) == count
    assert missing == []
    assert [r["side"] for r in held] == ["ours", "control", "ours"]
    fake = Fake()
    run(tmp_path, fake, jobs, again=True)
    assert fake.begun == ["ours softmax", "control softmax"]


def test_an_error_of_the_benchmark_itself_is_a_record_too(tmp_path):
    fake = Fake(takes={"control": 1.0})  # no time is known for ours: KeyError
    run(tmp_path, fake, main_jobs(("softmax",), ("ours", "control")))
    held = records.read(tmp_path)
    assert [(r["side"], r["ended"]) for r in held] == [("ours", "failed"), ("control", "finished")]
    assert "KeyError: 'ours'" in held[0]["error"]


def test_finals_are_measured_again_when_one_is_new(tmp_path):
    run(tmp_path, Fake(), main_jobs(("softmax",), ("ours", "measure")))
    job = Job("measure", "softmax")
    assert not is_missing(job, records.read(tmp_path))
    run(tmp_path, Fake(), main_jobs(("softmax",), ("control",)))
    assert is_missing(job, records.read(tmp_path))


def test_the_default_alone_is_nothing_to_measure(tmp_path):
    fake = Fake()
    run(tmp_path, fake, main_jobs(("softmax",), ("control", "measure")))
    assert fake.begun == ["control softmax"]


def test_several_slots_share_the_jobs(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two slots need two cores")
    fake = Fake(dict.fromkeys(TAKES, 0.0))
    runner = Runner(tmp_path, fake, limit_s=540.0, budget_s=480.0, say=lambda _: None)
    slots = make_slots(2)
    assert runner.run(main_jobs(), slots) == []
    assert sorted(fake.begun) == sorted(set(fake.begun))
    assert len(fake.begun) == 8
    assert not slots[0].cores & slots[1].cores


def test_sides_take_along_what_they_need():
    everything = {str(job) for job in wanted(("softmax", "matmul"), set(SIDES), named=False)}
    assert "pattern matmul" in everything
    assert "pattern softmax" not in everything
    assert {str(job) for job in wanted((), {"flips"}, named=False)} == {
        f"sweep {SWEPT}",
        f"flips {SWEPT}",
        f"remeasure {SWEPT}",
    }
    swept = {str(job) for job in wanted((), {"sweep"}, named=False)}
    assert {f"alone {alone(m)}" for m in ALONE} < swept
    assert str(Job("pattern", "softmax")) in map(str, wanted(("softmax",), {"pattern"}, named=True))


def test_children_see_one_gpu_and_no_settings_or_caches_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.setenv("HELION_AUTOTUNE_EFFORT", "none")
    monkeypatch.setenv("LFBO_AOT_PATH", "/somewhere")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/warm")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    with processes.fresh(processes.Slot(1, frozenset({0}))) as where:
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        ended = processes.run([sys.executable, "-c", code], where, 60.0)
        seen = json.loads(ended.output)
        assert seen["TRITON_CACHE_DIR"].startswith(str(where.folder))
    assert ended.code == 0
    assert seen["CUDA_VISIBLE_DEVICES"] == "7"
    assert seen["HELION_AUTOTUNE_PRECOMPILE_JOBS"] == "1"
    assert not {"HELION_AUTOTUNE_EFFORT", "LFBO_AOT_PATH"} & seen.keys()
    assert not where.folder.exists()


def test_a_gpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with processes.fresh(processes.Slot(1)) as where, pytest.raises(SystemExit, match="no GPU 1"):
        where.environment()


def test_a_child_at_its_limit_is_killed(tmp_path):
    with processes.fresh(processes.Slot()) as where:
        ended = processes.run([sys.executable, "-c", "while True: pass"], where, 0.0)
    assert ended.code is None


def test_descendants_are_killed_in_whatever_group_they_are():
    code = (
        "import subprocess, sys\n"
        "wait = [sys.executable, '-c', 'input()']\n"
        "child = subprocess.Popen(wait, stdin=subprocess.PIPE, start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        below = int(parent.stdout.readline())
        found = processes._below(parent.pid)
        assert set(found) == {parent.pid, below}
        processes._kill(found, parent.pid)
        assert parent.wait() == -9
    while is_running(below):
        pass
    assert not is_running(below)


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
