"""A kernel's journal while it is tuned: read once, added to by every bucket's search."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.tuning import journaling
from lfbo_aot.tuning.damage import read_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from lfbo_aot.database.journal import Journal
    from lfbo_aot.tuning.journaling import Record


class Book:
    """The records of a journal in memory, kept as it grows; for any number of threads.

    A record is with the operating system when `append` returns, so that a killed run loses none; a
    thread of its own puts them on disk, several at a time if they come quickly, while the search
    goes on: dozens of trials a second would else wait for the disk most of the time. TuningError
    where the journal is damaged. As a context manager it ends that thread, all records on disk.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._unsaved = threading.Event()
        self._closing = False
        self._trouble: OSError | None = None
        self._saver = threading.Thread(target=self._save, name="lfbo-aot-journal", daemon=True)
        self._by_bucket: dict[str, list[Record]] = {}
        self._next = 1
        for record in read_records(journal):
            self._keep(record)
        self._saver.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        self._unsaved.set()
        self._saver.join()
        if kind is None:
            self.save()

    def _save(self) -> None:
        while not self._closing:
            self._unsaved.wait()
            self._unsaved.clear()
            try:
                self._journal.sync()
            except OSError as error:  # told to whoever appends next
                self._trouble = error

    def save(self) -> None:
        """Wait until all records are on disk."""
        self._journal.sync()

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
        """Write a record. OSError where it, or one before it, can't be written."""
        with self._lock:
            if self._trouble is not None:
                raise self._trouble
            self._journal.append(record, wait=False)
            self._keep(journaling.normalized(record))
        self._unsaved.set()
