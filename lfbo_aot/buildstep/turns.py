"""Builds of one checkout take turns: setuptools packs what lies in a folder that they share."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME = ".lfbo-aot.lock"
_held: dict[Path, int] = {}
"""The locks of this process. They are never given back: packing comes after us, and the end of the
process gives them back however it comes."""


def wait_for_turn(folder: Path) -> None:
    """Return when no other process builds in `folder`; from then on to its end, this one does."""
    if folder in _held:
        return
    try:
        import fcntl
    except ImportError:
        return  # not a system that Triton runs on
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"lfbo-aot: waiting for another build in {folder}\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _held[folder] = lock
    except OSError:
        pass  # a file system without locks: builds at the same time are then as safe as setuptools is
    finally:
        if folder not in _held:
            with contextlib.suppress(OSError):
                os.close(lock)
