"""A kernel's journal while it is tuned: read once, added to by every bucket's search."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.tuning import journaling
from lfbo_aot.tuning.damage import read_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lfbo_aot.database.journal import Journal
    from lfbo_aot.tuning.journaling import Record


class Book:
    """The records of a journal in memory, kept as it grows; for any number of threads.

    TuningError where the journal is damaged.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._by_bucket: dict[str, list[Record]] = {}
        self._next = 1
        for record in read_records(journal):
            self._keep(record)

    def _keep(self, record: Record) -> None:
        self._by_bucket.setdefault(record["bucket"], []).append(record)
        self._next = max(self._next, record["session"] + 1)

    def of(self, bucket: str) -> Sequence[Record]:
        """The records of one bucket so far, as they read back."""
        with self._lock:
            return tuple(self._by_bucket.get(bucket, ()))

    def buckets(self) -> tuple[str, ...]:
        """The buckets that there are records of."""
        with self._lock:
            return tuple(self._by_bucket)

    def next_number(self) -> int:
        """A session's number that no other one has."""
        with self._lock:
            self._next += 1
            return self._next - 1

    def append(self, record: dict[str, Any]) -> None:
        """Write a record; it is on disk when this returns."""
        with self._lock:
            self._journal.append(record)
            self._keep(journaling.normalized(record))
