"""Ctrl-C and SIGTERM while processes are to be ended."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextlib.contextmanager
def one_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM interrupt what is inside, and ignore those that follow.

    A second one must not leave processes behind while the first one is being obeyed. They stay
    ignored, as the program is about to end.
    """
    watched = (signal.SIGINT, signal.SIGTERM)
    obeying = False

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal obeying
        obeying = True
        for number in watched:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in watched}
    try:
        yield
    finally:
        if not obeying:
            for number, handler in before.items():
                signal.signal(number, handler)
