"""The journal of a tuning run: one record a line, on disk before the call that wrote it returns."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from lfbo_aot.database.text import dump_line
from lfbo_aot.database.text import load
from lfbo_aot.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

_CHUNK = 1 << 16


class Journal:
    """An append-only file of JSON objects, which survives the death of its writer at any byte.

    What a killed writer left half written is cut off when the file is next opened for appending,
    and passed over by readers. One process appends at a time: who holds a run is the caller's
    affair. A journal that is only read may be read while another process appends.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._fd: int | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Open for appending, and cut a torn last line; `append` does so too when first called.

        Makes the folder and the file where they are missing.
        """
        if self._fd is not None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(fd).st_size
            whole = _whole_length(fd, size)
            if whole < size:
                os.ftruncate(fd, whole)
                os.fsync(fd)
            if new:
                _sync_folder(self.path.parent)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def append(self, record: Mapping[str, Any], *, wait: bool = True) -> None:
        """Add one record, by one write, and wait until it is on disk.

        Without `wait` it is with the operating system on return, so that it outlives this process,
        and on disk after the next `sync`. Raises ValueError where it isn't finite JSON data, and DatabaseError where the disk didn't
        take it whole; the journal then is as it was before.
        """
        data = (dump_line(dict(record)) + "\n").encode()
        self.open()
        fd = self._fd
        if fd is None:
            msg = f"the journal {self.path} isn't open"
            raise RuntimeError(msg)
        before = os.fstat(fd).st_size
        try:
            written = os.write(fd, data)
        except OSError as error:
            raise DatabaseError(self.path, f"can't be written: {error.strerror}") from error
        if written != len(data):
            os.ftruncate(fd, before)
            raise DatabaseError(self.path, "a record was written in part (disk full?), and cut off")
        if wait:
            os.fsync(fd)

    def sync(self) -> None:
        """Wait until all that was appended is on disk; nothing where the journal isn't open."""
        fd = self._fd
        if fd is not None:
            os.fsync(fd)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records in the order written; none where there is no file.

        A torn last line is passed over. Raises DatabaseError, with the line's number, on any other
        line that isn't a JSON object.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            held: tuple[int, str] | None = None
            for number, raw in enumerate(file, start=1):
                if held is not None:
                    raise DatabaseError(self.path, held[1], held[0])
                if not raw.endswith(b"\n"):
                    return
                try:
                    record = _record(raw)
                except ValueError as error:
                    held = number, str(error)
                    continue
                yield record

    def close(self) -> None:
        """Close the file; harmless where it isn't open."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _record(raw: bytes) -> dict[str, Any]:
    record = load(raw.decode())
    if not isinstance(record, dict):
        msg = f"the record is a {type(record).__qualname__}; it must be an object"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for bad data
    return record


def _whole_length(fd: int, size: int) -> int:
    """How many of the first `size` bytes to keep: all but a last line that is torn or no record."""
    end = _after_newline(fd, size)
    if end < size or end == 0:
        return end
    start = _after_newline(fd, end - 1)
    try:
        _record(os.pread(fd, end - start, start))
    except ValueError:
        return start
    return end


def _after_newline(fd: int, end: int) -> int:
    """The offset after the last newline in the first `end` bytes; 0 where there is none."""
    while end > 0:
        start = max(0, end - _CHUNK)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _sync_folder(folder: Path) -> None:
    """Put a new file's name on disk; a file system that can't is left alone."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
