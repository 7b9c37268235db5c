"""Raw records: one JSON object a line, on disk before the next job begins."""

from __future__ import annotations

import json
import os
import threading
import uuid
from datetime import datetime
from datetime import timezone
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from pathlib import Path

Record = dict[str, Any]
NAME = "records.jsonl"
DONE = ("finished", "budget", "killed")
"""How a job ended that has a result."""
_writing = threading.Lock()


def read(folder: Path) -> list[Record]:
    """The records in a folder, in the order written; a torn last line is passed over."""
    path = folder / NAME
    if not path.is_file():
        return []
    found = []
    lines = path.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            msg = f"{path}:{number}: not a record: {error}; take the line out"
            raise SystemExit(msg) from error
    return found


def append(folder: Path, record: Record) -> None:
    """Add a record, and wait until it is on disk."""
    path = folder / NAME
    with _writing:
        folder.mkdir(parents=True, exist_ok=True)
        _end_torn_line(path)
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _end_torn_line(path: Path) -> None:
    """Cut off what a killed writer left half written."""
    if not path.is_file():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def begin(side: str, kernel: str, wall_s: float) -> Record:
    """What every record has, whatever its job was and however it ended."""
    return {
        "side": side,
        "kernel": kernel,
        "run": uuid.uuid4().hex[:12],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "wall_s": round(wall_s, 2),
    }


def has_result(record: Record) -> bool:
    """Whether a record's job came to a result."""
    return record["ended"] in DONE


def last(records: list[Record], side: str, kernel: str) -> Record | None:
    """The newest record of a side and kernel that has a result."""
    mine = (r for r in reversed(records) if r["side"] == side and r["kernel"] == kernel)
    return next((r for r in mine if has_result(r)), None)
