"""One line of a shard: `["KEY", "CHECKSUM", {ENTRY}]`.

The key is `DEVICE NAME|BUCKET KEY`. The checksum is the CRC-32 of the entry's text as it stands in
the line. The entry repeats the key, so that damage to the key in front shows as well.
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

from lfbo_aot.database.entry import Entry
from lfbo_aot.database.text import dump_line
from lfbo_aot.database.text import load
from lfbo_aot.registry.buckets import Bucket

_TEXT = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
_LINE = re.compile(
    rb"\[" + _TEXT + rb', "([0-9a-f]{8})", (\{(?:"schema": [0-9]+, "key": ' + _TEXT + rb")?.*\})\]"
)
_START = re.compile(rb'\["[^"\\]+\|[^"\\]+", "[0-9a-f]{8}", \{')
# Where a key begins in a line, the key up to its closing quote, and what stands before its first bar.
_OPENING = re.compile(rb'(?:\[|"key": )(?=")')
_CLOSED = re.compile(_TEXT + rb", ")
_DEVICE = re.compile(rb'"([^"|\\\x00-\x1f]+)\|')
_MARK = b"\xef\xbb\xbf"  # UTF-8's byte order mark


class Line(NamedTuple):
    """A line of the right outer form; what the entry says isn't looked at yet."""

    number: int
    key: str
    checksum: str
    text: bytes
    """The entry's JSON."""
    raw: bytes
    """The whole line, without the newline."""

    @property
    def device_name(self) -> str:
        return self.key.partition("|")[0]

    def entry(self) -> Entry:
        """The entry, checked; ValueError with the reason where it is damaged or of another schema."""
        found = f"{zlib.crc32(self.text):08x}"
        if found != self.checksum:
            msg = f"checksum {self.checksum} doesn't match the entry, whose own is {found}"
            raise ValueError(msg)
        data = load(self.text.decode())
        if isinstance(data, dict) and data.get("key", self.key) != self.key:
            msg = f"the entry belongs to the key {data['key']!r}, not to {self.key!r}"
            raise ValueError(msg)
        return Entry.from_json(data)


def join_key(device_name: str, bucket: Bucket) -> str:
    """The key of a line; ValueError where the device's name can't stand in one."""
    if not device_name or "|" in device_name or not device_name.isprintable():
        msg = f"the device name {device_name!r} can't stand in a key"
        raise ValueError(msg)
    return f"{device_name}|{bucket.key}"


def split_key(key: str) -> tuple[str, Bucket]:
    """The device's name and the bucket of a key; ValueError where it isn't written so."""
    device_name, _, bucket = key.partition("|")
    parsed = Bucket.parse(bucket)
    if join_key(device_name, parsed) != key:
        msg = f"the key {key!r} isn't written as this version would"
        raise ValueError(msg)
    return device_name, parsed


def encode_line(key: str, entry: Entry) -> str:
    """The line for `entry`, without a newline: the same text for equal arguments.

    Raises ValueError where the key isn't one, or holds what can't be written as UTF-8.
    """
    split_key(key)
    data = entry.to_json()
    text = dump_line({"schema": data.pop("schema"), "key": key, **data})
    checksum = zlib.crc32(text.encode())
    return f'[{dump_line(key)}, "{checksum:08x}", {text}]'


def parse_line(raw: bytes, number: int) -> Line:
    """The line in its parts, without parsing the entry; ValueError where it has another form."""
    match = _LINE.fullmatch(raw)
    if match is None or _START.search(raw, 1):  # two lines that lost the newline between them
        raise ValueError(_malformed(raw))
    written, checksum, text, repeated = match.groups()
    key = _decode(written)
    if "|" not in key:
        msg = f"the key {key!r} isn't written DEVICE|dim=value"
        raise ValueError(msg)
    if repeated is not None and repeated != written:
        msg = f"the entry belongs to the key {_decode(repeated)!r}, not to {key!r}"
        raise ValueError(msg)
    return Line(number=number, key=key, checksum=checksum.decode(), text=text, raw=raw)


class Suspect(NamedTuple):
    """What a damaged line may have been about; None stands for what can't be read, so for any."""

    device_name: str | None
    bucket: Bucket | None


def suspects(raw: bytes) -> tuple[Suspect, ...]:
    """What a damaged line may have been about, by the keys in it; nothing where it is blank.

    A key counts only as a whole, from quote to quote: the start of one, such as `m=1..1` of
    `m=1..16`, is the key of another box. Where the line doesn't begin with a whole key it may have
    been about any box of the devices that it still names, or of any device where it names none.
    """
    line = raw.removeprefix(_MARK)
    found: list[Suspect] = []
    front = b""
    for opening in _OPENING.finditer(line):
        if front.startswith(line[opening.end() :]):
            continue  # the line is cut inside the repeated key, and the first one is whole
        closed = _CLOSED.match(line, opening.end())
        try:
            suspect = Suspect(*split_key(_decode(closed[1]))) if closed else None
        except ValueError:
            suspect = None
        if suspect is not None:
            if opening.start() == 0 and closed:
                front = closed[0]
        else:
            device = _DEVICE.match(line, opening.end())
            suspect = None if device is None else Suspect(_name_or_none(device[1]), None)
        if suspect is not None:
            found.append(suspect)
    if not front and line.strip():
        found += [Suspect(name, None) for name, _ in found] or [Suspect(None, None)]
    return tuple(dict.fromkeys(found))


def _name_or_none(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except ValueError:
        return None


def _malformed(raw: bytes) -> str:
    if raw.startswith(_MARK):
        return "the file starts with a byte order mark; it must be plain UTF-8"
    if raw.endswith(b"]\r"):
        return "has CRLF line ends: lines end in a newline only (git: `*.jsonl text eol=lf`)"
    return 'the line is cut or malformed; expected ["KEY", "CHECKSUM", {ENTRY}]'


def _decode(written: bytes) -> str:
    if b"\\" not in written:
        return written.decode()
    text = load(f'"{written.decode()}"')
    return str(text)
