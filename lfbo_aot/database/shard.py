"""A shard: the entries of one kernel on one arch, one a line, indexed by key without parsing them."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from lfbo_aot.database.line import Line
from lfbo_aot.database.line import encode_line
from lfbo_aot.database.line import parse_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.line import suspects
from lfbo_aot.database.problem import Problem
from lfbo_aot.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping
    from pathlib import Path

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.database.line import Suspect
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.dims import Value

__all__ = ["Shard", "encode_line", "join_lines"]

Box = tuple["Bucket", str]


class Shard:
    """The lines of one file, read when first asked.

    A damaged line is left out of the index and kept as a problem, along with what it may have
    answered for: a shape whose answer may be in it must not get a larger box's answer instead.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, Line] | None = None
        self._problems: list[Problem] = []
        self._suspects: list[tuple[Suspect, Problem]] = []
        self._boxes: dict[str, tuple[Box, ...]] = {}
        self._entries: dict[str, Entry] = {}

    @property
    def lines(self) -> Mapping[str, Line]:
        """The lines of the right form by key, in the file's order; DatabaseError if unreadable."""
        if self._lines is None:
            self._lines = self._read()
        return self._lines

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the lines that have the right form, in the file's order."""
        return tuple(self.lines)

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices that the keys name, in the file's order."""
        return tuple(dict.fromkeys(key.partition("|")[0] for key in self.lines))

    @property
    def suspected_names(self) -> tuple[str, ...]:
        """The devices that `device_names` lacks and damaged lines name; `""` for one unreadable."""
        held = self.device_names
        names = (suspect.device_name or "" for suspect, _ in self._suspects)
        return tuple(dict.fromkeys(name for name in names if name not in held))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The damage to lines' form and keys; that inside entries shows when they are read."""
        for name in self.device_names:
            self.boxes(name)
        return tuple(sorted(self._problems, key=lambda p: p.line or 0))

    def entry(self, key: str) -> Entry:
        """The entry of `key`: KeyError where there is none, DatabaseError where it is damaged."""
        found = self._entries.get(key)
        if found is None:
            line = self.lines[key]
            try:
                found = line.entry()
            except ValueError as error:
                raise DatabaseError(self.path, str(error), line.number) from error
            self._entries[key] = found
        return found

    def boxes(self, device_name: str) -> tuple[Box, ...]:
        """The buckets held for a device, each with its key, smallest first."""
        boxes = self._boxes.get(device_name)
        if boxes is None:
            boxes = self._boxes[device_name] = self._parse_boxes(device_name)
        return boxes

    def find(self, device_name: str, shape: Mapping[str, Value]) -> str | None:
        """The key of the smallest box that holds `shape`, None where none does; else as `matching`."""
        return next(self.matching(device_name, shape), None)

    def matching(self, device_name: str, shape: Mapping[str, Value]) -> Iterator[str]:
        """The keys of the boxes that hold `shape`, smallest first.

        Raises DatabaseError, naming the line, in place of a box than which a damaged line may have
        held a smaller one, and at the end where it may have held any.
        """
        for bucket, key in self.boxes(device_name):
            if bucket.contains(shape):
                self._check_smaller(device_name, shape, bucket)
                yield key
        self._check_smaller(device_name, shape, None)

    def _check_smaller(
        self, device_name: str, shape: Mapping[str, Value], than: Bucket | None
    ) -> None:
        for (name, bucket), problem in self._suspects:
            if name not in (None, device_name):
                continue
            if bucket is None:
                beaten = than is None or than.volume > 1
            else:
                smaller = than is None or _rank(bucket) < _rank(than)
                beaten = smaller and bucket.contains(shape)
            if beaten:
                raise DatabaseError(problem.file, problem.reason, problem.line)

    def _parse_boxes(self, device_name: str) -> tuple[Box, ...]:
        boxes: list[Box] = []
        prefix = device_name + "|"
        for line in self.lines.values():
            if not line.key.startswith(prefix):
                continue
            try:
                boxes.append((split_key(line.key)[1], line.key))
            except ValueError as error:
                self._damaged(line.number, str(error), line.raw)
        return tuple(sorted(boxes, key=lambda box: _rank(box[0])))

    def _read(self) -> dict[str, Line]:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # a pipe would be waited for
                raise DatabaseError(self.path, "can't be read: not a file")
            content = self.path.read_bytes()
        except OSError as error:
            raise DatabaseError(self.path, f"can't be read: {error.strerror}") from error
        found: dict[str, Line] = {}
        twice: dict[str, Line] = {}
        for number, raw in enumerate(split_lines(content), start=1):
            try:
                line = parse_line(raw, number)
            except ValueError as error:
                self._damaged(number, str(error), raw)
                continue
            if line.key in found:
                first = twice[line.key] = found[line.key]
                reason = f"duplicate key {line.key!r}: it stands on line {first.number} too"
                self._damaged(number, reason, raw)
            else:
                found[line.key] = line
        # Which of the two is right can't be known, so neither is served.
        for key in twice:
            del found[key]
        return found

    def _damaged(self, number: int, reason: str, raw: bytes) -> None:
        problem = Problem(self.path, number, reason)
        self._problems.append(problem)
        self._suspects += [(suspect, problem) for suspect in suspects(raw)]


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a shard without their newlines; a last line may lack its own."""
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def join_lines(lines: Mapping[str, bytes]) -> bytes:
    """The content of a shard with these lines by key: sorted by key, each with a newline."""
    return b"".join(lines[key] + b"\n" for key in sorted(lines))


def _rank(bucket: Bucket) -> tuple[int, str]:
    return bucket.volume, bucket.key
