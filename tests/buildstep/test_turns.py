from __future__ import annotations

import subprocess
import sys

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
