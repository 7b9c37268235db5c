"""A worker process as the orchestrator sees it: started, asked one thing at a time, killed, replaced."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lfbo_aot.tuning.channel import Channel
from lfbo_aot.tuning.channel import Message
from lfbo_aot.tuning.watchdog import kill_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lfbo_aot.tuning.watchdog import Watchdog

_names = itertools.count(1)


class WorkerProcess:
    """One process that runs `python -m MODULE` and answers requests in the order they come.

    It leads a process group of its own, so that killing it takes its compilers with it.
    """

    def __init__(
        self, module: str, *, environment: Mapping[str, str], log_folder: Path, watchdog: Watchdog
    ) -> None:
        self.module = module
        self.name = f"{module.rpartition('.')[2]}-{next(_names)}"
        self.log = log_folder / f"{self.name}.log"
        self.busy_since: float | None = None
        self.request: Message | None = None
        self._watchdog = watchdog
        ours, theirs = socket.socketpair()
        with self.log.open("ab") as log, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                env={**os.environ, **environment, "PYTHONPATH": _import_path()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        watchdog.add(self._process.pid)
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def idle(self) -> bool:
        return self.request is None

    def send(self, request: Message) -> None:
        """Ask; the answer comes through `receive` once `channel` is readable."""
        self.request = request
        self.busy_since = time.monotonic()
        # Where it is gone, the channel reads as closed, and whoever waits sees that.
        with contextlib.suppress(OSError):
            self.channel.send(request)

    def receive(self) -> Message | None:
        """The answer to the request in hand; None where the worker died."""
        reply = self.channel.receive()
        self.request = None
        self.busy_since = None
        return reply

    def ask(self, request: Message) -> Message | None:
        """Send and wait for the answer."""
        self.send(request)
        return self.receive()

    def kill(self) -> None:
        """End the process and all that it started."""
        kill_group(self._process.pid)
        self._process.wait()
        self._watchdog.remove(self._process.pid)
        self.channel.close()

    def last_words(self, limit: int = 400) -> str:
        """The end of what it wrote to its log, for an error message."""
        try:
            return self.log.read_bytes()[-limit:].decode(errors="replace").strip()
        except OSError:
            return ""


def _import_path() -> str:
    """What a child imports from: the same places as this process, in the same order."""
    folders = [os.path.realpath(p or ".") for p in sys.path]
    return os.pathsep.join(dict.fromkeys(f for f in folders if f))
