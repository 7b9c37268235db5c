"""Locks that a forked child can take, whoever held them in its parent."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()


class ForkLock:
    """A reentrant lock for `with`, which is free again in a forked child.

    Another thread of the parent may hold it at that moment, and isn't there to let go of it. What it
    guards must be whole at any time, as the child may see it half way through a block.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(RuntimeError):  # forked within the block
            self._lock.release()

    def renew(self) -> None:
        self._lock = threading.RLock()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
