"""A process that ends a run's workers when the run's main process is gone, however it went.

It reads the process groups to watch over from its standard input, kills them at end of file, and
deletes the run's folder. The kernel closes that pipe even after SIGKILL, so no worker, and no
compiler that a worker started, outlives the run. It runs as a script and needs nothing but the
standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Watchdog:
    """The orchestrator's side: starts the process and tells it whom to watch over.

    `folder` goes away with the run.
    """

    def __init__(self, folder: Path) -> None:
        read, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", __file__, str(folder)],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal must not end it first
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read)

    @property
    def pid(self) -> int:
        return self._process.pid

    def add(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the watch; groups that were not removed are killed."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._process.wait()

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a watchdog that was killed leaves the run as it was
            os.write(self._pipe, line.encode())


def kill_group(group: int) -> None:
    """SIGKILL for a whole process group; nothing happens where it is gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def watch(folder: str) -> None:
    """Read `+GROUP` and `-GROUP` lines to the end, then clear up."""
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        kill_group(group)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.argv[1])
