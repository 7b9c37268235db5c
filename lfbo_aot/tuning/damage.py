"""Journals as a search reads them: every record is whole, or the file and line that isn't is named."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.journal import Journal
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import TuningError
from lfbo_aot.search import Trial

if TYPE_CHECKING:
    from pathlib import Path

Record = dict[str, Any]

# Of each kind of record, the fields that a search can't do without.
_FIELDS: dict[str, dict[str, type]] = {
    "open": {"kernel": str, "device": str},
    "ask": {"n": int, "points": list},
    "trial": {"ticket": int, "point": list, "status": str},
    "final": {},
}


def read_records(journal: Journal) -> list[Record]:
    """The records of a journal; TuningError, with the line and a way on, where one is damaged."""
    try:
        return _read(journal)
    except DatabaseError as error:
        msg = f"{error}; take that line out, or start without it by --fresh, which keeps the file"
        raise TuningError(msg) from error


def set_aside(path: Path) -> Path | None:
    """Rename a journal that is damaged; the new path, or None where it isn't."""
    try:
        _read(Journal(path))
    except DatabaseError:
        names = (path.with_name(f"{path.name}.damaged-{n}") for n in itertools.count(1))
        new = next(name for name in names if not name.exists())
        path.rename(new)
        return new
    return None


def _read(journal: Journal) -> list[Record]:
    records = []
    for number, record in enumerate(journal.records(), start=1):
        reason = _damage(record)
        if reason:
            raise DatabaseError(journal.path, reason, number)
        records.append(record)
    return records


def _damage(record: Record) -> str:
    """Why a search can't go on from this record; empty where it can."""
    kind = record.get("kind")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return f"a record of kind {kind!r}; there are: {', '.join(_FIELDS)}"
    for name, type_ in {"session": int, "bucket": str, **fields}.items():
        if type(record.get(name)) is not type_:
            return f"the record of kind {kind!r} has no right {name!r}"
    if kind == "ask" and not all(_is_proposal(item) for item in record["points"]):
        return "the record of kind 'ask' has no right 'points'"
    if kind == "trial":
        try:
            Trial((), record["status"], record.get("latency_us"))
        except (TypeError, ValueError) as error:
            return str(error)
    return ""


def _is_proposal(item: object) -> bool:
    return isinstance(item, list) and [type(part) for part in item] == [int, list]
