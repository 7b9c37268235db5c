"""`lfbo-aot tune` ended from outside, in a process of its own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lfbo_aot.database.journal import Journal
from lfbo_aot.database.verify import verify
from lfbo_aot.tuning.journaling import config_key

HERE = Path(__file__).parent
PATIENCE_S = 120.0
FAKE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from fake_tuning.device import FakeDevice
from lfbo_aot.tuning.devices import choose, interpreter
if sys.argv.pop(1) == "fake":
    choose.start_device = lambda identity, workers: FakeDevice(pause_s=0.005)
else:
    interpreter.MODULE = "fake_tuning.stuck"
from lfbo_aot.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
REAL = "import sys; from lfbo_aot.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Run:
    """The command under way."""

    def __init__(self, tmp_path, script, *words, terminal=None):
        self.folder = tmp_path
        self.temporary = tmp_path / "tmp"
        self.temporary.mkdir(exist_ok=True)
        command = ["tune", *words, "--device", "interpreter", "--into", str(tmp_path / "db")]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        if terminal is not None:
            streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        path = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-c", *script, *command],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("LFBO_AOT_")},
                "PYTHONPATH": path,
                "LFBO_AOT_STATE": str(tmp_path / "state"),
                "TMPDIR": str(self.temporary),
                "STUCK": str(tmp_path),
                "TERM": "xterm",
            },
            start_new_session=terminal is not None,
            **streams,
        )
        self.family = []

    def trials(self):
        return [r for r in self.records() if r["kind"] == "trial"]

    def records(self):
        paths = sorted((self.folder / "state").rglob("*.jsonl"))
        return [record for path in paths for record in Journal(path).records()]

    def wait_for(self, condition):
        ends = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < ends
            time.sleep(0.005)
        self.family = psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """(exit status, stdout, stderr), after all that it had started is gone."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in (err or "")
        _, alive = psutil.wait_procs(self.family, timeout=10)
        assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
        assert list(self.temporary.glob("lfbo-aot-*")) == []
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path):
    runs = []

    def run(kind, *words, terminal=None):
        script = [REAL] if kind == "real" else [FAKE, str(HERE), kind]
        if kind != "real":
            words = (*words, "--module", str(HERE / "fake_tuning" / "declared.py"), "norm")
        runs.append(Run(tmp_path, script, *words, terminal=terminal))
        return runs[-1]

    yield run
    for made in runs:
        if made.process.poll() is None:
            made.process.kill()
            made.process.communicate()


def assert_nothing_was_tried_twice(run):
    tried = [(r["bucket"], config_key(r["config"])) for r in run.trials() if r["status"] == "ok"]
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_to_go_on(start, tmp_path, number):
    run = start("fake", "--trials", "50", "--algorithm", "random")
    run.wait_for(lambda: len(run.trials()) > 3)
    run.signal(number)
    status, _, err = run.end()
    assert status == 130
    assert err.strip() == (
        f"lfbo-aot: interrupted. 0 buckets were finished and are in {tmp_path / 'db'}. Every "
        "finished trial is in the journal: run the same command again to go on."
    )
    count = len(run.trials())
    again = start("fake", "--trials", "50", "--algorithm", "random")
    assert again.end()[0] == 0
    assert count < len(again.trials()) == 100
    assert_nothing_was_tried_twice(again)
    assert [r["kind"] for r in again.records()].count("open") == 2


def test_two_interrupts_in_a_row(start):
    run = start("fake", "--trials", "50")
    run.wait_for(lambda: len(run.trials()) > 3)
    for _ in range(5):
        run.signal(signal.SIGINT)
    status, _, err = run.end()
    assert status == 130
    assert err.count("interrupted") == 1
    assert "run the same command again to go on." in err


def test_an_interrupt_while_workers_start(start, tmp_path):
    run = start("stuck")
    run.wait_for(lambda: list(tmp_path.glob("*.pids")))
    pids = [int(p) for path in tmp_path.glob("*.pids") for p in path.read_text().split()]
    run.family += [psutil.Process(pid) for pid in pids]
    assert len({p.pid for p in run.family}) >= 3  # the worker, its child, the watchdog
    run.signal(signal.SIGINT)
    status, _, err = run.end()
    assert status == 130
    assert "run the same command again to go on." in err


def test_kill_while_workers_start(start, tmp_path):
    run = start("stuck")
    run.wait_for(lambda: list(tmp_path.glob("*.pids")))
    run.signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(run.family, timeout=10)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    assert run.end()[0] == -signal.SIGKILL


def read_all(fd):
    """What a terminal shows until its other end is closed."""
    found = b""
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            return found.decode()
        if not data:
            return found.decode()
        found += data


def test_an_interrupt_on_a_terminal(start):
    ours, theirs = pty.openpty()
    run = start("fake", "--trials", "50", terminal=theirs)
    os.close(theirs)
    run.wait_for(lambda: len(run.trials()) > 3)
    run.signal(signal.SIGINT)
    text = read_all(ours)
    os.close(ours)
    status, _, _ = run.end()
    assert status == 130
    assert "Traceback" not in text
    assert "run the same command again to go on." in " ".join(text.split())
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l") >= 0


def test_a_run_killed_again_and_again_ends_like_any_other(start, tmp_path):
    """Real workers, killed in the first bucket and in the second; then to the end."""
    words = ("softmax", "--budget", "120", "--seed", "1", "--trials", "6")
    for count in (1, 8):
        run = start("real", *words)
        run.wait_for(lambda run=run, count=count: len(run.trials()) >= count)
        assert len(run.family) >= 2
        run.signal(signal.SIGKILL)
        assert run.end()[0] == -signal.SIGKILL
        assert verify(tmp_path / "db") == ()
    run = start("real", *words)
    status, out, _ = run.end()
    assert status == 0
    assert "0 missing" in out
    assert verify(tmp_path / "db") == ()
    assert_nothing_was_tried_twice(run)
    assert len(run.trials()) == 12
    assert [r["kind"] for r in run.records()].count("open") == 2


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_reader_that_has_seen_enough_stops_the_run(start, words):
    """As `| head -1` does; with --json the progress goes to standard error."""
    run = start("fake", "--trials", "60", "--algorithm", "random", *words)
    name = "stderr" if words else "stdout"
    stream = getattr(run.process, name)
    assert stream.readline().startswith("device cpu-interpreter/Triton interpreter")
    assert "starting" in stream.readline()
    stream.close()
    setattr(run.process, name, None)
    status, out, err = run.end()
    assert (status, out or "", err or "") == (130, "", "")
    assert len(run.trials()) == 54  # every point of the bucket, whose end could not be told
    assert verify(run.folder / "db") == ()
    again = start("fake", "--trials", "60", "--algorithm", "random")
    assert again.end()[0] == 0
    assert_nothing_was_tried_twice(again)
