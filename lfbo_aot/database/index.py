"""The index of a shard: where each key's line lies, found without parsing what the lines say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from typing import NamedTuple

from lfbo_aot.database.line import Line
from lfbo_aot.database.line import parse_line

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
_USUAL = re.compile(rb'\["([^"\\\n|]+\|[^"\\\n]+)", "[0-9a-f]{8}", \{"schema": [0-9]+, "key": "')
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
    as_written = content.count(_ENTRY) == len(spans)
    for number, (start, end) in enumerate(spans, start=1):
        found = _usual(content, start, end) if as_written else None
        if found is None:
            raw = content[start:end]
            try:
                line = parse_line(raw, number)
            except ValueError as error:
                damaged(number, str(error), raw)
                continue
            found = line.key, end - 1 - len(line.text)
        key, entry = found
        if key in places:
            first = twice[key] = places[key]
            reason = f"duplicate key {key!r}: it stands on line {first[0]} too"
            damaged(number, reason, content[start:end])
        else:
            places[key] = number, start, end, entry
    for key in twice:
        del places[key]
    return Index(content, places)


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


def _usual(content: bytes, start: int, end: int) -> tuple[str, int] | None:
    """The key of a line and where its entry starts; None where it isn't written in the usual way."""
    head = _USUAL.match(content, start, end)
    if head is None or content[end - 2 : end] != b"}]":
        return None
    key = head[1]
    if not (key.isascii() and content.startswith(key + b'", ', head.end())):
        return None
    return key.decode(), content.index(b"{", head.end(1))


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a shard without their newlines; a last line may lack its own."""
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def keys_that_may_hold(
    keys: Iterable[str], device_name: str, shape: Mapping[str, Value]
) -> list[str]:
    """Those of `keys` that are the device's, and whose boxes may hold `shape` by their text.

    A key that isn't written as this version would may be among them: parsing shows it.
    """
    holds = {f"{name}={_text(value)}": True for name, value in shape.items()}
    pieces = len(shape) + 1
    found = []
    for key in keys:
        parts = key.split("|")
        if parts[0] != device_name or len(parts) != pieces:
            continue
        for part in parts[1:]:
            held = holds.get(part)
            if held is None:
                held = holds[part] = _holds(part, shape)
            if not held:
                break
        else:
            found.append(key)
    return found


def _holds(part: str, shape: Mapping[str, Value]) -> bool:
    """Whether an interval's text holds its dim of `shape`."""
    name, _, written = part.partition("=")
    lo, dots, hi = written.partition("..")
    value = shape.get(name)
    if not dots or type(value) is not int:
        return False
    try:
        return int(lo) <= value <= int(hi)
    except ValueError:
        return False


def _text(value: Value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
