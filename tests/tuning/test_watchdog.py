from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from lfbo_aot.tuning.watchdog import Watchdog
from lfbo_aot.tuning.watchdog import kill_group

CHILDREN = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid); "
CHILDREN += "sys.stdout.flush(); p.wait()"


def family():
    """A process that leads a group, and one that it started."""
    leader = subprocess.Popen(
        [sys.executable, "-c", CHILDREN], stdout=subprocess.PIPE, start_new_session=True
    )
    return leader, psutil.Process(int(leader.stdout.readline()))


def end_of(process):
    try:
        process.wait(timeout=10)
    except psutil.NoSuchProcess:
        return True
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def two():
    found = family(), family()
    yield found
    for leader, _ in found:
        kill_group(leader.pid)
        leader.wait()
        leader.stdout.close()


def test_groups_that_were_not_removed_end_with_the_watch(two, tmp_path):
    (kept, kept_child), (left, left_child) = two
    folder = tmp_path / "run"
    (folder / "triton").mkdir(parents=True)
    watchdog = Watchdog(folder)
    watchdog.add(kept.pid)
    watchdog.add(left.pid)
    watchdog.remove(kept.pid)
    watchdog.close()
    assert left.wait(timeout=10) == -signal.SIGKILL
    assert end_of(left_child)
    assert kept.poll() is None
    assert kept_child.is_running()
    assert not folder.exists()


OWNER = """
import os, sys
from pathlib import Path
from lfbo_aot.tuning.watchdog import Watchdog
watchdog = Watchdog(Path(sys.argv[1]))
watchdog.add(int(sys.argv[2]))
print(watchdog.pid, flush=True)
sys.stdin.read()
"""


def test_a_killed_owner_takes_its_groups_along(two, tmp_path):
    (leader, child), _ = two
    folder = tmp_path / "run"
    folder.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), str(leader.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    watchdog = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    assert leader.wait(timeout=10) == -signal.SIGKILL
    assert end_of(child)
    assert end_of(watchdog)
    assert not folder.exists()
    owner.stdin.close()
    owner.stdout.close()


def test_a_run_goes_on_without_its_watchdog(tmp_path):
    watchdog = Watchdog(tmp_path / "run")
    os.kill(watchdog.pid, signal.SIGKILL)
    watchdog.add(12345678)
    watchdog.remove(12345678)
    watchdog.close()
    watchdog.close()


def test_killing_a_group_that_is_gone_is_no_error():
    leader, _ = family()
    kill_group(leader.pid)
    leader.wait()
    leader.stdout.close()
    kill_group(leader.pid)
