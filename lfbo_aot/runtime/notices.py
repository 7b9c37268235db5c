"""Notices: each thing that goes wrong in a serving process is said once."""

from __future__ import annotations

import logging

from lfbo_aot.registry.locks import ForkLock

logger = logging.getLogger(__name__)

MOST = 50
"""Of one kernel and kind; a loop over new shapes must not flood the log."""

_said: dict[tuple[str, str], set[str]] = {}
_lock = ForkLock()


def warn_once(kernel_id: str, reason: str) -> None:
    """Log `reason`, if it is the first time for this kernel in this process."""
    kind = reason.partition(":")[0]  # many misses must not hide what is damaged
    with _lock:
        said = _said.setdefault((kernel_id, kind), set())
        if reason in said or len(said) >= MOST:
            return
        said.add(reason)
        last = len(said) == MOST
    logger.warning("%s: %s", kernel_id, reason)
    if last:
        logger.warning("%s: %d warnings; no more of this kind follow", kernel_id, MOST)


def forget() -> None:
    """Say everything again: for tests."""
    with _lock:
        _said.clear()
