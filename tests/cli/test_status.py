from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from lfbo_aot.cli.main import main
from lfbo_aot.database.journal import Journal
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.heartbeat import Heartbeat
from lfbo_aot.tuning.heartbeat import this_host
from lfbo_aot.tuning.standing import is_locked
from lfbo_aot.tuning.standing import read_standing

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
H200 = DeviceId("sm90", "NVIDIA H200")
ONE, TWO, THREE = "m=1..4|n=8", "m=5..16|n=8", "m=17..64|n=8"


@pytest.fixture
def state(tmp_path, isolated):
    isolated.setenv("LFBO_AOT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def journal_path(state, kernel=KERNEL):
    return state / "journals" / "sm90_NVIDIA_H200" / f"{kernel}.jsonl"


def write(state, *records, kernel=KERNEL):
    """Records of (bucket, session, kind, fields)."""
    with Journal(journal_path(state, kernel)) as journal:
        for bucket, session, kind, fields in records:
            names = {"kernel": kernel, "bucket": bucket, "device": str(H200)}
            journal.append({"kind": kind, "session": session, **names, **fields})
    return journal_path(state, kernel)


def opened(bucket, session=1, recalled=0):
    return bucket, session, "open", {"recalled": recalled, "space": {"default": [1, 4]}}


def trial(bucket, point, session=1, status="ok", **fields):
    return bucket, session, "trial", {"point": point, "status": status, **fields}


def final(bucket, session=1, entry=None, reason=""):
    return bucket, session, "final", {"entry": entry, "reason": reason}


TUNED = [
    opened(ONE),
    trial(ONE, [1, 4], latency_us=30.0),
    final(ONE, entry={"latency_us": 20.0, "default_us": 25.0}),
]
HALF = [
    opened(TWO, 2),
    trial(TWO, [1, 4], 2, latency_us=30.0),
    trial(TWO, [2, 4], 2, latency_us=24.0),
    trial(TWO, [2, 8], 2, latency_us=1.0, cut=True),
    trial(TWO, [4, 8], 2, status="duplicate", latency_us=24.0),
    trial(TWO, [8, 8], 2, status="compile_error"),
    trial(TWO, [8, 9], 2, status="compile_error"),
    trial(TWO, [9, 9], 2, status="timeout"),
]


def rows(capsys, *words, status=0):
    assert main(["status", *words, "--json"]) == status
    data = json.loads(capsys.readouterr().out)
    return data["runs"], {row["bucket"]: row for row in data["buckets"]}, data


def test_journals_alone_tell(state, capsys):
    write(state, *TUNED, *HALF)
    runs, buckets, data = rows(capsys)
    assert (runs, data["state"], data["damage"]) == ([], str(state), [])
    common = {"kernel": KERNEL, "device": "sm90/NVIDIA H200", "left_s": None, "reason": ""}
    assert buckets[ONE] == {
        **common,
        "bucket": ONE,
        "status": "tuned",
        "trials": 1,
        "latency_us": 20.0,
        "default_us": 25.0,
        "gain": 1.25,
        "failures": {},
    }
    assert buckets[TWO] == {
        **common,
        "bucket": TWO,
        "status": "interrupted",
        "trials": 7,
        "latency_us": 24.0,
        "default_us": 30.0,
        "gain": 1.25,
        "failures": {"compile_error": 2, "timeout": 1},
    }


def test_a_locked_journal_is_being_worked_on(state, capsys):
    path = write(state, *TUNED, *HALF)
    with FileLock(f"{path}.lock"):
        _, buckets, _ = rows(capsys)
        assert {key: row["status"] for key, row in buckets.items()} == {
            ONE: "tuned",
            TWO: "running",
        }
    assert rows(capsys)[1][TWO]["status"] == "interrupted"


def test_looking_at_a_lock_does_not_take_it(state, tmp_path):
    path = tmp_path / "x.lock"
    assert not is_locked(path)
    assert not path.exists()
    with FileLock(path):
        assert is_locked(path)
        assert is_locked(path)
    assert not is_locked(path)
    with FileLock(path, timeout=0):
        pass


def test_the_last_session_counts_with_what_it_recalled(state, capsys):
    write(
        state,
        opened(ONE, 1),
        trial(ONE, [1, 4], 1, latency_us=30.0),
        trial(ONE, [2, 4], 1, latency_us=10.0),
        final(ONE, 1, reason="nothing ran"),
        opened(ONE, 2, recalled=2),
        trial(ONE, [4, 4], 2, latency_us=12.0),
        opened(TWO, 3),
        final(TWO, 3, reason="no candidate ran"),
    )
    _, buckets, _ = rows(capsys)
    one, two = buckets[ONE], buckets[TWO]
    assert (one["status"], one["trials"], one["latency_us"]) == ("interrupted", 1, 10.0)
    assert one["default_us"] == 30.0
    assert (two["status"], two["reason"], two["latency_us"]) == ("failed", "no candidate ran", None)


def item(bucket, why="missing"):
    return SimpleNamespace(
        spec=SimpleNamespace(kernel_id=KERNEL), bucket=Bucket.parse(bucket), why=why
    )


class Watcher:
    def __init__(self):
        self.calls = []

    def begins(self, item, number, total):
        self.calls.append(("begins", item.bucket.key, number, total))

    def steps(self, step):
        self.calls.append(("steps", step))

    def ends(self, result):
        self.calls.append(("ends", result.status))


def beat(state, plan, watcher=None, **options):
    given = {"budget_s": None, "per_bucket_s": None, **options}
    return Heartbeat(
        watcher or Watcher(),
        plan,
        H200,
        into=state.parent / "tuned",
        state=state,
        options=SimpleNamespace(**given),
    )


def test_a_run_its_plan_and_the_time_left(state, capsys):
    plan = [item(ONE), item(TWO), item(THREE), item("m=65..256|n=8", why="")]
    path = write(state, *TUNED, *HALF)
    watcher = Watcher()
    with FileLock(f"{path}.lock"), beat(state, plan, watcher, budget_s=1000.0) as heart:
        heart.begins(plan[0], 1, 3)
        heart.ends(SimpleNamespace(item=plan[0], status="tuned", reason=""))
        heart.begins(plan[1], 2, 3)
        heart.steps("a step")
        runs, buckets, _ = rows(capsys)
        assert main(["status"]) == 0
        text = capsys.readouterr().out.splitlines()
    assert watcher.calls == [
        ("begins", ONE, 1, 3),
        ("ends", "tuned"),
        ("begins", TWO, 2, 3),
        ("steps", "a step"),
    ]
    (run,) = runs
    assert 990 < run.pop("left_s") <= 1000
    started = run.pop("started")
    assert run == {
        "pid": os.getpid(),
        "host": this_host(),
        "alive": True,
        "device": "sm90/NVIDIA H200",
        "into": str(state.parent / "tuned"),
        "done": 1,
        "total": 3,
        "held": 1,
    }
    assert {key: row["status"] for key, row in buckets.items()} == {
        ONE: "tuned",
        TWO: "running",
        THREE: "waiting",
        "m=65..256|n=8": "held",
    }
    assert 490 < buckets[TWO]["left_s"] <= 500
    assert buckets[ONE]["left_s"] is None
    assert text == [
        f"process {os.getpid()} on {this_host()}, started {started}, runs: sm90/NVIDIA H200 "
        f"into {state.parent / 'tuned'}, 1 of 3 buckets done (1 held before), 17 min left",
        "mykern.norm  sm90/NVIDIA H200: 1 of 4 tuned",
        "  tuned       m=1..4 n=8: 1 trials, best 20.00 us (default 25.00, 1.25x)",
        "  waiting     m=17..64 n=8",
        "  running     m=5..16 n=8: 7 trials, best 24.00 us (default 30.00, 1.25x), "
        "3 failed (2 compile_error, 1 timeout), 8 min left",
        "  held        m=65..256 n=8",
    ]
    assert rows(capsys)[0] == []  # its end deleted the file


def test_time_goes_by(state):
    path = write(state, *HALF)
    with FileLock(f"{path}.lock"), beat(state, [item(TWO)], budget_s=60, per_bucket_s=30) as heart:
        heart.begins(heart_item := item(TWO), 1, 1)
        now = time.time()
        later = read_standing(state, now + 20)
        assert later.runs[0].left_s == pytest.approx(40, abs=1)
        assert later.buckets[0].left_s == pytest.approx(10, abs=1)
        much_later = read_standing(state, now + 100)
        assert (much_later.runs[0].left_s, much_later.buckets[0].left_s) == (0.0, 0.0)
        heart.ends(SimpleNamespace(item=heart_item, status="failed", reason="x" * 1000))
        (bucket,) = read_standing(state).buckets
        assert (bucket.status, bucket.reason, bucket.left_s) == ("failed", "x" * 300, None)


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from types import SimpleNamespace
from pathlib import Path
from filelock import FileLock
import test_status as t
state = Path(sys.argv[1])
FileLock(f"{t.journal_path(state)}.lock").acquire()
t.beat(state, [t.item(t.TWO)], budget_s=60.0).__enter__()
os.kill(os.getpid(), 9)
"""


def test_a_run_that_was_killed(state, capsys):
    write(state, *HALF)
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", KILLED, str(state), here], capture_output=True)
    assert done.returncode == -9, done.stderr
    runs, buckets, _ = rows(capsys)
    assert [(run["alive"], run["left_s"], run["done"]) for run in runs] == [(False, None, 0)]
    assert buckets[TWO]["status"] == "interrupted"
    assert main(["status"]) == 0
    assert "is gone: it was killed" in capsys.readouterr().out
    with beat(state, [item(TWO)]):  # the next run clears it away
        assert [run["pid"] for run in rows(capsys)[0]] == [os.getpid()]


def test_a_state_folder_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    watcher = Watcher()
    with beat(tmp_path / "file", [item(ONE)], watcher) as heart:
        heart.begins(item(ONE), 1, 1)
    assert watcher.calls == [("begins", ONE, 1, 1)]


def test_damage(state, capsys):
    path = write(state, *TUNED)
    write(state, *TUNED, kernel="other.norm")
    path.write_bytes(path.read_bytes() + b"not json\n" + b'{"kind": "ask"}\n')
    (state / "runs").mkdir()
    (state / "runs" / "x-1.json").write_text("{")
    (state / "runs" / "x-2.json").write_text('{"schema": 99}')
    runs, buckets, data = rows(capsys, status=1)
    assert (runs, buckets[ONE]["status"]) == ([], "tuned")
    assert len(data["damage"]) == 1
    assert data["damage"][0].startswith(f"{path}:4: ")
    assert {row["kernel"] for row in data["buckets"]} == {KERNEL, "other.norm"}


def test_a_torn_last_line_is_what_a_run_is_writing(state, capsys):
    path = write(state, *TUNED)
    path.write_bytes(path.read_bytes() + b'{"kind": "tri')
    assert rows(capsys)[1][ONE]["status"] == "tuned"


def test_kernels(state, capsys):
    write(state, *TUNED)
    write(state, *HALF, kernel="other.soft")
    assert [row["kernel"] for row in rows(capsys, "soft")[2]["buckets"]] == ["other.soft"]
    assert main(["status", "sotf"]) == 2
    assert "Did you mean 'soft'" in capsys.readouterr().err


def test_nothing_yet(state, capsys):
    assert main(["status"]) == 0
    assert capsys.readouterr().out == f"nothing was tuned yet: {state} holds no journal\n"
    assert rows(capsys)[2] == {"state": str(state), "runs": [], "buckets": [], "damage": []}


def test_it_needs_no_library_of_tuning(state):
    write(state, *TUNED)
    code = (
        "import sys\nfrom lfbo_aot.cli.main import main\nassert main(['status']) == 0\n"
        "heavy = {'torch', 'helion', 'numpy', 'sklearn', 'filelock', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    env = {**os.environ, "LFBO_AOT_STATE": str(state)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


def test_help_has_an_example(capsys):
    assert main(["status", "--help"]) == 0
    assert "example: lfbo-aot status" in capsys.readouterr().out
