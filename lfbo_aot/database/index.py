"""The index of a shard: where each key's line lies, found without parsing what the lines say."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING
from typing import NamedTuple

from lfbo_aot.database.line import Line
from lfbo_aot.database.line import parse_line
from lfbo_aot.registry.buckets import part_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Iterable
    from collections.abc import Mapping

    from lfbo_aot.registry.values import Value

    Damaged = Callable[[int, str, bytes], None]

PINNED = b'"pinned": true'
"""In the text of an entry that is."""
# A line as `encode_line` writes it, up to where its entry repeats the key. Any other line is left to
# `parse_line`, which also says what is wrong with it.
_USUAL = re.compile(
    rb'\["([^"\\|\x00-\x1f\x80-\xff]+\|[^"\\\x00-\x1f\x80-\xff]+)", '
    rb'"[0-9a-f]{8}", \{"schema": [0-9]+, "key": "'
)
_GAP = len('", "5f3a9c01", ')
"""From the end of a key to its entry."""
_CHECKSUM = slice(-11, -3)
"""Where the checksum stands before an entry: `"5f3a9c01", {`."""
# Stands in each line once; more often where a newline between two lines was lost.
_ENTRY = b'", {"schema": '

Place = tuple[int, int, int, int]
"""The number of a line, where it starts and ends in the content, and where its entry starts."""


class Index(NamedTuple):
    """The lines of a shard by key, in the file's order."""

    content: bytes
    places: dict[str, Place]

    def line(self, key: str) -> Line:
        """The line of `key`; KeyError where there is none."""
        number, start, end, entry = self.places[key]
        checksum = self.content[start:entry][_CHECKSUM].decode()
        text = self.content[entry : end - 1]
        return Line(number, key, checksum, text, self.content[start:end])


def index_lines(content: bytes, damaged: Damaged) -> Index:
    """The index of a shard's content; `damaged` is told the number, the fault and the bytes of a line.

    Of two lines with one key neither is in it: which of them is right can't be known.
    """
    places: dict[str, Place] = {}
    twice: dict[str, Place] = {}
    spans = _spans(content)
    usual = _USUAL.match if content.count(_ENTRY) == len(spans) else _never
    for number, (start, end) in enumerate(spans, start=1):
        head = usual(content, start, end)
        if (
            head is not None
            and content[end - 2 : end] == b"}]"
            and content.startswith(head[1] + b'", ', head.end())
        ):
            key = head[1].decode()
            entry = head.end(1) + _GAP
        else:
            raw = content[start:end]
            try:
                line = parse_line(raw, number)
            except ValueError as error:
                damaged(number, str(error), raw)
                continue
            key = line.key
            entry = end - 1 - len(line.text)
        if key in places:
            first = twice[key] = places[key]
            reason = f"duplicate key {key!r}: it stands on line {first[0]} too"
            damaged(number, reason, content[start:end])
        else:
            places[key] = number, start, end, entry
    for key in twice:
        del places[key]
    return Index(content, places)


def _never(_content: bytes, _start: int, _end: int) -> None:
    return None


def _spans(content: bytes) -> list[tuple[int, int]]:
    """Where each line starts and ends; a last line may lack its newline."""
    spans = []
    start = 0
    find, size = content.find, len(content)
    while start < size:
        end = find(b"\n", start)
        if end < 0:
            end = size
        spans.append((start, end))
        start = end + 1
    return spans


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a shard without their newlines; a last line may lack its own."""
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


class Keys:
    """The keys of one device, by their pieces: which boxes may hold a shape, without parsing any.

    A key that isn't written as this version would may be among the answers: parsing shows it.
    """

    def __init__(self, keys: Iterable[str], device_name: str) -> None:
        self.keys: list[str] = []
        self._pieces: list[int] = []
        self._with: dict[str, list[int]] = {}
        """By piece, the places of the keys that have it."""
        known = self._with
        for key in keys:
            name, *pieces = key.split("|")
            if name != device_name:
                continue
            place = len(self.keys)
            self.keys.append(key)
            self._pieces.append(len(pieces))
            for piece in pieces:
                if piece in known:
                    known[piece].append(place)
                else:
                    known[piece] = [place]
        self._intervals = self._read_intervals()

    def that_may_hold(self, shape: Mapping[str, Value]) -> list[str]:
        """Those whose boxes may hold `shape` by their text, in the file's order."""
        found: set[int] | None = None
        for name, value in shape.items():
            places = set(self._with.get(f"{name}={part_text(value)}", ()))
            if type(value) is int:
                for lo, hi, piece in self._intervals.get(name, ()):
                    if lo <= value <= hi:
                        places.update(self._with[piece])
            found = places if found is None else found & places
        return [self.keys[at] for at in sorted(found or ()) if self._pieces[at] == len(shape)]

    def _read_intervals(self) -> dict[str, list[tuple[int, int, str]]]:
        found: dict[str, list[tuple[int, int, str]]] = {}
        for piece in self._with:
            name, _, written = piece.partition("=")
            lo, dots, hi = written.partition("..")
            if dots:
                with contextlib.suppress(ValueError):
                    found.setdefault(name, []).append((int(lo), int(hi), piece))
        return found
