from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from lfbo_aot.buildstep import turns
from lfbo_aot.buildstep.turns import wait_for_turn

SCRIPT = """
import sys
from pathlib import Path
from lfbo_aot.buildstep.turns import wait_for_turn
wait_for_turn(Path(sys.argv[1]))
print("mine", flush=True)
sys.stdin.read()
"""


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_second_waits_for_the_end_of_the_first(tmp_path):
    with start(tmp_path) as first:
        assert first.stdout.readline() == "mine\n"
        with start(tmp_path) as second:
            assert "waiting for another build" in second.stderr.readline()
            first.kill()
            assert second.stdout.readline() == "mine\n"
            second.stdin.close()


def test_one_process_may_build_twice_and_folders_do_not_wait_for_each_other(tmp_path):
    for name in ("a", "a", "b"):
        wait_for_turn(tmp_path / name)
    with start(tmp_path / "c") as other:
        assert other.stdout.readline() == "mine\n"
        other.stdin.close()


@pytest.mark.parametrize(
    ("first", "then", "raised"),
    [
        (OSError(errno.ENOLCK, "no locks"), None, None),
        (BlockingIOError(), OSError(errno.ENOLCK, "no locks"), None),
        (BlockingIOError(), KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_lock_that_is_not_held_is_not_left_open(tmp_path, monkeypatch, first, then, raised):
    answers = [first, then]
    seen = []

    def flock(lock, _how):
        seen.append(lock)
        raise answers[len(seen) - 1]

    monkeypatch.setattr(fcntl, "flock", flock)
    if raised is None:
        wait_for_turn(tmp_path)
    else:
        with pytest.raises(raised):
            wait_for_turn(tmp_path)
    assert tmp_path not in turns._held
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(seen[-1])
