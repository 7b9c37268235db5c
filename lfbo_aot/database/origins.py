"""Origins: which entries of a database came in an archive, and from where (`origins.jsonl`).

A record of history for people: no look-up reads it, and it isn't shipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.text import dump_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence
    from pathlib import Path

    from lfbo_aot.database.combine import Change

ORIGINS = "origins.jsonl"


def origin_line(digest: str, origin: Mapping[str, str], changes: Sequence[Change]) -> str:
    """The record of what an archive brought: its digest, where it is from, and the keys."""
    entries: dict[str, list[str]] = {}
    for change in changes:
        if change.bucket is not None:
            key = f"{change.device}|{change.bucket.key}"
            entries.setdefault(change.kernel_id, []).append(key)
    data: dict[str, Any] = {"archive": digest, "origin": dict(origin), "entries": entries}
    return dump_line(data)


def add_origins(root: Path, lines: Sequence[str]) -> bytes | None:
    """The new content of the database's record; None where nothing is to be added."""
    file = root / ORIGINS
    before = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    new = [line for line in lines if line not in before]
    return "".join(f"{line}\n" for line in [*before, *new]).encode() if new else None
