"""A process that ends a run's workers when the run's main process is gone, however it went.

It reads the process groups to watch over from its standard input and kills them at end of file. The
kernel closes that pipe even after SIGKILL, so no worker, and no compiler that a worker started,
outlives the run. It runs as a script and needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys


class Watchdog:
    """The orchestrator's side: starts the process and tells it whom to watch over."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal must not end it first
        )

    def add(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the watch; groups that were not removed are killed."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a watchdog that was killed leaves the run as it was
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def kill_group(group: int) -> None:
    """SIGKILL for a whole process group; nothing happens where it is gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def watch() -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        kill_group(group)


if __name__ == "__main__":
    watch()
