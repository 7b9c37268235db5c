"""Children of a worker: forked, watched, killed with all that they started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from typing import NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


class Child:
    """A forked process that runs `work` and leaves a report; its output is kept apart.

    `work` is given a function that writes to the report. What it raises ends the child with status 1
    and is the last line of its output.
    """

    def __init__(self, work: Callable[[Callable[[str], None]], None]) -> None:
        report, report_end = os.pipe()
        output, output_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(report)
            os.close(output)
            _run_and_exit(work, report_end, output_end)
        os.close(report_end)
        os.close(output_end)
        self._pipes = {report: bytearray(), output: bytearray()}
        self._report, self._output = report, output
        self._open = {report, output}

    def filenos(self) -> list[int]:
        """The descriptors to wait on; empty once the child has closed both, as its end does."""
        return sorted(self._open)

    def read(self, fd: int) -> None:
        """Take in what a descriptor that is ready has; the last 4,000 bytes of output are kept."""
        data = os.read(fd, 1 << 16)
        if not data:
            os.close(fd)
            self._open.discard(fd)
            return
        self._pipes[fd] += data
        if fd == self._output:
            del self._pipes[fd][:-4000]

    @property
    def report(self) -> str:
        return self._pipes[self._report].decode(errors="replace")

    @property
    def output(self) -> str:
        return self._pipes[self._output].decode(errors="replace")

    def kill(self) -> None:
        """End it, with all that it started."""
        kill_tree(self.pid)

    def wait(self) -> tuple[int, str]:
        """(exit status, name of the signal that ended it, or nothing); closes what is open."""
        _, status = os.waitpid(self.pid, 0)
        for fd in self._open:
            os.close(fd)
        self._open.clear()
        if os.WIFSIGNALED(status):
            return 1, signal.Signals(os.WTERMSIG(status)).name
        return os.WEXITSTATUS(status), ""


def _run_and_exit(work: Callable[[Callable[[str], None]], None], report: int, out: int) -> NoReturn:
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        work(lambda text: _write(report, text))
        code = 0
    except SystemExit as e:
        code = int(e.code or 0) if isinstance(e.code, int | None) else 1
    except BaseException as e:  # noqa: BLE001 - reported by text and status
        text = " ".join(str(e).split())
        _write(2, f"{type(e).__name__}: {text}"[:300])
    finally:
        os._exit(code)


def _write(fd: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(fd, data) :]


def kill_tree(pid: int) -> None:
    """SIGKILL for a child and what it started (ptxas may run for minutes), but not for our group."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # so that it starts nothing more
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # pid (name) state parent ...; the name may hold anything
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    doomed = [pid]
    for each in doomed:  # grows while it is walked
        doomed += children.get(each, [])
    for each in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def told(output: str, limit: int = 300) -> str:
    """The line of a compiler's output that says what was wrong, else the last ones."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|fatal|exceed", line, re.IGNORECASE)]
    return " | ".join(telling[:2] or lines[-3:])[:limit]
