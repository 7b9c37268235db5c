"""Where a state folder keeps what, for those that write it and those that read it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from lfbo_aot.registry.devices import DeviceId


def journal_path(state: Path, device: DeviceId, kernel_id: str) -> Path:
    """Where the journal of one kernel on one device lies."""
    folder = re.sub(r"[^A-Za-z0-9.-]+", "_", f"{device.arch}_{device.name}")
    return state / "journals" / folder / f"{kernel_id}.jsonl"


def lock_of(journal: Path) -> Path:
    """The lock that the run which appends to a journal holds."""
    return journal.with_name(f"{journal.name}.lock")


def runs_folder(state: Path) -> Path:
    """Where the files of runs under way lie."""
    return state / "runs"
