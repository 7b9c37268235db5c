from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lfbo_aot.errors import TuningError
from lfbo_aot.tuning.devices.pool import Job
from lfbo_aot.tuning.devices.pool import WorkerPool
from lfbo_aot.tuning.devices.workspace import Workspace

MODULE = "fake_workers.scripted"
HERE = Path(__file__).parent


@pytest.fixture
def make_pool(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    workspace = Workspace()
    pools = []

    def make(size=1, setup_s=60.0, **environment):
        pool = WorkerPool(lambda: workspace.start(MODULE, **environment), size, setup_s)
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.close()
    workspace.close()
    assert not workspace.folder.exists()


def setup(bucket="one", **how):
    return [{"op": "setup", "bucket": bucket, **how}]


def job(number, deadline_s=60.0, **how):
    return Job(number, {"op": "work", "number": number, **how}, deadline_s)


def collect(pool, count):
    done = []
    while len(done) < count:
        done += pool.poll(5.0)
    return {d.job.ticket: d for d in done}


def test_jobs_are_answered_by_workers_that_were_set_up(make_pool):
    pool = make_pool(2)
    pool.prepare(setup())
    assert pool.setup_reply(60.0)["ready"] == "one"
    for number in range(5):
        pool.submit(job(number))
    assert pool.pending == 5
    done = collect(pool, 5)
    assert {n: d.reply["number"] for n, d in done.items()} == {n: n for n in range(5)}
    assert {d.reply["setup"] for d in done.values()} == {"one"}
    assert pool.pending == 0
    assert pool.poll(0.0) == []


@pytest.mark.parametrize(
    ("how", "failure", "error"),
    [
        ("exit", "crash", "exit 3: my last words"),
        ("segfault", "crash", "it was ended by SIGSEGV"),
        ("raise", "crash", "RuntimeError: no such kernel"),
        ("nonsense", "crash", "it closed its channel"),
    ],
)
def test_a_failure_is_told_and_costs_one_job(make_pool, monkeypatch, how, failure, error):
    from lfbo_aot.tuning import process

    monkeypatch.setattr(process, "_GRACE_S", 0.5)
    pool = make_pool()
    pool.prepare(setup())
    pool.submit(job(1, how=how))
    pool.submit(job(2))
    done = collect(pool, 2)
    assert (done[1].reply, done[1].failure) == (None, failure)
    assert done[1].error == error
    # A replacement is set up like the one before it.
    assert done[2].reply["setup"] == "one"
    assert done[2].reply["count"] == (2 if how == "raise" else 1)


def test_a_job_that_hangs_is_killed_at_its_deadline(make_pool):
    pool = make_pool()
    pool.prepare(setup())
    pid = pool.setup_reply(60.0)["pid"]
    pool.submit(job(1, deadline_s=0.2, how="hang"))
    pool.submit(job(2))
    done = collect(pool, 2)
    assert (done[1].failure, done[1].error) == ("timeout", "killed after 0.2 s")
    assert not psutil.pid_exists(pid)
    assert done[2].reply["pid"] != pid


def test_answers_for_the_bucket_before_are_dropped(make_pool, tmp_path):
    pool = make_pool()
    pool.prepare(setup("one"))
    pool.setup_reply(60.0)
    pool.submit(job(1, how="until", file=str(tmp_path / "go")))
    pool.submit(job(2))
    pool.prepare(setup("two"))
    assert pool.pending == 1  # the one that runs; the other one is forgotten
    (tmp_path / "go").touch()
    assert pool.setup_reply(60.0)["ready"] == "two"
    pool.submit(job(3))
    done = collect(pool, 1)
    assert list(done) == [3]
    assert done[3].reply["setup"] == "two"


def test_a_setup_for_the_bucket_before_is_dropped(make_pool, tmp_path):
    pool = make_pool()
    pool.prepare(setup("one", how="until", file=str(tmp_path / "go")))
    pool.prepare(setup("two"))
    (tmp_path / "go").touch()
    assert pool.setup_reply(60.0)["ready"] == "two"
    pool.submit(job(1))
    assert collect(pool, 1)[1].reply["setup"] == "two"


def test_a_setup_that_raises_says_what_the_worker_said(make_pool):
    pool = make_pool(2)
    pool.prepare(setup(how="raise"))
    with pytest.raises(TuningError, match=r"^RuntimeError: no such kernel$"):
        pool.setup_reply(60.0)


def test_a_setup_that_kills_workers_fails_one_bucket_and_not_the_next(make_pool):
    pool = make_pool(2)
    for _ in range(2):
        pool.prepare(setup(how="exit"))
        with pytest.raises(TuningError) as caught:
            pool.setup_reply(60.0)
        message = "no fake_workers.scripted worker can be made ready: crash, exit 3: my last words"
        assert str(caught.value) == message
    pool.prepare(setup("two"))
    assert pool.setup_reply(60.0)["ready"] == "two"


def test_workers_that_do_not_start(make_pool):
    pool = make_pool(2, FAKE_START="die")
    pool.prepare(setup())
    with pytest.raises(TuningError) as caught:
        pool.setup_reply(60.0)
    assert str(caught.value).endswith("exit 1: ImportError: no module named helion")


def test_a_setup_that_hangs_is_ended(make_pool):
    pool = make_pool(1, setup_s=0.3)
    pool.prepare(setup(how="hang"))
    with pytest.raises(TuningError, match=r"timeout, killed after 0\.3 s$"):
        pool.setup_reply(60.0)


def test_no_patience(make_pool):
    pool = make_pool()
    pool.prepare(setup(how="hang"))
    with pytest.raises(TuningError, match=r"no fake_workers\.scripted worker was ready within 0 s"):
        pool.setup_reply(0.0)


def test_waiting_jobs_can_be_dropped(make_pool):
    pool = make_pool()
    pool.prepare(setup())
    pool.setup_reply(60.0)
    pool.submit(job(1))
    pool.submit(job(2))
    pool.drop_waiting()
    assert list(collect(pool, 1)) == [1]
    assert pool.pending == 0


def test_a_start_that_is_interrupted_leaves_no_process(make_pool, monkeypatch):
    workspace = Workspace()
    monkeypatch.syspath_prepend(str(HERE))
    started = []

    def start():
        if len(started) == 2:
            raise KeyboardInterrupt
        started.append(workspace.start(MODULE))
        return started[-1]

    with pytest.raises(KeyboardInterrupt):
        WorkerPool(start, 3, 60.0)
    assert not any(psutil.pid_exists(worker.pid) for worker in started)
    workspace.close()


def test_a_file_in_the_working_folder_is_no_module(make_pool, tmp_path, monkeypatch):
    import sys

    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 can't be told to leave the working folder out")
    (tmp_path / "json.py").write_text("raise ImportError('not me')\n")
    monkeypatch.chdir(tmp_path)
    pool = make_pool()
    pool.prepare(setup())
    assert pool.setup_reply(60.0)["ready"] == "one"
