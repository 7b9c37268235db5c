"""A worker process as the orchestrator sees it: started, asked one thing at a time, killed, replaced."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from lfbo_aot.tuning.channel import Channel
from lfbo_aot.tuning.channel import Message
from lfbo_aot.tuning.watchdog import kill_group

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.tuning.watchdog import Watchdog

_names = itertools.count(1)
_GRACE_S = 5.0  # for a process whose channel is closed to end by itself


class WorkerProcess:
    """One process that runs `python -m MODULE` and answers requests in the order they come.

    It leads a process group of its own, so that killing it takes its compilers with it.
    """

    def __init__(
        self, module: str, *, environment: Mapping[str, str], log_folder: Path, watchdog: Watchdog
    ) -> None:
        self.module = module
        self.log = log_folder / f"{module.rpartition('.')[2]}-{next(_names)}.log"
        self.idle = True
        """Whether it has answered all that it was asked."""
        self._watchdog = watchdog
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        with self.log.open("ab") as log, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
                env={
                    **os.environ,
                    **environment,
                    "PYTHONPATH": _import_path(),
                    "PYTHONSAFEPATH": "1",  # a file here named like a module isn't one of ours
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        watchdog.add(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, request: Message, descriptors: Sequence[int] = ()) -> None:
        """Ask; the answer comes through `receive` once `channel` is readable."""
        self.idle = False
        # Where it is gone, the channel reads as closed, and whoever waits sees that.
        with contextlib.suppress(OSError):
            self.channel.send(request, descriptors)

    def receive(self) -> Message | None:
        """The answer to the request in hand; None where the worker died."""
        reply = self.channel.receive()
        self.idle = True
        return reply

    def kill(self) -> None:
        """End the process and all that it started."""
        kill_group(self._process.pid)
        self._process.wait()
        self._watchdog.remove(self._process.pid)
        self.channel.close()

    def obituary(self) -> str:
        """How it ended and the last of what it said, on one line: for a worker that has died."""
        try:
            code = self._process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            how = "it closed its channel"
        else:
            how = f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        words = self.last_words()
        return f"{how}: {words}" if words else how

    def last_words(self, limit: int = 300) -> str:
        """The last line that it wrote to its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 10_000))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        told = [" ".join(line.split()) for line in lines if line.strip()]
        return told[-1][-limit:] if told else ""


def _import_path() -> str:
    """What a child imports from: the same places as this process, in the same order."""
    folders = [os.path.realpath(p or ".") for p in sys.path]
    return os.pathsep.join(dict.fromkeys(f for f in folders if f))
