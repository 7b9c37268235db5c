"""A shard: the entries of one kernel on one arch, one a line, indexed by key without parsing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lfbo_aot.database.files import read_file
from lfbo_aot.database.index import PINNED
from lfbo_aot.database.index import Keys
from lfbo_aot.database.index import index_lines
from lfbo_aot.database.index import split_lines
from lfbo_aot.database.line import encode_line
from lfbo_aot.database.line import split_key
from lfbo_aot.database.line import suspects
from lfbo_aot.database.problem import Problem
from lfbo_aot.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Iterator
    from collections.abc import Mapping
    from pathlib import Path

    from lfbo_aot.database.entry import Entry
    from lfbo_aot.database.index import Index
    from lfbo_aot.database.line import Suspect
    from lfbo_aot.registry.buckets import Bucket
    from lfbo_aot.registry.dims import Value

__all__ = ["Shard", "encode_line", "join_lines", "split_lines"]

Box = tuple["Bucket", str]


class Shard:
    """The lines of one file, read when first asked.

    A damaged line is left out of the index and kept as a problem, along with what it may have
    answered for: a shape whose answer may be in it must not get a larger box's answer instead.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index: Index | None = None
        self._problems: list[Problem] = []
        self._suspects: list[tuple[Suspect, Problem]] = []
        self._names: tuple[str, ...] | None = None
        self._keys: dict[str, Keys] = {}
        self._boxes: dict[str, tuple[Box, ...]] = {}
        self._buckets: dict[str, Bucket | None] = {}
        self._entries: dict[str, Entry] = {}

    @property
    def index(self) -> Index:
        """The lines of the right form by key, in the file's order; DatabaseError if unreadable."""
        if self._index is None:
            self._index = self._read()
        return self._index

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the lines that have the right form, in the file's order."""
        return tuple(self.index.places)

    @property
    def device_names(self) -> tuple[str, ...]:
        """The devices that the keys name, in the file's order."""
        if self._names is None:
            places = self.index.places
            self._names = tuple(dict.fromkeys([key.partition("|")[0] for key in places]))
        return self._names

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
            line = self.index.line(key)
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
            boxes = self._boxes[device_name] = self._parsed(self._of(device_name).keys)
        return boxes

    def find(self, device_name: str, shape: Mapping[str, Value]) -> str | None:
        """The key of the smallest box that holds `shape`, None where none does; else as `matching`."""
        return next(self.matching(device_name, shape), None)

    def matching(self, device_name: str, shape: Mapping[str, Value]) -> Iterator[str]:
        """The keys of the boxes that hold `shape`, smallest first.

        Raises DatabaseError, naming the line, in place of a box than which a damaged line may have
        held a smaller one, and at the end where it may have held any.
        """
        for bucket, key in self.holding(device_name, shape):
            self.check_smaller(device_name, shape, bucket)
            yield key
        self.check_smaller(device_name, shape, None)

    def holding(self, device_name: str, shape: Mapping[str, Value]) -> tuple[Box, ...]:
        """The boxes that hold `shape`, smallest first, whatever damaged lines may have held."""
        # Not all keys are parsed for it: most are seen not to hold the shape by their text.
        keys = self._of(device_name).that_may_hold(shape)
        return tuple(box for box in self._parsed(keys) if box[0].contains(shape))

    def _of(self, device_name: str) -> Keys:
        if device_name not in self._keys:
            self._keys[device_name] = Keys(self.index.places, device_name)
        return self._keys[device_name]

    def is_pinned(self, key: str) -> bool:
        """Whether the line of `key` says that it is pinned; KeyError where there is none."""
        return PINNED in self.index.line(key).text

    def check_smaller(
        self, device_name: str, shape: Mapping[str, Value], than: Bucket | None
    ) -> None:
        """DatabaseError, naming the line, where a damaged one may have held `shape` in a smaller box.

        Smaller than `than`, or of any size where that is None.
        """
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

    def _parsed(self, keys: Iterable[str]) -> tuple[Box, ...]:
        """The buckets of these keys, smallest first; a key that isn't one is a problem."""
        boxes: list[Box] = []
        for key in keys:
            if key not in self._buckets:
                self._buckets[key] = self._parse(key)
            bucket = self._buckets[key]
            if bucket is not None:
                boxes.append((bucket, key))
        return tuple(sorted(boxes, key=lambda box: _rank(box[0])))

    def _parse(self, key: str) -> Bucket | None:
        try:
            return split_key(key)[1]
        except ValueError as error:
            line = self.index.line(key)
            self._damaged(line.number, str(error), line.raw)
            return None

    def _read(self) -> Index:
        return index_lines(read_file(self.path), self._damaged)

    def _damaged(self, number: int, reason: str, raw: bytes) -> None:
        problem = Problem(self.path, number, reason)
        self._problems.append(problem)
        self._suspects += [(suspect, problem) for suspect in suspects(raw)]


def join_lines(lines: Mapping[str, bytes]) -> bytes:
    """The content of a shard with these lines by key: sorted by key, each with a newline."""
    return b"".join(lines[key] + b"\n" for key in sorted(lines))


def _rank(bucket: Bucket) -> tuple[int, str]:
    return bucket.volume, bucket.key
