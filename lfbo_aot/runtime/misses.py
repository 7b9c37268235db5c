"""Missed shapes on record: what `LFBO_AOT_RECORD_MISSES` names gets each one once, for tuning later."""

from __future__ import annotations

import errno
import logging
import os
import stat
from typing import TYPE_CHECKING

from lfbo_aot.database.text import dump_line
from lfbo_aot.registry.locks import ForkLock

if TYPE_CHECKING:
    from pathlib import Path

    from lfbo_aot.runtime.request import Request

logger = logging.getLogger(__name__)

MOST = 1 << 16
"""Of one process; a serving loop must not fill the disk."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK

_recorded: set[tuple[Path, str]] = set()
_lock = ForkLock()


def record_miss(path: Path, request: Request) -> None:
    """Append `{"kernel", "shape", "arch"}` as a line to `path`, the first time in this process.

    One write a line, so several processes may share the file; the folders that it lies in are made.
    What can't be written, or is no regular file, is warned of once, and never disturbs the look-up.
    """
    missed = {
        "kernel": request.kernel_id,
        "shape": request.shape,
        "arch": str(request.target),
    }
    line = dump_line(missed) + "\n"
    with _lock:
        if (path, line) in _recorded or len(_recorded) >= MOST:
            return
        _recorded.add((path, line))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A pipe would be waited for, at its opening and when it is full.
        fd = os.open(path, _FLAGS, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            os.write(fd, line.encode())
        finally:
            os.close(fd)
    except OSError as error:
        with _lock:
            first = (path, "") not in _recorded
            _recorded.add((path, ""))
        if first:
            logger.warning("LFBO_AOT_RECORD_MISSES: %s can't be written: %s", path, error.strerror)


def forget() -> None:
    """Record everything again: for tests."""
    with _lock:
        _recorded.clear()
