"""One line of a shard: `["KEY", "CHECKSUM", {ENTRY}]`.

The key is `DEVICE NAME|BUCKET KEY`. The checksum is the CRC-32 of the entry's text as it stands in
the line. The entry repeats the key, so that damage to the key in front shows as well.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from lfbo_aot.database.entry import Entry
from lfbo_aot.database.text import dump_line
from lfbo_aot.database.text import load
from lfbo_aot.registry.buckets import Bucket

_TEXT = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
_LINE = re.compile(
    rb"\[" + _TEXT + rb', "([0-9a-f]{8})", (\{(?:"schema": [0-9]+, "key": ' + _TEXT + rb")?.*\})\]"
)
_START = re.compile(rb'\["[^"\\]+\|[^"\\]+", "[0-9a-f]{8}", \{')
_KEY_LIKE = re.compile(rb'[^"|\\]+(?:\|[A-Za-z_][A-Za-z0-9_]*=[^"|\\]+)+')


@dataclass(frozen=True, slots=True)
class Line:
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
        msg = 'the line is cut or malformed; expected ["KEY", "CHECKSUM", {ENTRY}]'
        raise ValueError(msg)
    written, checksum, text, repeated = match.groups()
    key = _decode(written)
    if repeated is not None and repeated != written:
        msg = f"the entry belongs to the key {_decode(repeated)!r}, not to {key!r}"
        raise ValueError(msg)
    return Line(number=number, key=key, checksum=checksum.decode(), text=text, raw=raw)


def keys_like(raw: bytes) -> tuple[tuple[str, Bucket], ...]:
    """Whatever in a damaged line still reads as a key: what the line may have been about."""
    found = [_key_or_none(match[0]) for match in _KEY_LIKE.finditer(raw)]
    return tuple(dict.fromkeys(pair for pair in found if pair is not None))


def _key_or_none(raw: bytes) -> tuple[str, Bucket] | None:
    try:
        return split_key(raw.decode())
    except ValueError:
        return None


def _decode(written: bytes) -> str:
    if b"\\" not in written:
        return written.decode()
    text = load(f'"{written.decode()}"')
    return str(text)
